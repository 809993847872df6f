/* The CUDA types that signatures need: half, bfloat16 and streams, from the toolkit where there is one, else stand-ins.
 * The first two are two bytes that are passed and returned like a struct of one unsigned short, so that one library
 * serves programs built either way. CUDA's own headers declare the two types for C++ only: C always gets the stand-ins.
 */
#ifndef NVSHMEM_CUDA_TYPES_H
#define NVSHMEM_CUDA_TYPES_H

#if defined(__has_include) && !defined(__CUDACC_RTC__)
#if __has_include(<cuda.h>) && __has_include(<cuda_runtime.h>)
#define HEDDLE_HAS_CUDA_HEADERS 1
#endif
#endif

#if defined(HEDDLE_HAS_CUDA_HEADERS)
#include <cuda_runtime.h>
#elif !defined(__CUDACC_RTC__)
typedef struct CUstream_st* cudaStream_t;
#endif
#if (defined(HEDDLE_HAS_CUDA_HEADERS) && defined(__cplusplus)) || defined(__CUDACC_RTC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#else
typedef struct {
  unsigned short x; /* the bits of an IEEE 754 binary16 */
} __half;
typedef struct {
  unsigned short x; /* the upper 16 bits of an IEEE 754 binary32 */
} __nv_bfloat16;
#endif

#endif
