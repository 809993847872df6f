/* For programs that include this path; types, limits and versions are in nvshmem_types.h. */
#ifndef DEVICE_HOST_NVSHMEM_COMMON_CUH
#define DEVICE_HOST_NVSHMEM_COMMON_CUH

#include "../nvshmem_cuda_types.h"
#include "../nvshmem_types.h"

#endif
