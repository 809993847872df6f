// Loops inside kernels and the plain memory operations that figures are compared with: no library call.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "perftest/device/session.h"

namespace perftest {

/// Nanoseconds of the GPU's clock; it ticks coarsely, so time many operations.
__device__ inline uint64_t clock_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

__device__ inline void store_release(uint64_t* to, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ inline void store_relaxed(uint64_t* to, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ inline uint64_t load_relaxed(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline uint64_t load_acquire(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void add_relaxed(uint64_t* to, uint64_t value) {
  asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ inline uint64_t fetch_add_relaxed(uint64_t* to, uint64_t value) {
  uint64_t old;
  asm volatile("atom.relaxed.sys.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(to), "l"(value) : "memory");
  return old;
}
/// 16 bytes; no copy stays in L1, so that every load of a peer's memory crosses the link.
__device__ inline uint4 load_vector(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
__device__ inline void store_vector(uint4* to, uint4 value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

/// Waits until `done()`, at most kNs; false when it was not, with *late set for the host.
template <uint64_t kNs, class Done>
__device__ bool wait_bounded(uint32_t* late, Done done) {
  uint64_t end = 0;
  for (uint32_t looks = 1; !done(); ++looks) {
    if (looks % 1024 != 0) continue;
    const uint64_t now = clock_ns();
    if (end == 0) end = now + kNs;
    if (now < end) continue;
    *static_cast<volatile uint32_t*>(late) = 1;
    return false;
  }
  return true;
}

/// The caller's block copies `bytes`, a multiple of 16, from and to multiples of 16, eight loads in flight a thread.
__device__ inline void copy_vectors(char* to, const char* from, size_t bytes) {
  constexpr size_t kInFlight = 8;
  auto* const destination = reinterpret_cast<uint4*>(to);
  const auto* const source = reinterpret_cast<const uint4*>(from);
  const size_t count = bytes / sizeof(uint4), step = blockDim.x;
  size_t i = threadIdx.x;
  for (; i + (kInFlight - 1) * step < count; i += kInFlight * step) {
    uint4 values[kInFlight];
#pragma unroll
    for (size_t k = 0; k < kInFlight; ++k) values[k] = load_vector(source + i + k * step);
#pragma unroll
    for (size_t k = 0; k < kInFlight; ++k) store_vector(destination + i + k * step, values[k]);
  }
  for (; i < count; i += step) store_vector(destination + i, load_vector(source + i));
}

/// Stands around the operations of a raw kernel: at the end they are visible to everyone, as after a quiet.
struct Raw {
  __device__ ~Raw() { __threadfence_system(); }
};

// Kernels know their number of threads, so that few threads get as many registers as the compiler likes.

/// op(i) for i = 0, 1, ..., timed from outside. `Around` is made before and gone after.
template <class Around, int kThreads, class Op>
__global__ void __launch_bounds__(kThreads) repeat_kernel(Op op, int iterations) {
  const Around around;
  for (int i = 0; i < iterations; ++i) op(i);
}

/// The same in batches of `repeats`, each timed by one block: nanoseconds into `ns`.
template <class Around, int kThreads, class Op>
__global__ void __launch_bounds__(kThreads) timed_kernel(Op op, int batches, int repeats, uint64_t* ns) {
  const Around around;
  for (int batch = 0; batch < batches; ++batch) {
    __syncthreads();
    const uint64_t start = clock_ns();
    for (int i = 0; i < repeats; ++i) op(i);
    __syncthreads();
    if (threadIdx.x == 0) ns[batch] = clock_ns() - start;
  }
}

/// Round trips between the two PEs, each with one block of this kernel: turn.send(number) and turn.wait(number) for
/// number = 1, 2, ... A wait that returns false, in every thread of the block, ends the kernel.
template <int kThreads, class Turn>
__global__ void __launch_bounds__(kThreads)
    ping_pong_kernel(Turn turn, bool first, int batches, int repeats, uint64_t* ns) {
  uint64_t number = 0;
  for (int batch = 0; batch < batches; ++batch) {
    const uint64_t start = clock_ns();
    for (int i = 0; i < repeats; ++i) {
      ++number;
      if (first) turn.send(number);
      if (!turn.wait(number)) return;
      if (!first) turn.send(number);
    }
    if (threadIdx.x == 0) ns[batch] = clock_ns() - start;
  }
}

// ---- bulk copies, as one thread of a block issues them

constexpr uint32_t kStageBytes = 16u << 10;

/// Shared memory that a bulk kernel of so many stages needs.
constexpr size_t bulk_smem(int stages) { return static_cast<size_t>(stages) * kStageBytes; }

template <int kPending>
__device__ inline void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// Every block copies its part, a multiple of kStageBytes, through kStages stages of shared memory; every iteration is
/// one call: nothing of the next part is loaded ahead. Iterations alternate between the places 0 and `second` behind.
template <int kStages>
__global__ void __launch_bounds__(32)
    bulk_kernel(char* to, const char* from, size_t part, size_t second, int iterations, uint32_t* late) {
  extern __shared__ __align__(128) unsigned char stages[];
  __shared__ __align__(8) uint64_t full[kStages];
  if (threadIdx.x != 0) return;
  const auto stage_at = static_cast<uint32_t>(__cvta_generic_to_shared(stages));
  const auto full_at = static_cast<uint32_t>(__cvta_generic_to_shared(full));
  for (uint32_t i = 0; i < kStages; ++i) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full_at + 8 * i) : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  const uint32_t chunks = static_cast<uint32_t>(part / kStageBytes);
  uint32_t loaded = 0, stored = 0;  // chunks since the kernel began: they tell stages and phases
  for (int i = 0; i < iterations; ++i) {
    const size_t at = static_cast<size_t>(blockIdx.x) * part + (i & 1) * second;
    const uint64_t source = __cvta_generic_to_global(from + at), destination = __cvta_generic_to_global(to + at);
    const auto load = [&](uint32_t chunk) {
      const uint32_t stage = loaded++ % kStages;
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full_at + 8 * stage), "r"(kStageBytes)
                   : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       stage_at + stage * kStageBytes),
                   "l"(source + uint64_t{chunk} * kStageBytes), "r"(kStageBytes), "r"(full_at + 8 * stage)
                   : "memory");
    };
    bulk_wait_read<0>();  // the last call's stores have left the stages
    for (uint32_t chunk = 0; chunk < kStages && chunk < chunks; ++chunk) load(chunk);
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const uint32_t stage = stored % kStages, phase = stored / kStages & 1;
      ++stored;
      const bool came = wait_bounded<1000000000u>(late, [&] {
        uint32_t done;
        asm volatile(
            "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(full_at + 8 * stage), "r"(phase)
            : "memory");
        return done != 0;
      });
      if (!came) return;
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination +
                                                                                       uint64_t{chunk} * kStageBytes),
                   "r"(stage_at + stage * kStageBytes), "r"(kStageBytes)
                   : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      // The store before this one has left its stage by now, or soon.
      if (chunk >= 1 && chunk - 1 + kStages < chunks) {
        bulk_wait_read<1>();
        load(chunk - 1 + kStages);
      }
    }
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  __threadfence_system();
}

// ---- host side: kernels as what Session measures. The session outlives them.

template <class Around, int kThreads, class Op>
Launch repeated(Session& session, int blocks, const Op& op, size_t smem = 0) {
  return [=, &session](int iterations) {
    session.launch(repeat_kernel<Around, kThreads, Op>, blocks, kThreads, smem, op, iterations);
  };
}

template <class Around, int kThreads, class Op>
Session::TimedLaunch timed_block(Session& session, const Op& op, size_t smem = 0) {
  return [=, &session](int batches, int repeats) {
    session.launch(timed_kernel<Around, kThreads, Op>, 1, kThreads, smem, op, batches, repeats, session.samples());
  };
}

template <int kThreads, class Turn>
Session::TimedLaunch ping_pong(Session& session, const Turn& turn) {
  return [=, &session](int batches, int repeats) {
    session.launch(ping_pong_kernel<kThreads, Turn>, 1, kThreads, 0, turn, session.active(), batches, repeats,
                   session.samples());
  };
}

/// Bulk copies by `blocks` blocks; put: 4 stages, get: 8.
inline Launch bulk(Session& session, int blocks, size_t part, bool put, size_t second) {
  return [=, &session](int iterations) {
    if (put) {
      session.launch(bulk_kernel<4>, blocks, 32, bulk_smem(4), session.peer_target(), session.source(), part, second,
                     iterations, session.late());
    } else {
      session.launch(bulk_kernel<8>, blocks, 32, bulk_smem(8), session.target(), session.peer_source(), part, second,
                     iterations, session.late());
    }
  };
}

/// `bytes` between the PEs' buffers by CUDA's own copies.
inline Launch cuda_copies(Session& session, bool put, size_t bytes) {
  return [=, &session](int iterations) {
    char* const to = put ? session.peer_target() : session.target();
    const char* const from = put ? session.source() : session.peer_source();
    for (int i = 0; i < iterations; ++i) {
      must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, session.stream()), "cudaMemcpyAsync");
    }
  };
}

/// Every block copies its part with 16-byte loads and stores.
struct CopyVectors {
  char* to;
  const char* from;
  size_t part, second;
  __device__ void operator()(int i) const {
    const size_t at = blockIdx.x * part + (i & 1) * second;
    copy_vectors(to + at, from + at, part);
  }
};

/// The bytes of a part when `blocks` share `bytes`: whole pages, so that all parts are aligned alike.
inline size_t part_of(size_t bytes, int blocks) { return bytes / static_cast<size_t>(blocks) / 4096 * 4096; }

}  // namespace perftest
