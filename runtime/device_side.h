// What a world with a heap in GPU memory keeps for its kernels: their state, the words they share with the host, and
// the watch over failures that they record.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/state.h"
#include "runtime/fabric/fabric.h"
#include "runtime/gpu_sharing.h"
#include "runtime/settings.h"
#include "runtime/status.h"

namespace heddle {

/// Sentence for a failure that a kernel recorded, e.g. "a kernel's nvshmem_int_p (block 0,0,0, thread 3,0,0): ...".
Status device_failure(const device::DeviceErrorRecord& record);

class DeviceSide {
 public:
  struct Place {
    uint32_t node_my_pe = 0, node_n_pes = 1;  ///< in NVSHMEMX_TEAM_NODE
  };

  /// Memory that kernels and host share, and the watch. `fabric` (with a GPU) must outlive it. `on_exit` is called on
  /// the watch's thread when a kernel calls nvshmem_global_exit.
  static Status make(Fabric& fabric, const Settings& settings, std::function<void(int status)> on_exit,
                     std::unique_ptr<DeviceSide>* side);
  virtual ~DeviceSide() = default;

  /// Gives every translation unit, module and kernel of the library the view of the heap. Blocks for the copies only.
  virtual Status publish(const device::HeapView& view, const Place& place) = 0;
  /// Tries those again that did not take what was published last. Silent.
  virtual void renew() = 0;
  /// Kernels' waits end from now on: `word` is 1 + the lost PE. Any thread.
  virtual void poison(uint32_t word) = 0;
  /// Warnings about the other PEs' GPUs: shared ones, and those without native atomics.
  virtual void warn_of(const std::vector<PeerIdentity>& identities, const GpuSharing& sharing, int my_pe) const = 0;
  /// Gives kernels the teams of PEs that share GPUs, with the next publish(). Once.
  virtual Status learn_teams(const GpuSharing& sharing, int my_pe) = 0;
  /// Reports what kernels have recorded since, at once; the watch does so within 20 ms anyway.
  virtual void look() = 0;
  /// look(), then no grid counts as failed any more. For when the kernels that have failed have ended: threads of
  /// theirs that come later would wait for those that are gone.
  virtual void forget() = 0;
};

}  // namespace heddle
