// What a block has registered with the library: donated shared memory (NVSHMEM guide, using TMA) and an open region.
//
// Shared memory is undefined when a block starts, so it cannot say by itself whether something was donated. The library
// therefore keeps a small table in device memory, keyed by grid and block. Looking it up costs a load, from L2 the
// first time; only calls that could use donated memory, and only when the policy allows it, do so.
#pragma once

#include "device/access.h"
#include "device/bulk_ptx.h"
#include "device/scope.h"
#include "device/state.h"

namespace heddle::device {

/// Most stages that donated memory is cut into.
constexpr uint32_t kMaxStages = 16;
/// Bytes at the start of donated memory that are the library's record: a word that says who uses the stages, and from
/// kBarriersAt on a barrier for each stage.
constexpr uint32_t kBarrierBytes = 256, kBarriersAt = 64;
static_assert(kBarriersAt + 8 * kMaxStages <= kBarrierBytes);
/// What to give. Loads of a peer are on their way for 1.8 us, stores included, and an SM loads 50 GB/s: with less than
/// 90 KiB it would wait. Two blocks of an SM can still give as much.
constexpr uint32_t kRecommendedSmem = kBarrierBytes + kMaxStages * 6 * 1024, kMinimumSmem = 32768;
/// The first word while a thread uses the stages; else the parities of the barriers' phases, a bit for each.
constexpr uint32_t kSmemInUse = 0xffffffff;
/// Below this, donated memory has no room for stages: only sources in shared memory gain.
constexpr uint32_t kLeastStagedBytes = kBarrierBytes + 8 * 1024;

/// What to give for a NVSHMEMX_SMEM_* amount (1 minimum, 2 barriers only; else recommended).
HEDDLE_HD inline int smem_to_give(int amount) {
  return static_cast<int>(amount == 2 ? kBarrierBytes : amount == 1 ? kMinimumSmem : kRecommendedSmem);
}

#if defined(__CUDA_ARCH__)

/// Slots that are looked at for one block.
constexpr uint32_t kProbes = 8;

HEDDLE_DEVICE HEDDLE_INLINE uint64_t this_block() {
  const uint64_t block = blockIdx.x + static_cast<uint64_t>(gridDim.x) * (blockIdx.y + gridDim.y * blockIdx.z);
  return grid_id() << 32 | (block + 1);
}
HEDDLE_DEVICE HEDDLE_INLINE BlockSlot* slot_at(uint64_t owner, uint32_t probe) {
  const uint64_t hash = (owner ^ owner >> 29) * 0x9e3779b97f4a7c15u >> 32;
  return device_state().block_slots + ((hash + probe) & (device_state().slot_count - 1));
}

/// The calling block's slot, or nullptr.
HEDDLE_DEVICE HEDDLE_OUTLINE BlockSlot* find_slot() {
  if (device_state().block_slots == nullptr) return nullptr;
  const uint64_t owner = this_block();
  for (uint32_t probe = 0; probe < kProbes; ++probe) {
    BlockSlot* const slot = slot_at(owner, probe);
    if (load_relaxed(&slot->owner) == owner) return slot;
  }
  return nullptr;
}

/// The calling block's slot, a free one where it has none; nullptr when there is no room. For one thread of the block.
HEDDLE_DEVICE HEDDLE_OUTLINE BlockSlot* claim_slot() {
  BlockSlot* const mine = find_slot();
  if (mine != nullptr || device_state().block_slots == nullptr) return mine;
  const uint64_t owner = this_block();
  for (uint32_t probe = 0; probe < kProbes; ++probe) {
    BlockSlot* const slot = slot_at(owner, probe);
    if (load_relaxed(&slot->owner) == 0 && atomic_compare_exchange(&slot->owner, uint64_t{0}, owner) == 0) return slot;
  }
  return nullptr;
}

/// Gives the slot back when nothing is registered any more.
HEDDLE_DEVICE HEDDLE_INLINE void drop_slot_if_unused(BlockSlot* slot) {
  if (load_relaxed(&slot->region) == 0 && load_relaxed(&slot->smem_bytes) == 0) {
    store_release(&slot->owner, uint64_t{0});  // after the two words above, for the next owner
  }
}

// ---- donated shared memory

/// Whether the block could have donated anything: what it has of shared memory, static and dynamic, is enough.
HEDDLE_DEVICE HEDDLE_INLINE bool can_have_given_smem() { return shared_memory_size() >= kBarrierBytes; }

/// What the calling block has donated; no bytes: nothing.
struct GivenSmem {
  uint32_t at, bytes;
};
HEDDLE_DEVICE HEDDLE_INLINE GivenSmem given_smem() {
  if (device_state().block_slots == nullptr) return {0, 0};
  const uint64_t owner = this_block();
  for (uint32_t probe = 0; probe < kProbes; ++probe) {
    uint64_t seen, smem;  // both words by one load, mostly from L1: each trip to L2 would show in small copies
    load_own_pair(&slot_at(owner, probe)->owner, &seen, &smem);
    if (seen == owner) return {static_cast<uint32_t>(smem), static_cast<uint32_t>(smem >> 32)};
  }
  return {0, 0};
}

/// All threads of the block call with the same values; the program's __syncthreads comes before the first transfer.
HEDDLE_DEVICE inline void give_smem(void* smem, size_t bytes) {
#if __CUDA_ARCH__ >= 900
  if (device_state().tma_policy == 0 || smem == nullptr || bytes < kBarrierBytes ||
      reinterpret_cast<uintptr_t>(smem) % 16 != 0) {
    return;
  }
  if (thread_of_block() != 0 || __isShared(smem) == 0) return;
  BlockSlot* const slot = claim_slot();
  if (slot == nullptr) return;
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
  if (bytes >= kLeastStagedBytes) {
    for (uint32_t stage = 0; stage < kMaxStages; ++stage) barrier_init(at + kBarriersAt + 8 * stage);
    fence_barrier_init();
    fence_bulk();
    shared_leave(at, 0);
  }
  store_relaxed(&slot->smem, at);
  store_relaxed(&slot->smem_bytes, static_cast<uint32_t>(bytes));
#endif
}

/// All threads of the block call, after the last transfer and a __syncthreads.
HEDDLE_DEVICE inline void release_smem() {
  if (thread_of_block() != 0) return;
  BlockSlot* const slot = find_slot();
  if (slot == nullptr) return;
#if __CUDA_ARCH__ >= 900
  if (load_relaxed(&slot->smem_bytes) >= kLeastStagedBytes) {
    const uint32_t at = load_relaxed(&slot->smem);
    for (uint32_t stage = 0; stage < kMaxStages; ++stage) barrier_end(at + kBarriersAt + 8 * stage);
  }
#endif
  store_relaxed(&slot->smem_bytes, 0u);
  drop_slot_if_unused(slot);
}

// ---- regions: puts to mapped memory are never held back, so a region is a record and checks. Status codes are
// NVSHMEMX_*: 0 success, 1 invalid value, 2 out of memory.

/// All threads of the block call; each gets the same status, and the handle.
HEDDLE_DEVICE inline int start_region(uint64_t* handle, uint32_t hints) {
  int status = 0;
  if (thread_of_block() == 0) {
    BlockSlot* const slot = claim_slot();
    if (slot == nullptr) {
      status = 2;
    } else if (load_relaxed(&slot->region) != 0) {
      status = 1;
    } else {
      const uint32_t number = ++slot->regions;
      store_relaxed(&slot->hints, hints);
      // Never 0, and unlike the handles of this slot's earlier regions.
      store_relaxed(&slot->region, static_cast<uint64_t>(number) << 32 | static_cast<uint32_t>(this_block()));
    }
  }
  if (__syncthreads_or(status == 2)) return 2;
  if (__syncthreads_or(status == 1)) return 1;
  *handle = load_relaxed(&find_slot()->region);
  __syncthreads();  // before a quick thread ends the region
  return 0;
}

/// All threads of the block call with the same handle.
HEDDLE_DEVICE inline int stop_region(uint64_t handle) {
  int status = 0;
  if (thread_of_block() == 0) {
    BlockSlot* const slot = find_slot();
    if (handle == 0 || slot == nullptr || load_relaxed(&slot->region) != handle) {
      status = 1;
    } else {
      store_relaxed(&slot->region, uint64_t{0});
      drop_slot_if_unused(slot);
    }
  }
  return __syncthreads_or(status) != 0 ? 1 : 0;
}

/// Whether the block has an open region with all of `hints`.
HEDDLE_DEVICE inline bool region_is_active(uint32_t hints) {
  const BlockSlot* const slot = find_slot();
  return slot != nullptr && load_relaxed(&slot->region) != 0 && (load_relaxed(&slot->hints) & hints) == hints;
}

#endif

}  // namespace heddle::device
