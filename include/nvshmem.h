/* NVSHMEM API, whole: the host names and, for CUDA compilers, the device names. nvshmemx.h is the same.
 * Define NVSHMEM_HOSTLIB_ONLY to leave the device names out. */
#ifndef NVSHMEM_H
#define NVSHMEM_H

#if defined(__CUDACC_RTC__)
/* NVRTC knows no host functions. */
#include "nvshmem_cuda_types.h"
#include "nvshmem_names.h"
#include "nvshmem_types.h"
#else
#include <assert.h>

#include "nvshmem_host.h"
#endif

#if defined(HEDDLE_HAS_CUDA_HEADERS)
#include <cuda.h>
#include <cuda_runtime.h>

#include "nvshmemx_launch.h"
#endif

/* ---- device names: everything that a kernel may call */
#if defined(__CUDACC__) && !defined(NVSHMEM_HOSTLIB_ONLY)
#if __has_include("device/nvshmem_device.h")
#include "device/nvshmem_device.h"
#endif
#endif

#endif
