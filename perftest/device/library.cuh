// What stands around the library's calls in a kernel.
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>

#include "perftest/device/timing.cuh"

// Registered shared memory came with NVSHMEM 3.7.
#if NVSHMEM_VENDOR_VERSION >= 30700
#define PERFTEST_SMEM 1
#endif

namespace perftest {

/// Completes everything at the end of a kernel.
struct Library {
  __device__ ~Library() { nvshmem_quiet(); }
};

#ifdef PERFTEST_SMEM
/// Registers the block's dynamic shared memory, and takes it back when all that used it is complete.
struct Donated {
  __device__ Donated() {
    extern __shared__ __align__(128) unsigned char donated[];
    uint32_t bytes;
    asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    nvshmemx_give_smem(donated, bytes);
    __syncthreads();
  }
  __device__ ~Donated() {
    nvshmem_quiet();
    __syncthreads();
    nvshmemx_release_smem();
  }
};
#endif

// ---- transfers by scope. `part`: bytes of a block (a thread in ThreadPut); odd iterations go to the second place.

struct BlockPut {
  char* to;
  const char* from;
  size_t part, second;
  int pe;
  __device__ void operator()(int i) const {
    const size_t at = blockIdx.x * part + (i & 1) * second;
    nvshmemx_putmem_nbi_block(to + at, from + at, part, pe);
  }
};

struct BlockGet {
  char* to;
  const char* from;
  size_t part, second;
  int pe;
  __device__ void operator()(int i) const {
    const size_t at = blockIdx.x * part + (i & 1) * second;
    nvshmemx_getmem_nbi_block(to + at, from + at, part, pe);
  }
};

struct ThreadPut {
  char* to;
  const char* from;
  size_t part, second;
  int pe;
  __device__ void operator()(int i) const {
    const size_t at = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * part + (i & 1) * second;
    nvshmem_putmem_nbi(to + at, from + at, part, pe);
  }
};

// ---- one transfer at a time, complete before the next: by one thread, one warp, one block

struct ThreadPutQuiet {
  char* to;
  const char* from;
  size_t bytes;
  int pe;
  __device__ void operator()(int) const {
    nvshmem_putmem_nbi(to, from, bytes, pe);
    nvshmem_quiet();
  }
};

struct WarpPutQuiet {
  char* to;
  const char* from;
  size_t bytes;
  int pe;
  __device__ void operator()(int) const {
    nvshmemx_putmem_warp(to, from, bytes, pe);
    if (threadIdx.x == 0) nvshmem_quiet();
    __syncwarp();
  }
};

struct BlockPutQuiet {
  char* to;
  const char* from;
  size_t bytes;
  int pe;
  __device__ void operator()(int) const {
    nvshmemx_putmem_block(to, from, bytes, pe);
    if (threadIdx.x == 0) nvshmem_quiet();
    __syncthreads();
  }
};

struct ThreadGet {
  char* to;
  const char* from;
  size_t bytes;
  int pe;
  __device__ void operator()(int) const { nvshmem_getmem(to, from, bytes, pe); }
};

struct WarpGet {
  char* to;
  const char* from;
  size_t bytes;
  int pe;
  __device__ void operator()(int) const { nvshmemx_getmem_warp(to, from, bytes, pe); }
};

struct WarpGetQuiet {
  WarpGet get;
  __device__ void operator()(int i) const {
    get(i);
    if (threadIdx.x == 0) nvshmem_quiet();
    __syncwarp();
  }
};

/// The plain twin of a put and quiet by a block of any size: copy, barrier, one fence, barrier.
struct CopyFence {
  char* to;
  const char* from;
  size_t bytes;
  __device__ void operator()(int) const {
    if (bytes < 16) {
      if (threadIdx.x == 0)
        *reinterpret_cast<volatile uint64_t*>(to) = *reinterpret_cast<const volatile uint64_t*>(from);
    } else {
      copy_vectors(to, from, bytes);
    }
    __syncthreads();
    if (threadIdx.x == 0) __threadfence_system();
    __syncthreads();
  }
};

/// The plain twin of a get: the data are in the caller's memory, for the block to read.
struct CopyHere {
  char* to;
  const char* from;
  size_t bytes;
  __device__ void operator()(int) const {
    copy_vectors(to, from, bytes);
    __syncthreads();
  }
};

}  // namespace perftest
