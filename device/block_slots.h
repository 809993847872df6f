// What a block has registered with the library: donated shared memory (NVSHMEM guide, using TMA) and an open region.
//
// Shared memory is undefined when a block starts, so it cannot say by itself whether something was donated. The library
// therefore keeps a small table in device memory, keyed by grid and block. Looking it up costs about a load from L2;
// only calls that could use donated memory, and only when the policy allows it, do so.
#pragma once

#include "device/access.h"
#include "device/scope.h"
#include "device/state.h"

namespace heddle::device {

/// Bytes at the start of donated memory that hold barriers.
constexpr uint32_t kBarrierBytes = 128;
/// What to give: room for stages of 16 or 8 KiB, or for sources in shared memory alone.
constexpr uint32_t kRecommendedSmem = 65536, kMinimumSmem = 32768;
/// In place of the memory's address while one thread uses it.
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

/// All threads of the block call with the same values; the program's __syncthreads comes before the first transfer.
HEDDLE_DEVICE inline void give_smem(void* smem, size_t bytes) {
  if (device_state().tma_policy == 0 || smem == nullptr || bytes < kBarrierBytes ||
      reinterpret_cast<uintptr_t>(smem) % 16 != 0) {
    return;
  }
  if (BlockScope::rank() != 0 || __isShared(smem) == 0) return;
  BlockSlot* const slot = claim_slot();
  if (slot == nullptr) return;
  store_relaxed(&slot->smem, static_cast<uint32_t>(__cvta_generic_to_shared(smem)));
  store_relaxed(&slot->smem_bytes, static_cast<uint32_t>(bytes));
}

/// All threads of the block call, after the last transfer and a __syncthreads.
HEDDLE_DEVICE inline void release_smem() {
  if (BlockScope::rank() != 0) return;
  BlockSlot* const slot = find_slot();
  if (slot == nullptr) return;
  store_relaxed(&slot->smem_bytes, 0u);
  drop_slot_if_unused(slot);
}

// ---- regions: puts to mapped memory are never held back, so a region is a record and checks. Status codes are
// NVSHMEMX_*: 0 success, 1 invalid value, 2 out of memory.

/// All threads of the block call; each gets the same status, and the handle.
HEDDLE_DEVICE inline int start_region(uint64_t* handle, uint32_t hints) {
  int status = 0;
  if (BlockScope::rank() == 0) {
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
  if (BlockScope::rank() == 0) {
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
