// Signals and counted signals on mapped memory (NVSHMEM signalling; CUDA guide, counted operations).
#pragma once

#include "device/access.h"

namespace heddle::device {

constexpr int kSignalSet = 9;   // NVSHMEM_SIGNAL_SET
constexpr int kSignalAdd = 10;  // NVSHMEM_SIGNAL_ADD

/// Updates a signal alone: one relaxed operation, ordered after nothing.
HEDDLE_HD HEDDLE_INLINE void signal_relaxed(uint64_t* remote, uint64_t value, int op) {
  if (op == kSignalSet) {
    store_relaxed(remote, value);
  } else {
    atomic_fetch_add(remote, value);
  }
}

/// Updates a signal after the data that this thread (or its group, after a barrier) has stored: release, so that
/// whoever acquires the signal sees the data.
HEDDLE_HD HEDDLE_INLINE void signal_release(uint64_t* remote, uint64_t value, int op) {
  if (op == kSignalSet) {
    store_release(remote, value);
  } else {
    add_release(remote, value);
  }
}

/// Whether a counter has reached `expected`, also when both have wrapped.
HEDDLE_HD HEDDLE_INLINE bool counter_reached(uint64_t counter, uint64_t expected) {
  return static_cast<int64_t>(counter - expected) >= 0;
}

}  // namespace heddle::device
