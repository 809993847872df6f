// A world: one process's view of a job, from bootstrap to finalize. The C API holds one; tests hold several in threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "device/access.h"
#include "device/handle.h"
#include "heap/symmetric_heap.h"
#include "runtime/control.h"
#include "runtime/device_side.h"
#include "runtime/fabric/fabric.h"
#include "runtime/gpu_sharing.h"
#include "runtime/settings.h"
#include "runtime/wait.h"

namespace heddle {

/// Seconds that the steps of set-up took, for `init` measurements and NVSHMEM_DEBUG=INFO.
struct SetupTimes {
  double exchange = 0, connect = 0, heap = 0;
};

class World {
 public:
  /// Joins the job that `bootstrap` describes. Collective: all PEs succeed, or all fail with the same cause as far as
  /// they can still be reached. Every wait in it ends by HEDDLE_TIMEOUT.
  /// `cuda_device`: the GPU that the program asks for, an ordinal; -1 leaves the choice to choose_gpu (runtime/gpu.h).
  static Status join(const Settings& settings, std::unique_ptr<Bootstrap> bootstrap, std::unique_ptr<World>* world,
                     int cuda_device = -1);
  /// What a PE calls instead of join() when it cannot: the others' join() then fails at once with `why`, as this does.
  /// Blocks as join() does. Never ok.
  static Status refuse(const Settings& settings, Bootstrap& bootstrap, const Status& why);
  /// Leaves as a crash would; call finalize() for an orderly end.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Collective: waits for all PEs, then takes everything down. With a lost PE it only takes down and says so.
  Status finalize();

  int my_pe() const { return view_.my_pe; }
  int n_pes() const { return view_.n_pes; }
  /// Launcher's node index of a PE, as proven by the shared heap.
  int node_of(int pe) const { return nodes_[static_cast<size_t>(pe)]; }

  /// Which PEs share GPUs.
  const GpuSharing& gpus() const { return gpus_; }

  /// For host code: `direct` says that host code may load and store in every PE's heap.
  const device::HeapView& view() const { return view_; }
  /// For kernels, and for addresses that are only handed on: `direct` says that every heap is mapped, for whomever.
  const device::HeapView& mapped_view() const { return mapped_view_; }
  /// Whether host code may load and store in this PE's own heap.
  bool has_host_memory() const { return device_ == nullptr; }
  Fabric& fabric() { return *fabric_; }
  const Settings& settings() const { return settings_; }
  Bootstrap& bootstrap() { return *bootstrap_; }
  ControlChannel& control() { return *control_; }
  const SetupTimes& setup_times() const { return times_; }

  // ---- memory, all collective but heap_figures
  Status allocate(const char* call, uint64_t bytes, uint64_t alignment, bool zeroed, const Status& valid, void** block);
  Status free(void* block);
  /// Makes a buffer of the program symmetric, and undoes it; see SymmetricHeap.
  Status register_buffer(const char* call, const void* buffer, uint64_t bytes, const void* preferred,
                         const Status& valid, void** alias);
  Status unregister_buffer(const char* call, const void* alias, uint64_t bytes);
  /// Whether there is memory, on every PE, in all of the `bytes` from `offset` of the heap on. Any thread.
  bool has_memory(uint64_t offset, uint64_t bytes) const { return heap_->has_memory(offset, bytes); }
  HeapFigures heap_figures() const { return heap_->figures(); }

  // ---- order and synchronisation
  Status fence() { return direct_ ? (device::fence_release(), Status::ok()) : fabric_->fence(); }
  Status quiet() { return direct_ ? (device::fence_system(), Status::ok()) : fabric_->quiet(); }
  /// All PEs have called it; no order of puts is promised.
  Status sync_all();
  /// quiet, then sync_all. Kernels' puts are not the host's: only those of kernels that have ended are complete.
  Status barrier_all();

  /// Wakes sleeping waits of `pe`, when its doorbell is mapped here.
  void ring(int pe) {
    if (sync_direct_) device::translate(sync_view_, doorbell_, pe)->ring();
  }
  /// For pauses of host waits: `Waiter pause(world.wait_context())`.
  const WaitContext& wait_context() const { return wait_context_; }
  /// The status of a wait that gave up with `verdict`, naming the lost PE or what was waited for.
  Status wait_failure(Code verdict, const std::string& what) const;

  /// Ends the job on every PE: tells the peers and the launcher. Does not end this process.
  void tell_exit(int exit_code);

 private:
  World(const Settings& settings, int cuda_device) : settings_(settings), cuda_device_(cuda_device) {}
  Status join_steps();
  Status check_memory_settings(uint64_t* limit, uint64_t* chunk, uint64_t* internal) const;
  Status open_control_heap(Deadline deadline, EndpointHandle* handle);
  /// Takes the heap's present extent over to the views of host code.
  void refresh_views();
  /// Gives kernels what mapped_view() has, unless they have it.
  Status publish_view();
  /// Both, and all PEs agree on the outcome where the extent is another than all last agreed on. Collective.
  Status show_heap(const char* call);
  /// show_heap after the heap was asked for memory: `made` is what came of that, `*memory` what it gave. Memory that
  /// cannot be shown is undone on all PEs, and `*memory` is then null.
  Status show_new(const char* call, const Status& made, const std::function<Status()>& undo, void** memory);
  void end_by_kernel(int exit_code);
  void take_down();

  Settings settings_;
  const int cuda_device_;
  std::unique_ptr<Bootstrap> bootstrap_;
  std::unique_ptr<ControlChannel> control_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<SymmetricHeap> heap_;
  // Beside a heap in GPU memory: host memory for what host threads wait on, and what kernels need.
  std::unique_ptr<Fabric> control_fabric_;
  std::unique_ptr<SymmetricHeap> control_heap_;
  std::unique_ptr<DeviceSide> device_;

  alignas(64) device::HeapView view_;  // what every put reads, on one cache line
  bool direct_ = false;
  device::HeapView mapped_view_;
  uint64_t published_extent_ = 0;  // what kernels have; 0: nothing yet
  uint64_t agreed_extent_ = 0;     // what kernels of all PEs have; the same on all PEs
  device::HeapView sync_view_;     // of the heap in which host threads meet: the one above, or the control heap
  bool sync_direct_ = false;
  Fabric* sync_fabric_ = nullptr;
  Doorbell* doorbell_ = nullptr;  // ours, at the start of that heap
  uint64_t* slots_ = nullptr;     // one cache line per PE, ours
  uint64_t epoch_ = 0;            // of sync_all
  WaitContext wait_context_;

  std::vector<int> nodes_;
  GpuSharing gpus_;
  SetupTimes times_;
  bool finalized_ = false;
};

/// "PE 1, PE 2 and PE 5"; "" for none.
std::string pe_list(const std::vector<int>& pes);

}  // namespace heddle
