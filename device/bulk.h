// Copies by the bulk copy engine of sm_90 and up (TMA), through shared memory that the program has donated. One thread
// keeps a ring of stages going, so a warp moves as much as 1024 threads with vectors do; the others of the scope wait.
//
// A bulk copy is complete when the call returns, nbi or not: any thread's quiet then covers it, and the stages are free
// for the next call. That costs a trip across the fabric, so small copies, and blocks with many threads, go by vectors.
#pragma once

#include "device/block_slots.h"
#include "device/bulk_ptx.h"
#include "device/copy.h"

namespace heddle::device {

/// Moves `bytes` through a ring of `stages` stages of `stage_bytes`: each is loaded, then stored, and loaded again when
/// its store has read it. Done and complete on return: a bit for each stage that was loaded an odd number of times. The
/// engine starts loads and stores, which run by themselves, and waits for them; tests bring one of their own.
template <class Engine>
HEDDLE_HD HEDDLE_INLINE uint32_t bulk_ring(const Engine& engine, char* destination, const char* source, size_t bytes,
                                           uint32_t stages, uint32_t stage_bytes) {
  size_t to_load = bytes, to_store = bytes;
  uint32_t load_stage = 0, store_stage = 0, parity = 0, loading = 0, most = stages;
  while (to_store != 0) {
    for (; to_load != 0 && loading < most; ++loading) {
      const auto size = static_cast<uint32_t>(to_load < stage_bytes ? to_load : stage_bytes);
      engine.await_reads_but_one();
      engine.start_load(load_stage, source, size);
      source += size;
      to_load -= size;
      load_stage = load_stage + 1 == stages ? 0 : load_stage + 1;
    }
    most = stages - 1;  // from now on the latest store may still read its stage
    const auto size = static_cast<uint32_t>(to_store < stage_bytes ? to_store : stage_bytes);
    engine.await_load(store_stage, parity);
    engine.start_store(destination, store_stage, size);
    --loading;
    destination += size;
    to_store -= size;
    if (++store_stage == stages) {
      store_stage = 0;
      parity ^= 1;
    }
  }
  engine.await_stores();
  return (parity != 0 ? (1u << stages) - 1 : 0u) ^ ((1u << store_stage) - 1);
}

#if defined(__CUDA_ARCH__)

/// Whether a call may try the bulk path; from what all members know, and cheap. Without donated memory or policy no
/// call does more than look at the policy.
template <class Sides, class Scope>
HEDDLE_DEVICE HEDDLE_INLINE bool bulk_pays(const Scope& scope, const void* destination, const void* source,
                                           size_t bytes) {
#if __CUDA_ARCH__ >= 900
  const uint32_t policy = device_state().tma_policy;
  if (HEDDLE_LIKELY(policy == 0)) return false;
  // By vectors, n threads move some n x 100 MB/s and return at once; a bulk copy moves 45 GB/s after 1.5 us.
  const auto threads = static_cast<size_t>(scope.size());
  if (policy == 1 && (threads > Sides::kMostByBulk || bytes < 512 * threads)) return false;
  return bytes >= 512 && all_vectors(destination, source, bytes) && __isGlobal(destination) != 0 &&
         (__isGlobal(source) != 0 || __isShared(source) != 0);
#else
  return false;
#endif
}

#if __CUDA_ARCH__ >= 900

/// The engine of bulk_ring: stages behind barriers in donated shared memory.
struct BulkEngine {
  uint32_t smem, stage_bytes, parities;
  HEDDLE_DEVICE HEDDLE_INLINE uint32_t barrier(uint32_t stage) const { return smem + kBarriersAt + 8 * stage; }
  HEDDLE_DEVICE HEDDLE_INLINE uint32_t memory(uint32_t stage) const {
    return smem + kBarrierBytes + stage * stage_bytes;
  }
  HEDDLE_DEVICE HEDDLE_INLINE void start_load(uint32_t stage, const char* source, uint32_t bytes) const {
    barrier_expect(barrier(stage), bytes);
    bulk_load(memory(stage), source, bytes, barrier(stage));
  }
  HEDDLE_DEVICE HEDDLE_INLINE void await_load(uint32_t stage, uint32_t parity) const {
    while (!barrier_completed(barrier(stage), parity ^ (parities >> stage & 1))) {
    }
  }
  HEDDLE_DEVICE HEDDLE_INLINE void start_store(char* destination, uint32_t stage, uint32_t bytes) const {
    bulk_store(destination, memory(stage), bytes);
  }
  HEDDLE_DEVICE HEDDLE_INLINE void await_reads_but_one() const { bulk_wait_read_but_one(); }
  HEDDLE_DEVICE HEDDLE_INLINE void await_stores() const { bulk_wait(); }
};

/// The least that is worth a stage of its own, unless memory is short.
constexpr uint32_t kLeastStage = 4096;

/// One thread's bulk copy, through 2^`stage_bits` stages or fewer; false when the block has donated no memory, less
/// than `least_smem` for a source in global memory, or it is in use by another of its threads.
HEDDLE_DEVICE HEDDLE_OUTLINE_LARGE bool bulk_copy(char* destination, const char* source, size_t bytes,
                                                  uint32_t stage_bits, uint32_t least_smem) {
  const GivenSmem smem = given_smem();
  if (smem.bytes == 0) return false;
  if (__isShared(source) != 0) {
    fence_bulk();
    bulk_store(destination, static_cast<uint32_t>(__cvta_generic_to_shared(source)), static_cast<uint32_t>(bytes));
    bulk_wait();
    return true;
  }
  if (smem.bytes < kLeastStagedBytes || smem.bytes < least_smem) return false;
  const uint32_t parities = shared_take(smem.at, kSmemInUse);
  if (parities == kSmemInUse) return false;
  // The stages have been the engine's alone since give_smem, whose fence came after the program's last use of them.
  fence_bulk_global();
  // Short copies are cut into as many pieces as there are stages, so that their stores start early.
  const uint32_t room = smem.bytes - kBarrierBytes;
  if (room >> stage_bits < kLeastStage) stage_bits = 2;
  const uint32_t largest = room >> stage_bits & ~127u;
  uint32_t piece = largest;
  if (bytes < static_cast<size_t>(largest) << stage_bits) {
    piece = min(largest, max(kLeastStage, ((static_cast<uint32_t>(bytes) >> stage_bits) + 127) & ~127u));
  }
  const uint32_t changed =
      bulk_ring(BulkEngine{smem.at, largest, parities}, destination, source, bytes, 1u << stage_bits, piece);
  shared_leave(smem.at, parities ^ changed);
  return true;
}

#endif

/// Copies by a bulk copy if it can, else by the engine of copy.h. All members call. A function of its own, so that
/// other copies have no registers to pay for it.
template <class Sides, class Scope>
HEDDLE_DEVICE HEDDLE_OUTLINE_LARGE void copy_by_bulk(const Scope scope, char* destination, const char* source,
                                                     size_t bytes) {
#if __CUDA_ARCH__ >= 900
  constexpr uint32_t kStageBits = 3;  // sixteen smaller stages were slower: docs/performance.md
  // What the stages hold has to be twice what the threads themselves would keep in flight, as it is on its way for
  // twice as long: through shared memory and out of it. What is recommended keeps the link busy whatever the threads.
  const auto vectors = static_cast<uint32_t>(scope.size() * Sides::kInFlight * sizeof(Vector));
  const uint32_t least_smem = device_state().tma_policy == 1 ? min(2 * vectors, kRecommendedSmem) : 0;
  // Kernels that donate nothing mostly have no shared memory: then they do not have to look for it.
  if (can_have_given_smem()) {
    scope.sync();
    const bool done = scope.rank() == 0 && bulk_copy(destination, source, bytes, kStageBits, least_smem);
    if (scope.any(done)) return;
  }
#endif
  // As without donated memory; bulk_pays has seen that all are vectors.
  if constexpr (Sides::kInline && Scope::kIsGroup) {
    copy_vectors<Sides>(scope, reinterpret_cast<Vector*>(destination), reinterpret_cast<const Vector*>(source),
                        bytes / kVectorBytes);
  } else {
    copy_any<Sides>(scope, destination, source, bytes);
  }
}

#endif

}  // namespace heddle::device
