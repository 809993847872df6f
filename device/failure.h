// How a kernel says that a call failed, and how its waits end: a record for the host, then the end of the thread.
//
// Nothing traps: a trap would destroy the context, and with it the data of every other stream. A thread that gives up
// writes the first failure of the process into the record and exits; barriers of its block no longer count it, so that
// the block's other threads come to their own end, and waits of its grid end too. What the kernel has computed then is
// not to be used: the host finds the record.
#pragma once

#include "device/access.h"
#include "device/failed_grids.h"
#include "device/state.h"

#if defined(__CUDA_ARCH__)
namespace heddle::device {

/// Writes a failure of `call` into the record unless there is one already, and remembers the grid as failed. Without a
/// world the record is the unit's own, which init finds; checking builds print a line as well.
HEDDLE_DEVICE HEDDLE_OUTLINE void record_failure(const char* call, DeviceError error, int pe, const void* address,
                                                 uint64_t bytes) {
  DeviceErrorRecord* const shared = device_state().errors;
  DeviceErrorRecord* const record = shared != nullptr ? shared : own_record();
  const uint64_t grid = grid_id();
  remember_grid(record->failed_grids, grid);
  fence_system();  // for barriers that this thread will be missing from: see meet_all
  if (atomic_compare_exchange(&record->claimed, 0u, 1u) != 0) return;
  record->error = static_cast<uint32_t>(error);
  record->pe = pe;
  record->address = reinterpret_cast<uint64_t>(address);
  record->bytes = bytes;
  record->grid = grid;
  const auto keep = [](uint32_t(&to)[3], uint32_t x, uint32_t y, uint32_t z) {
    to[0] = x;
    to[1] = y;
    to[2] = z;
    asm volatile("" ::: "memory");  // one after the other, as registers are dear: blocks of 1024 threads have 64
  };
  keep(record->block, blockIdx.x, blockIdx.y, blockIdx.z);
  keep(record->thread, threadIdx.x, threadIdx.y, threadIdx.z);
  keep(record->blocks, gridDim.x, gridDim.y, gridDim.z);
  keep(record->threads, blockDim.x, blockDim.y, blockDim.z);
  uint32_t i = 0;
  HEDDLE_ROLLED
  for (; i + 1 < sizeof record->call && call[i] != 0; ++i) record->call[i] = call[i];
  record->call[i] = 0;
  store_release(&record->complete, 1u);  // with the rest of the record
#if HEDDLE_CHECK != 0
  if (shared == nullptr) {
    printf(
        "heddle: error: a kernel's %s (block %u,%u,%u, thread %u,%u,%u): called outside init and finalize, or on "
        "another "
        "GPU than the symmetric heap's\n",
        call, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  }
#endif
}

/// record_failure, then the end of the calling thread.
HEDDLE_DEVICE HEDDLE_INLINE void give_up(const char* call, DeviceError error, int pe, const void* address,
                                         uint64_t bytes) {
  record_failure(call, error, pe, address, bytes);
  exit_thread();
}

/// nvshmem_global_exit: tells the host, whatever else is recorded, and has the grid's waits end. There must be a world.
HEDDLE_DEVICE HEDDLE_OUTLINE void ask_for_exit(int status) {
  DeviceErrorRecord* const record = device_state().errors;
  remember_grid(record->failed_grids, grid_id());
  store_release(&record->exit, kExitAsked | static_cast<uint32_t>(status));  // the host exits, after the line above
}

/// Whether a thread of the calling grid has failed. Reads of host memory.
HEDDLE_DEVICE HEDDLE_INLINE bool grid_has_failed() {
  const DeviceErrorRecord* const record = device_state().errors;
  return record != nullptr && is_remembered(record->failed_grids, grid_id());
}

/// What a wait asks now and then: 0 after a failure was recorded, else when the first call was.
HEDDLE_DEVICE HEDDLE_OUTLINE uint64_t look_around(const char* call, const void* variable, int pe, uint64_t started) {
  const DeviceState& state = device_state();
  DeviceError error = DeviceError::kTimeout;
  if (state.view.n_pes == 0) {  // finalize has come meanwhile
    error = DeviceError::kNotInitialized;
  } else if (grid_has_failed()) {
    error = DeviceError::kGridFailed;  // kept only where no other is
  } else {
    const uint32_t lost = state.poison == nullptr ? 0 : load_relaxed(state.poison);
    if (lost != 0) {
      error = DeviceError::kPeerLost;
      pe = static_cast<int>(lost) - 1;
    } else {
      const uint64_t now = clock_ns();
      if (started == 0) return now;
      if (state.wait_timeout_ns == 0 || now - started < state.wait_timeout_ns) return started;
    }
  }
  record_failure(call, error, pe, variable, 0);
  return 0;
}

/// The pause of one wait in a kernel. Looks go at full speed; every kLooks-th asks whether a PE was lost or this grid
/// has failed (reads of host memory), or the time is up.
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
  static constexpr uint32_t kLooks = 1024;  // some 0.5 ms of looks at local memory
  const char* call_;
  const void* variable_;
  int pe_;
  uint32_t looks_ = 0;
  uint64_t started_ = 0;
};

}  // namespace heddle::device
#endif
