// How a kernel says that a call failed, and how its waits end: a record for the host, then the end of the thread.
//
// Nothing traps: a trap would destroy the context, and with it the data of every other stream. A thread that gives up
// writes the first failure of the process into the record and exits; barriers of its block no longer count it, so that
// the block's other threads come to their own end. What the kernel has computed then is not to be used: the host finds
// the record.
#pragma once

#include "device/access.h"
#include "device/state.h"

#if defined(__CUDA_ARCH__)
namespace heddle::device {

/// Writes a failure of `call` into the record unless there is one already.
HEDDLE_DEVICE HEDDLE_OUTLINE void record_failure(const char* call, DeviceError error, int pe, const void* address,
                                                 uint64_t bytes) {
  DeviceErrorRecord* const record = device_state().errors;
  if (record == nullptr || atomic_compare_exchange(&record->claimed, 0u, 1u) != 0) return;
  record->error = static_cast<uint32_t>(error);
  record->pe = pe;
  record->address = reinterpret_cast<uint64_t>(address);
  record->bytes = bytes;
  record->block[0] = blockIdx.x;
  record->block[1] = blockIdx.y;
  record->block[2] = blockIdx.z;
  record->thread[0] = threadIdx.x;
  record->thread[1] = threadIdx.y;
  record->thread[2] = threadIdx.z;
  size_t i = 0;
  for (; i + 1 < sizeof record->call && call[i] != 0; ++i) record->call[i] = call[i];
  record->call[i] = 0;
  store_release(&record->complete, 1u);  // with the rest of the record
}

/// record_failure, then the end of the calling thread.
HEDDLE_DEVICE HEDDLE_INLINE void give_up(const char* call, DeviceError error, int pe, const void* address,
                                         uint64_t bytes) {
  record_failure(call, error, pe, address, bytes);
  exit_thread();
}

/// The pause of one wait in a kernel. Looks go at full speed; every kLooks-th asks whether a PE was lost (a read of
/// host memory) or the time is up.
class WaitPause {
 public:
  /// `pe`: the one waited for, -1 when the wait names none.
  HEDDLE_DEVICE HEDDLE_INLINE WaitPause(const char* call, const void* variable, int pe = -1)
      : call_(call), variable_(variable), pe_(pe) {}

  HEDDLE_DEVICE HEDDLE_INLINE bool operator()() {
    if (HEDDLE_LIKELY(++looks_ % kLooks != 0)) return true;
    started_ = look_around(call_, variable_, pe_, started_);
    return started_ != 0;
  }

 private:
  /// 0 after a failure is recorded, else when the first call was.
  static HEDDLE_DEVICE __attribute__((noinline)) uint64_t look_around(const char* call, const void* variable, int pe,
                                                                      uint64_t started) {
    const DeviceState& state = device_state();
    if (state.poison != nullptr) {
      const uint32_t lost = load_relaxed(state.poison);
      if (lost != 0) {
        record_failure(call, DeviceError::kPeerLost, static_cast<int>(lost) - 1, variable, 0);
        return 0;
      }
    }
    const uint64_t now = clock_ns();
    if (started == 0) return now;
    if (state.wait_timeout_ns == 0 || now - started < state.wait_timeout_ns) return started;
    record_failure(call, DeviceError::kTimeout, pe, variable, 0);
    return 0;
  }

  static constexpr uint32_t kLooks = 1024;  // some 0.5 ms of looks at local memory
  const char* call_;
  const void* variable_;
  int pe_;
  uint32_t looks_ = 0;
  uint64_t started_ = 0;
};

}  // namespace heddle::device
#endif
