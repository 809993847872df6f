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
/// its store has read it. Done and complete on return. The engine starts loads and stores, which run by themselves, and
/// waits for them; tests bring one of their own.
template <class Engine>
HEDDLE_HD HEDDLE_INLINE void bulk_ring(const Engine& engine, char* destination, const char* source, size_t bytes,
                                       uint32_t stages, uint32_t stage_bytes) {
  size_t loaded = 0, stored = 0;  // bytes whose load, or store, was started
  uint32_t load_stage = 0, store_stage = 0, parity = 0;
  while (stored < bytes) {
    // Keep every stage but one loading: that one's store may still read it.
    while (loaded < bytes && loaded - stored < static_cast<size_t>(stages - 1) * stage_bytes) {
      const auto size = static_cast<uint32_t>(bytes - loaded < stage_bytes ? bytes - loaded : stage_bytes);
      engine.await_reads_but_one();
      engine.start_load(load_stage, source + loaded, size);
      loaded += size;
      load_stage = load_stage + 1 == stages ? 0 : load_stage + 1;
    }
    const auto size = static_cast<uint32_t>(bytes - stored < stage_bytes ? bytes - stored : stage_bytes);
    engine.await_load(store_stage, parity);
    engine.start_store(destination + stored, store_stage, size);
    stored += size;
    if (++store_stage == stages) {
      store_stage = 0;
      parity ^= 1;
    }
  }
  engine.await_stores();
}

#if defined(__CUDA_ARCH__)

/// Whether a call may try the bulk path; from what all members know, and cheap. Without donated memory or policy no
/// call does more than look at the policy.
template <class Scope>
HEDDLE_DEVICE HEDDLE_INLINE bool bulk_pays(const Scope& scope, const void* destination, const void* source,
                                           size_t bytes) {
#if __CUDA_ARCH__ >= 900
  const uint32_t policy = device_state().tma_policy;
  if (HEDDLE_LIKELY(policy == 0)) return false;
  // By vectors, n threads move some n x 100 MB/s and return at once; a bulk copy moves 45 GB/s after 1.5 us.
  const auto threads = static_cast<size_t>(scope.size());
  if (policy == 1 && (threads > 256 || bytes < 512 * threads)) return false;
  const auto to = reinterpret_cast<uintptr_t>(destination), from = reinterpret_cast<uintptr_t>(source);
  return bytes >= 512 && (to | from | bytes) % kVectorBytes == 0 && __isGlobal(destination) != 0 &&
         (__isGlobal(source) != 0 || __isShared(source) != 0);
#else
  return false;
#endif
}

#if __CUDA_ARCH__ >= 900

/// The engine of bulk_ring: stages behind barriers in donated shared memory.
struct BulkEngine {
  uint32_t smem, stage_bytes;
  HEDDLE_DEVICE HEDDLE_INLINE uint32_t barrier(uint32_t stage) const { return smem + 8 * stage; }
  HEDDLE_DEVICE HEDDLE_INLINE uint32_t memory(uint32_t stage) const {
    return smem + kBarrierBytes + stage * stage_bytes;
  }
  HEDDLE_DEVICE HEDDLE_INLINE void start_load(uint32_t stage, const char* source, uint32_t bytes) const {
    barrier_expect(barrier(stage), bytes);
    bulk_load(memory(stage), source, bytes, barrier(stage));
  }
  HEDDLE_DEVICE HEDDLE_INLINE void await_load(uint32_t stage, uint32_t parity) const {
    while (!barrier_completed(barrier(stage), parity)) {
    }
  }
  HEDDLE_DEVICE HEDDLE_INLINE void start_store(char* destination, uint32_t stage, uint32_t bytes) const {
    bulk_store(destination, memory(stage), bytes);
  }
  HEDDLE_DEVICE HEDDLE_INLINE void await_reads_but_one() const { bulk_wait_read_but_one(); }
  HEDDLE_DEVICE HEDDLE_INLINE void await_stores() const { bulk_wait(); }
};

/// One thread's bulk copy; false when the block has no donated memory, or it is in use by another of its threads.
HEDDLE_DEVICE HEDDLE_OUTLINE bool bulk_copy(char* destination, const char* source, size_t bytes, uint32_t stages) {
  BlockSlot* const slot = find_slot();
  if (slot == nullptr) return false;
  const uint32_t smem_bytes = load_relaxed(&slot->smem_bytes);
  if (smem_bytes == 0) return false;
  const bool from_shared = __isShared(source) != 0;
  if (from_shared) {
    fence_bulk();
    bulk_store(destination, static_cast<uint32_t>(__cvta_generic_to_shared(source)), static_cast<uint32_t>(bytes));
    bulk_wait();
    return true;
  }
  if (smem_bytes < kLeastStagedBytes) return false;
  const uint32_t smem = atomic_exchange(&slot->smem, uint32_t{kSmemInUse});
  if (smem == kSmemInUse) return false;
  __threadfence_block();  // after whoever used the stages before
  fence_bulk();
  const BulkEngine engine{smem, (smem_bytes - kBarrierBytes) / stages & ~127u};
  for (uint32_t stage = 0; stage < stages; ++stage) barrier_init(engine.barrier(stage));
  fence_barrier_init();
  bulk_ring(engine, destination, source, bytes, stages, engine.stage_bytes);
  for (uint32_t stage = 0; stage < stages; ++stage) barrier_end(engine.barrier(stage));
  __threadfence_block();
  store_relaxed(&slot->smem, smem);
  return true;
}

#endif

/// Copies by a bulk copy if it can, else by the engine of copy.h. All members call. A function of its own, so that
/// other copies have no registers to pay for it.
template <class Sides, class Scope>
HEDDLE_DEVICE HEDDLE_OUTLINE void copy_by_bulk(const Scope scope, char* destination, const char* source, size_t bytes) {
#if __CUDA_ARCH__ >= 900
  // Loads of a peer take longer, so more and smaller stages are in flight.
  constexpr uint32_t kStages = Sides::kInFlight;
  scope.sync();
  const bool done = scope.rank() == 0 && bulk_copy(destination, source, bytes, kStages);
  if (scope.any(done)) return;
#endif
  copy_any<Sides>(scope, destination, source, bytes);
}

#endif

}  // namespace heddle::device
