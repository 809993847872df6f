// Markers that let one source serve host and device compilers.
#pragma once

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "the names that kernels call need C++17 or newer: compile with -std=c++17 (or define NVSHMEM_HOSTLIB_ONLY)"
#endif

#if defined(__CUDACC_RTC__)
// NVRTC has no C library. These are the same types as libcu++'s, so that a program may include both.
typedef signed char int8_t;
typedef signed short int16_t;
typedef signed int int32_t;
typedef signed long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef int64_t intptr_t;
typedef uint64_t uintptr_t;
#if !defined(INT_MAX)
#define INT_MAX 2147483647
#endif
#if !defined(UINT64_MAX)
#define UINT64_MAX 18446744073709551615ULL
#endif
#if !defined(NULL)
#define NULL 0
#endif
#else
#include <cstddef>
#include <cstdint>
#include <cstring>
#endif

#if !defined(HEDDLE_CHECK)
#define HEDDLE_CHECK 0  // 1: every call in kernels checks its arguments (calls.h)
#elif HEDDLE_CHECK != 0 && !defined(__CUDACC_RTC__)
#include <cstdio>
#endif

#if defined(__CUDACC__)
#define HEDDLE_HD __host__ __device__
#define HEDDLE_DEVICE __device__
#else
#define HEDDLE_HD
#define HEDDLE_DEVICE
#endif
#define HEDDLE_INLINE inline __attribute__((always_inline))
#define HEDDLE_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define HEDDLE_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
#if defined(__CUDA_ARCH__)
// With -rdc=true a function that is called takes more registers than blocks of 1024 threads have, whatever it does. So
// large functions are part of their callers there, and those that run rarely too. But in checking builds, where every
// call has one of these, only launch bounds hold them down, as they do for functions of the kernel's own translation
// unit.
#if !defined(__CUDACC_RDC__)
#define HEDDLE_OUTLINE inline __attribute__((noinline))
#define HEDDLE_OUTLINE_LARGE HEDDLE_OUTLINE
#elif HEDDLE_CHECK == 0
#define HEDDLE_OUTLINE HEDDLE_INLINE
#define HEDDLE_OUTLINE_LARGE HEDDLE_INLINE
#else
#define HEDDLE_OUTLINE static inline __attribute__((noinline))
#define HEDDLE_OUTLINE_LARGE HEDDLE_INLINE
#endif
#define HEDDLE_UNROLL _Pragma("unroll")
#define HEDDLE_ROLLED _Pragma("unroll 1")  // registers are dear
#else
#define HEDDLE_OUTLINE inline
#define HEDDLE_OUTLINE_LARGE inline
#define HEDDLE_UNROLL
#define HEDDLE_ROLLED
#endif
