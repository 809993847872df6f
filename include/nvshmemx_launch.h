/* Collective launch: kernels whose blocks are all resident at once, so that they may wait for each other and for other
 * PEs' kernels (NVSHMEM guide, kernel launch). Needs CUDA's headers and the program's own CUDA runtime, which knows its
 * kernels: so these are inline. Included by nvshmem.h. */
#ifndef NVSHMEMX_LAUNCH_H
#define NVSHMEMX_LAUNCH_H

#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#include <stdio.h>

#include "nvshmem_types.h"

/* What a launch is made of; the stream and the caller's own attributes are honoured. */
typedef struct {
  cudaLaunchConfig_t cuda_config;
} nvshmemx_collective_launch_attr_t;

#ifdef __cplusplus
extern "C" {
#endif

/// Reports a failed launch (log and heddle_last_error); `code`. For the functions below.
__attribute__((visibility("default"))) int heddle_report_launch(const char* call, int code, const char* text);

/// Asks the library about a launch on `stream` (NULL: the default stream) of the current GPU, which holds `*blocks`
/// blocks at once. `*blocks` becomes how many this PE can have beside the PEs that share the GPU, and `sharing` (of
/// `size` bytes) says so, or "". 0; NVSHMEMX_ERROR_INVALID_VALUE, reported, when the symmetric heap is on another GPU;
/// NVSHMEMX_ERROR_INTERNAL, reported, when `needs_world` and there is none. Does not wait.
__attribute__((visibility("default"))) int heddle_admit_launch(const char* call, cudaStream_t stream, int needs_world,
                                                               int* blocks, char* sharing, unsigned long size);

static inline int heddle_launch_failure(const char* call, const char* what, cudaError_t status) {
  char text[256];
  (void)cudaGetLastError(); /* told here, so that the program's next look finds no error of ours */
  snprintf(text, sizeof text, "%s: %s: %s", what, cudaGetErrorName(status), cudaGetErrorString(status));
  return heddle_report_launch(call, NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED, text);
}

/// The most blocks of `func` that the current GPU can hold at once, for blocks of `block` threads and `sharedMem`
/// dynamic bytes, with the multiprocessors that CUDA MPS leaves to this process. NVSHMEMX_ERROR_INVALID_VALUE where not
/// even one fits.
static inline int heddle_most_blocks(const char* call, const void* func, dim3 block, size_t sharedMem, int* blocks) {
  int device = 0, processors = 0, per_processor = 0, most_threads = 0, most_shared = 0;
  char text[320];
  struct cudaFuncAttributes its;
  const unsigned long long threads = (unsigned long long)block.x * block.y * block.z;
  cudaError_t status = func == NULL ? cudaSuccess : cudaFuncGetAttributes(&its, func);
  if (func == NULL || status == cudaErrorInvalidDeviceFunction) {
    (void)cudaGetLastError();
    snprintf(text, sizeof text, "func %p is no kernel of this program for this GPU", func);
    return heddle_report_launch(call, NVSHMEMX_ERROR_INVALID_VALUE, text);
  }
  if (status != cudaSuccess) return heddle_launch_failure(call, "asking for the kernel's attributes", status);
  status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  if (status != cudaSuccess) return heddle_launch_failure(call, "asking for the multiprocessors", status);
  most_threads = its.maxThreadsPerBlock;
  if (threads == 0 || threads > (unsigned long long)most_threads) {
    snprintf(text, sizeof text, "blocks of %u x %u x %u threads; this kernel takes 1 to %d threads", block.x, block.y,
             block.z, most_threads);
    return heddle_report_launch(call, NVSHMEMX_ERROR_INVALID_VALUE, text);
  }
  if (sharedMem > (size_t)its.maxDynamicSharedSizeBytes) {
    snprintf(
        text, sizeof text,
        "%llu bytes of dynamic shared memory, but this kernel may have %d; raise "
        "cudaFuncAttributeMaxDynamicSharedMemorySize, on this GPU to at most %d less what the kernel has itself (%llu)",
        (unsigned long long)sharedMem, its.maxDynamicSharedSizeBytes, most_shared,
        (unsigned long long)its.sharedSizeBytes);
    return heddle_report_launch(call, NVSHMEMX_ERROR_INVALID_VALUE, text);
  }
  status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, func, (int)threads, sharedMem);
  if (status != cudaSuccess) return heddle_launch_failure(call, "asking how many blocks fit", status);
  *blocks = processors * per_processor;
  return NVSHMEMX_SUCCESS;
}

/// Whether a grid fits; a grid of 0 becomes the largest that does.
static inline int heddle_fit_grid(const char* call, const void* func, dim3* grid, dim3 block, size_t sharedMem,
                                  cudaStream_t stream) {
  int most = 0;
  char text[512], sharing[200];
  int code = heddle_most_blocks(call, func, block, sharedMem, &most);
  if (code == NVSHMEMX_SUCCESS) code = heddle_admit_launch(call, stream, 1, &most, sharing, sizeof sharing);
  if (code != NVSHMEMX_SUCCESS) return code;
  if (grid->x == 0 || grid->y == 0 || grid->z == 0) {
    grid->x = (unsigned)most;
    grid->y = grid->z = 1;
  }
  if (most > 0 && (unsigned long long)grid->x * grid->y * grid->z <= (unsigned long long)most) return NVSHMEMX_SUCCESS;
  snprintf(text, sizeof text,
           "a grid of %u x %u x %u blocks of %u threads with %llu bytes of dynamic shared memory cannot be resident at "
           "once; this PE can have at most %d such blocks on its GPU%s",
           grid->x, grid->y, grid->z, block.x * block.y * block.z, (unsigned long long)sharedMem, most, sharing);
  return heddle_report_launch(call, NVSHMEMX_ERROR_INVALID_VALUE, text);
}

/// `*gridsize` becomes the most blocks that a collective launch of `func` can have on the current GPU. Where PEs share
/// it under CUDA MPS, that is this PE's part, so that the same kernel of all of them can be resident at once. 0;
/// NVSHMEMX_ERROR_INVALID_VALUE for no kernel, blocks that it cannot have, or when the symmetric heap is on another
/// GPU; else NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED with the CUDA error in the text.
static inline int nvshmemx_collective_launch_query_gridsize(const void* func, dim3 blockDims, void** args,
                                                            size_t sharedMem, int* gridsize) {
  const char* const call = "nvshmemx_collective_launch_query_gridsize";
  char sharing[200];
  int code;
  (void)args;
  if (gridsize == NULL) return heddle_report_launch(call, NVSHMEMX_ERROR_INVALID_VALUE, "gridsize is NULL");
  code = heddle_most_blocks(call, func, blockDims, sharedMem, gridsize);
  if (code != NVSHMEMX_SUCCESS) return code;
  return heddle_admit_launch(call, NULL, 0, gridsize, sharing, sizeof sharing);
}

/// Launches `func` cooperatively on `stream`; every PE calls, so that kernels of all PEs may wait for each other. A
/// grid of 0 is the largest possible one. 0; NVSHMEMX_ERROR_INVALID_VALUE for a grid that is too large (the text names
/// the most blocks, and who shares the GPU), no kernel, blocks that it cannot have, or when the symmetric heap is on
/// another GPU than the current one or the stream's; NVSHMEMX_ERROR_INTERNAL outside init and finalize;
/// NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED with what CUDA says. Does not wait.
static inline int nvshmemx_collective_launch(const void* func, dim3 gridDims, dim3 blockDims, void** args,
                                             size_t sharedMem, cudaStream_t stream) {
  const char* const call = "nvshmemx_collective_launch";
  const int code = heddle_fit_grid(call, func, &gridDims, blockDims, sharedMem, stream);
  if (code != NVSHMEMX_SUCCESS) return code;
  const cudaError_t status = cudaLaunchCooperativeKernel(func, gridDims, blockDims, args, sharedMem, stream);
  if (status != cudaSuccess) return heddle_launch_failure(call, "cudaLaunchCooperativeKernel", status);
  return NVSHMEMX_SUCCESS;
}

/// The same from a configuration, whose stream and attributes are used; where they say whether the launch is
/// cooperative, they are obeyed. At most 31 attributes; NVSHMEMX_ERROR_INVALID_VALUE for more, and for NULL where there
/// should be some.
static inline int nvshmemx_collective_launch_attr(const nvshmemx_collective_launch_attr_t* attr, const void* func,
                                                  void** args) {
  const char* const call = "nvshmemx_collective_launch_attr";
  cudaLaunchAttribute attributes[32];
  cudaLaunchConfig_t config;
  unsigned i;
  int has_cooperative = 0;
  if (attr == NULL || attr->cuda_config.numAttrs > 31) {
    return heddle_report_launch(call, NVSHMEMX_ERROR_INVALID_VALUE, "attr is NULL or has more than 31 attributes");
  }
  if (attr->cuda_config.numAttrs > 0 && attr->cuda_config.attrs == NULL) {
    char text[64];
    snprintf(text, sizeof text, "attrs is NULL, but numAttrs is %u", attr->cuda_config.numAttrs);
    return heddle_report_launch(call, NVSHMEMX_ERROR_INVALID_VALUE, text);
  }
  config = attr->cuda_config;
  for (i = 0; i < config.numAttrs; ++i) {
    attributes[i] = config.attrs[i];
    has_cooperative |= attributes[i].id == cudaLaunchAttributeCooperative;
  }
  if (!has_cooperative) {
    attributes[i].id = cudaLaunchAttributeCooperative;
    attributes[i].val.cooperative = 1;
    ++config.numAttrs;
  }
  config.attrs = attributes;
  {
    const int code =
        heddle_fit_grid(call, func, &config.gridDim, config.blockDim, config.dynamicSmemBytes, config.stream);
    if (code != NVSHMEMX_SUCCESS) return code;
  }
  const cudaError_t status = cudaLaunchKernelExC(&config, func, args);
  if (status != cudaSuccess) return heddle_launch_failure(call, "cudaLaunchKernelExC", status);
  return NVSHMEMX_SUCCESS;
}

#ifdef __cplusplus
}
#endif

#endif /* __has_include(<cuda_runtime.h>) */
#endif
