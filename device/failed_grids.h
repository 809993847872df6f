// The grids of which a thread has failed: a small table of their numbers, in memory that kernels and host share.
//
// Threads of such a grid end their waits and meet in no barrier: what they wait for may never come. An entry stays
// until the host forgets all (heddle_clear_error), or newer grids need its place.
#pragma once

#include "device/access.h"

namespace heddle::device {

constexpr uint32_t kGridWays = 4, kGridBuckets = 16;         ///< a grid's number chooses the bucket
constexpr uint32_t kFailedGrids = kGridWays * kGridBuckets;  ///< entries: a grid's number plus 1, 0 free

/// Enters `grid`, in place of its bucket's lowest number where there is no room: numbers rise with every launch.
HEDDLE_HD inline void remember_grid(uint64_t* grids, uint64_t grid) {
  const uint64_t entry = grid + 1;
  uint64_t* const bucket = grids + grid % kGridBuckets * kGridWays;
  while (true) {
    uint64_t lowest = UINT64_MAX;
    uint32_t place = 0;
    HEDDLE_ROLLED
    for (uint32_t way = 0; way < kGridWays; ++way) {
      const uint64_t seen = load_relaxed(bucket + way);
      if (seen == entry) return;
      if (seen < lowest) {
        lowest = seen;
        place = way;
      }
    }
    // Fails only when another thread has entered a grid, perhaps this one.
    if (atomic_compare_exchange(bucket + place, lowest, entry) == lowest) return;
  }
}

HEDDLE_HD inline bool is_remembered(const uint64_t* grids, uint64_t grid) {
  const uint64_t* const bucket = grids + grid % kGridBuckets * kGridWays;
  bool found = false;
  for (uint32_t way = 0; way < kGridWays; ++way) found |= load_relaxed(bucket + way) == grid + 1;
  return found;
}

HEDDLE_HD inline void forget_grids(uint64_t* grids) {
  for (uint32_t i = 0; i < kFailedGrids; ++i) store_relaxed(grids + i, uint64_t{0});
}

}  // namespace heddle::device
