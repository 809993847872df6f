// The library's own kernels (kernels.cu): loaded into one GPU's context, and launched on any stream of that GPU.
#pragma once

#include <memory>

#include "device/state.h"
#include "runtime/gpu.h"
#include "runtime/kernel_tasks.h"
#include "runtime/status.h"

namespace heddle {

/// Launches do not wait and may be captured. Any thread. A stream's context must be current, or none.
class Kernels {
 public:
  /// Loads every kernel at once, so that no later launch has to (which would wait for running kernels).
  static Status load(const std::shared_ptr<Gpu>& gpu, std::unique_ptr<Kernels>* kernels);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  Status store(CUstream stream, const StoreTask& task) const;
  /// Fills in task.unit.
  /// By as many blocks as help; one when there is a signal. task.unit is not read.
  Status copy(CUstream stream, const CopyTask& task) const;
  Status signal(CUstream stream, const CopyTask& task) const;
  Status strided(CUstream stream, const StridedTask& task) const;
  Status atomic(CUstream stream, const AtomicTask& task) const;
  Status wait(CUstream stream, const WaitTask& task) const;
  /// barrier of all PEs in one block; needs the state.
  Status barrier(CUstream stream, int n_pes) const;

  /// Gives the kernels their DeviceState. Waits for the copy, not for kernels.
  Status set_state(CUstream stream, const device::DeviceState& state) const;

 private:
  enum Which { kStore, kCopyUnits, kCopy, kSignal, kStrided, kAtomic, kWait, kBarrier, kCount };
  explicit Kernels(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  Status load_all();
  Status launch(Which which, CUstream stream, unsigned blocks, unsigned threads, const void* task) const;

  const std::shared_ptr<Gpu> gpu_;
  CUlibrary library_ = nullptr;
  CUkernel kernels_[kCount] = {};
  CUfunction functions_[kCount] = {};  // the same in the GPU's context
  CUdeviceptr state_ = 0;
};

/// Copies `bytes` to device memory `to` on `stream` and waits for that alone. `what` for the text of a failure.
Status copy_to_device(const Gpu& gpu, CUstream stream, CUdeviceptr to, const void* from, size_t bytes,
                      const char* what);

/// The version of the device headers that the owner of a DeviceState was compiled with, which a state on the device
/// holds from the start. Waits for the copy, not for kernels.
Status read_state_version(const Gpu& gpu, CUdeviceptr state, uint32_t* version);

}  // namespace heddle
