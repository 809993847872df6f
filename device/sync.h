// Barriers of all PEs, called by one group of threads of each (OpenSHMEM 1.5, 9.11). Flat: everybody tells everybody,
// in one step for any number of PEs.
//
// The slots lie in the internal area of every heap: PE p announces its n-th arrival by writing n into its slot at each
// PE. A PE's count of barriers lies there too, so that kernels continue where earlier kernels ended. One group at a
// time calls: barriers of one PE are ordered, as with every collective.
#pragma once

#include "device/access.h"
#include "device/failure.h"
#include "device/handle.h"
#include "device/internal_area.h"
#include "device/scope.h"

namespace heddle::device {

/// Returns when every PE has come. What any thread of the group, and any thread ordered before it, has stored or put is
/// then visible to every PE: so this is barrier as well as sync. `make_pause(slot, pe)` makes the pause of a wait for
/// `pe`; false for all members when one gave up, and when there is no world.
template <class Scope, class MakePause>
HEDDLE_HD bool barrier_of_all(const Scope& scope, const HeapView& view, const MakePause& make_pause) {
  if (HEDDLE_UNLIKELY(view.n_pes == 0)) return false;
  const InternalArea area(static_cast<uint64_t>(view.n_pes));
  const auto count_address = reinterpret_cast<uint64_t*>(view.my_heap + area.device_epoch());
  const auto mine = reinterpret_cast<uint64_t*>(view.my_heap + area.device_slot(static_cast<uint64_t>(view.my_pe)));
  scope.sync();
  // Read after the group has met, since a member wrote it at the end of the last barrier.
  const uint64_t arrival = load_relaxed(count_address) + 1;
  // Puts are plain stores: a release before the announcement makes them visible to whoever acquires it. Each announcing
  // member issues its own; with the group's barrier before it, it covers what the others have stored.
  if (scope.rank() < view.n_pes) fence_release();
  for (int pe = scope.rank(); pe < view.n_pes; pe += scope.size()) {
    store_relaxed(translate(view, mine, pe), arrival);  // ordered by the fence
  }
  bool arrived = true;
  for (int pe = scope.rank(); pe < view.n_pes && arrived; pe += scope.size()) {
    const auto slot = reinterpret_cast<const uint64_t*>(view.my_heap + area.device_slot(static_cast<uint64_t>(pe)));
    auto pause = make_pause(slot, pe);
    // Acquire: what that PE stored before it came is visible. It may have come to the next barrier already.
    while (arrived && static_cast<int64_t>(load_acquire(slot) - arrival) < 0) arrived = pause();
  }
  const bool failed = scope.any(!arrived);
  if (scope.rank() == 0 && !failed) store_relaxed(count_address, arrival);
  return !failed;
}

#if defined(__CUDA_ARCH__)
/// The same with the waits and the world of kernels; `call` is the name that a failure is recorded under.
template <class Scope>
HEDDLE_DEVICE HEDDLE_INLINE bool barrier_of_all(const char* call, const Scope& scope) {
  if (HEDDLE_UNLIKELY(device_state().view.n_pes == 0)) {
    record_failure(call, DeviceError::kNotInitialized, -1, nullptr, 0);
    return false;
  }
  const auto make_pause = [call](const uint64_t* slot, int pe) { return WaitPause(call, slot, pe); };
  return barrier_of_all(scope, device_state().view, make_pause);
}
#endif

}  // namespace heddle::device
