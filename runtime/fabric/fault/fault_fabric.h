// The fault decorator: wraps any fabric and makes its calls fail, wait, change order, get lost or end the process.
//
// A plan is a comma-separated list (HEDDLE_FAULT). METHOD is a call of the Fabric interface that returns a status, by
// its name: bind, put, query, ...; calls are counted from 1, and query is called as often as somebody polls.
//
//   fail=N              the N-th call of any method fails: "fault injected in call N (bind)"
//   fail=METHOD:N       the N-th call of METHOD fails
//   delay=METHOD:TIME   every call of METHOD, or of every method for METHOD any, waits first; TIME is 100us or 5ms
//   reorder, reorder=S  puts, signals and atomics that fetch nothing are held back and made in an order shuffled by
//   seed S
//                       (default 1), also the data of a put before its signal with others between. Made when 64 are
//                       held, after 1 ms, and before fence, quiet, get and fetching atomics; kept are only the promises
//                       of the interface: data before its own signal, and everything before a fence before what follows
//   drop=METHOD:N       the N-th call of put, put_signal, signal, put_counted, atomic, fence or quiet does nothing,
//                       and succeeds
//   kill=N, kill=METHOD:N  the process ends by SIGKILL in that call
//
// "@pe=K" behind an item applies it on PE K only. An empty plan changes nothing but window().
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/fabric/fabric.h"

namespace heddle {

/// The calls that a plan can name.
enum class FabricMethod : int {
  kReserveIds,
  kReleaseIds,
  kLimits,
  kSetWindow,
  kCreate,
  kExportHandle,
  kImportHandle,
  kQuery,
  kDestroy,
  kAllocate,
  kAdopt,
  kRelease,
  kBind,
  kUnbind,
  kPut,
  kGet,
  kAtomic,
  kPutSignal,
  kSignal,
  kPutCounted,
  kFence,
  kQuiet,
  kAny,  ///< also the number of methods
};

/// One item of a plan.
struct Fault {
  enum class Kind { kFail, kDelay, kDrop, kKill };
  Kind kind = Kind::kFail;
  FabricMethod method = FabricMethod::kAny;
  uint64_t call = 0;  ///< counted from 1; 0: every one
  std::chrono::microseconds delay{0};
};

/// A parsed plan, for one PE.
struct FaultPlan {
  std::vector<Fault> faults;
  bool reorder = false;
  uint64_t seed = 1;

  /// Reads `text` and keeps what applies to `pe`. A malformed one is kInvalidValue and quotes the item.
  static Status parse(const std::string& text, int pe, FaultPlan* plan);
};

class FaultFabric final : public Fabric {
 public:
  FaultFabric(std::unique_ptr<Fabric> inner, FaultPlan plan);
  /// What is still held back is not made: it was never asked to be delivered.
  ~FaultFabric() override;

  /// Calls made so far, of all methods or of one.
  uint64_t calls(FabricMethod method = FabricMethod::kAny) const;

  const char* name() const override { return name_.c_str(); }
  /// Not mapped: callers that load and store directly would go round the faults.
  FabricCapabilities capabilities() const override;
  Gpu* gpu() const override { return inner_->gpu(); }
  Kernels* kernels() const override { return inner_->kernels(); }
  LocalMemory local_memory(const void* address) const override { return inner_->local_memory(address); }
  std::vector<std::string> remarks() const override { return inner_->remarks(); }
  std::byte* address(MemoryId memory) const override { return inner_->address(memory); }
  void describe(PeerIdentity* self) const override { inner_->describe(self); }
  Reach reach(const PeerIdentity& self, const PeerIdentity& peer) const override { return inner_->reach(self, peer); }
  Status reserve_ids(uint32_t count, EndpointIds* ids) override;
  Status release_ids(EndpointIds ids) override;
  Status limits(const EndpointProperties& properties, EndpointLimits* limits) const override;
  Status reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) override {
    return inner_->reserve_addresses(bytes, alignment, base);
  }
  void release_addresses(std::byte* base, uint64_t bytes) override { inner_->release_addresses(base, bytes); }
  Status set_window(EndpointId id, std::byte* window, uint64_t size) override;
  std::byte* window(EndpointId /*id*/) const override { return nullptr; }
  Status create(EndpointId id, const EndpointProperties& properties) override;
  Status export_handle(EndpointId id, EndpointHandle* handle) override;
  Status import_handle(EndpointId id, const EndpointHandle& handle) override;
  Status query(EndpointId id, uint32_t count, bool* ready) override;
  std::string pending(EndpointId id) const override { return inner_->pending(id); }
  Status destroy(EndpointId id) override;
  Status allocate(uint64_t bytes, MemoryId* memory) override;
  Status adopt(const void* address, uint64_t bytes, MemoryId* memory, uint64_t* taken) override;
  Status release(MemoryId memory) override;
  Status bind(EndpointId id, uint64_t offset, MemoryId memory, uint64_t memory_offset, uint64_t size) override;
  Status unbind(EndpointId id, uint64_t offset, uint64_t size) override;
  Status put(EndpointId id, uint64_t offset, const void* source, size_t bytes) override;
  Status get(EndpointId id, uint64_t offset, void* destination, size_t bytes) override;
  Status atomic(AtomicOp op, AtomicType type, EndpointId id, uint64_t offset, uint64_t operand, uint64_t compare,
                uint64_t* result) override;
  Status put_signal(EndpointId id, uint64_t offset, const void* source, size_t bytes, uint64_t signal_offset,
                    uint64_t value, SignalOp op) override;
  Status signal(EndpointId id, uint64_t offset, uint64_t value, SignalOp op) override;
  Status put_counted(EndpointId id, uint64_t offset, const void* source, size_t bytes,
                     uint64_t counter_offset) override;
  Status clear(EndpointId id, uint64_t offset, uint64_t bytes) override { return inner_->clear(id, offset, bytes); }
  Status fence() override;
  Status quiet() override;

 private:
  /// An operation held back, as steps to be made in order; steps of different operations mix.
  using Steps = std::vector<std::function<Status()>>;

  /// Counts the call and applies the plan to it: a failed status ends the call; `drop` true means do nothing.
  Status enter(FabricMethod method, bool* drop = nullptr) const;
  /// Holds an operation back.
  Status hold(Steps steps);
  /// Makes what is held, in shuffled order. The first failure of what was held, now or earlier, is returned once.
  Status make_held(std::unique_lock<std::mutex>& lock);
  /// The same, with its own lock; ok at once without reorder.
  Status make_held();
  void make_held_in_time(const std::stop_token& stop);

  const std::unique_ptr<Fabric> inner_;
  const FaultPlan plan_;
  const std::string name_;
  mutable std::array<std::atomic<uint64_t>, static_cast<size_t>(FabricMethod::kAny) + 1> calls_{};

  std::mutex mutex_;  // also held while operations are made, so that a fence on another thread waits for them
  std::vector<Steps> held_;
  Status deferred_;  // failure of an operation made by the thread below
  std::mt19937_64 random_;
  std::condition_variable_any more_;
  std::jthread maker_;  // makes what nobody asks for: a wait for the peer's answer would never end otherwise
};

}  // namespace heddle
