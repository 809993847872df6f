// Warp groups: four consecutive warps of a block, which meet by counting their arrivals in global memory.
//
// A named barrier of the hardware would be quicker, but waits for ever for a warp that has ended, as one does that has
// given up; this meeting ends like every wait.
#pragma once

#include "device/failure.h"
#include "device/internal_area.h"
#include "device/scope.h"

namespace heddle::device {

/// Arrives and waits until all `members` have; what they did before is then visible. False when `pause` gave up: the
/// arrival is then taken back, so that the word serves the next meeting. One meeting at a time for each word.
template <class Pause>
HEDDLE_HD bool meet_by_count(uint64_t* arrivals, uint64_t members, Pause&& pause) {
  fence_release();  // before the arrival: whoever sees it sees what came before
  const uint64_t full = (atomic_fetch_add(arrivals, uint64_t{1}) / members + 1) * members;
  while (load_acquire(arrivals) < full) {  // acquire: what the others did before they came
    if (pause()) continue;
    uint64_t seen = load_relaxed(arrivals);
    while (seen < full) {
      const uint64_t before = atomic_compare_exchange(arrivals, seen, seen - 1);
      if (before == seen) return false;
      seen = before;
    }
  }
  return true;
}

#if defined(__CUDA_ARCH__)

/// The calling thread's warp group, which meets for a predefined team (device/teams.h); one group of a PE at a time
/// does, as with every collective. Blocks must be whole groups (has_whole_groups).
class WarpgroupScope {
 public:
  static constexpr bool kIsGroup = true;
  HEDDLE_DEVICE WarpgroupScope(const char* call, int team)
      : call_(call), arrivals_(device_state().meetings + static_cast<uint64_t>(team) * (kLine / sizeof(uint64_t))) {}
  HEDDLE_DEVICE static bool has_whole_groups() { return threads_of_block() % kThreads == 0; }
  HEDDLE_DEVICE static int rank() { return thread_of_block() % kThreads; }
  HEDDLE_DEVICE static int size() { return kThreads; }
  /// Ends the threads when the meeting is given up.
  HEDDLE_DEVICE void sync() const {
    if (!meet(true)) exit_thread();
  }
  /// Whether any member's flag is set, or the meeting was given up. Flags are of members that have failed, so that the
  /// others, who do not meet them, end too.
  HEDDLE_DEVICE bool any(bool flag) const { return !meet(!flag); }

 private:
  HEDDLE_DEVICE bool meet(bool willing) const {
    const WarpScope warp;
    if (warp.any(!willing)) return false;
    const uint32_t here = __ballot_sync(0xffffffff, true);  // without the lanes that have ended
    bool met = true;
    if (lane_id() == static_cast<uint32_t>(__ffs(static_cast<int>(here)) - 1)) {
      WaitPause pause(call_, arrivals_);
      met = meet_by_count(arrivals_, kThreads / 32, pause);
    }
    return !warp.any(!met);
  }

  static constexpr int kThreads = 128;
  const char* call_;
  uint64_t* arrivals_;
};

#endif

}  // namespace heddle::device
