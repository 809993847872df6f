// The library's own part at the start of every PE's heap: doorbell, arrival slots of barriers, epochs. One cache line
// each.
#pragma once

#include "device/config.h"

namespace heddle::device {

constexpr uint64_t kLine = 64;  ///< bytes of a cache line, so that no two writers share one

/// Byte offsets from the start of the heap, for a job of n PEs.
struct InternalArea {
  uint64_t n_pes;
  HEDDLE_HD constexpr explicit InternalArea(uint64_t n) : n_pes(n) {}

  HEDDLE_HD constexpr uint64_t doorbell() const { return 0; }
  /// Slot of `pe` in which it announces its arrival at a barrier of host threads.
  HEDDLE_HD constexpr uint64_t host_slot(uint64_t pe) const { return kLine * (1 + pe); }
  /// The same for barriers called in kernels.
  HEDDLE_HD constexpr uint64_t device_slot(uint64_t pe) const { return kLine * (1 + n_pes + pe); }
  /// This PE's count of barriers called in kernels.
  HEDDLE_HD constexpr uint64_t device_epoch() const { return kLine * (1 + 2 * n_pes); }
  HEDDLE_HD constexpr uint64_t bytes() const { return kLine * (2 + 2 * n_pes); }
};

}  // namespace heddle::device
