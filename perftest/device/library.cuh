// The library's calls as kernels that rows are made of.
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>

#include "perftest/device/rows.h"
#include "perftest/device/timing.cuh"

// Registered shared memory came with NVSHMEM 3.7.
#if NVSHMEM_VENDOR_VERSION >= 30700
#define PERFTEST_SMEM 1
#endif

namespace perftest {

/// Completes everything at the end of a kernel.
struct Library {
  static size_t smem() { return 0; }  ///< bytes of shared memory that a kernel is launched with
  __device__ ~Library() { nvshmem_quiet(); }
};

#ifdef PERFTEST_SMEM
/// Registers the block's dynamic shared memory, and takes it back when all that used it is complete.
struct Donated {
  static size_t smem() { return static_cast<size_t>(nvshmemx_ask_smem(NVSHMEMX_SMEM_RECOMMENDED)); }
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

// ---- who makes a call. number(): which of the callers of a kernel this is. quiet(): completes the caller's puts.

struct ByThread {
  static constexpr const char* kName = "thread";
  static __device__ size_t number() { return static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
  static __device__ void put(void* to, const void* from, size_t bytes, int pe) { nvshmem_putmem(to, from, bytes, pe); }
  static __device__ void put_nbi(void* to, const void* from, size_t bytes, int pe) {
    nvshmem_putmem_nbi(to, from, bytes, pe);
  }
  static __device__ void get(void* to, const void* from, size_t bytes, int pe) { nvshmem_getmem(to, from, bytes, pe); }
  static __device__ void quiet() { nvshmem_quiet(); }
};

/// The only warp of a block.
struct ByWarp {
  static constexpr const char* kName = "warp";
  static __device__ void put(void* to, const void* from, size_t bytes, int pe) {
    nvshmemx_putmem_warp(to, from, bytes, pe);
  }
  static __device__ void get(void* to, const void* from, size_t bytes, int pe) {
    nvshmemx_getmem_warp(to, from, bytes, pe);
  }
  static __device__ void quiet() {
    if (threadIdx.x == 0) nvshmem_quiet();
    __syncwarp();
  }
};

struct ByBlock {
  static constexpr const char* kName = "block";
  static __device__ size_t number() { return blockIdx.x; }
  static __device__ void put(void* to, const void* from, size_t bytes, int pe) {
    nvshmemx_putmem_block(to, from, bytes, pe);
  }
  static __device__ void put_nbi(void* to, const void* from, size_t bytes, int pe) {
    nvshmemx_putmem_nbi_block(to, from, bytes, pe);
  }
  static __device__ void get(void* to, const void* from, size_t bytes, int pe) {
    nvshmemx_getmem_block(to, from, bytes, pe);
  }
  static __device__ void get_nbi(void* to, const void* from, size_t bytes, int pe) {
    nvshmemx_getmem_nbi_block(to, from, bytes, pe);
  }
  static __device__ void quiet() {
    if (threadIdx.x == 0) nvshmem_quiet();
    __syncthreads();
  }
};

// ---- many transfers in flight. `part`: bytes of each caller; odd iterations go to the second place.

template <class By>
struct PutPart {
  char* to;
  const char* from;
  size_t part, second;
  int pe;
  __device__ void operator()(int i) const {
    const size_t at = By::number() * part + (i & 1) * second;
    By::put_nbi(to + at, from + at, part, pe);
  }
};

template <class By>
struct GetPart {
  char* to;
  const char* from;
  size_t part, second;
  int pe;
  __device__ void operator()(int i) const {
    const size_t at = By::number() * part + (i & 1) * second;
    By::get_nbi(to + at, from + at, part, pe);
  }
};

// ---- one transfer at a time, complete before the next

template <class Caller>
struct PutQuiet {
  using By = Caller;
  static constexpr bool kPut = true;
  char* to;
  const char* from;
  size_t bytes;
  int pe;
  __device__ void operator()(int) const {
    By::put(to, from, bytes, pe);
    By::quiet();
  }
};

template <class Caller>
struct Get {
  using By = Caller;
  static constexpr bool kPut = false;
  char* to;
  const char* from;
  size_t bytes;
  int pe;
  __device__ void operator()(int) const { By::get(to, from, bytes, pe); }
};

template <class Caller>
struct GetQuiet : Get<Caller> {
  __device__ void operator()(int i) const {
    Get<Caller>::operator()(i);
    Caller::quiet();
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

/// A row of one of these by one caller; `Around` stands around its kernel.
template <class Around, int kThreads, class Op>
RowEntry transfer_row(const char* name, size_t bytes) {
  return {name, [=](Session& session, Row* row) {
            row->scope = Op::By::kName;
            row->bytes = bytes;
            Transfer transfer;
            transfer.bytes = bytes;
            transfer.put = Op::kPut;
            transfer.one_place = true;
            const size_t smem = Around::smem();
            const Op op{session.target(), session.source(), bytes, session.peer()};
            if (!session.check(transfer, repeated<Around, kThreads>(session, 1, op, smem))) return false;
            const auto raw =
                Op::kPut
                    ? timed_block<Raw, kThreads>(session, CopyFence{session.peer_target(), session.source(), bytes})
                    : timed_block<Raw, kThreads>(session, CopyHere{session.target(), session.peer_source(), bytes});
            return session.measure_latency(row, false, timed_block<Around, kThreads>(session, op, smem), raw);
          }};
}

}  // namespace perftest
