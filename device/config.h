// Markers that let one source serve host and device compilers.
#pragma once

#if defined(__CUDACC__)
#define HEDDLE_HD __host__ __device__
#else
#define HEDDLE_HD
#endif
#define HEDDLE_INLINE inline __attribute__((always_inline))
#define HEDDLE_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define HEDDLE_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
