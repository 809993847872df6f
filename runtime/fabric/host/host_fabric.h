// The host fabric: endpoints of one host's processes on memfd and shared mappings.
//
// Endpoints (host_fabric.cc), the conversation with importers and owners (host_peers.cc) and data operations
// (host_data.cc) are three files of one class. All state is under one mutex, but the table of window addresses: data
// operations read only that. Windows are the caller's: the destructor leaves them as they are.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/fabric/fabric.h"
#include "runtime/fabric/host/host_message.h"
#include "runtime/owned.h"

namespace heddle::host {

/// Maps ids to the addresses of ready endpoints; readers take no lock. Pages come when their ids are reserved.
class WindowTable {
 public:
  static constexpr uint32_t kMaxIds = 65536;

  ~WindowTable();
  /// Makes room for ids [base, base + count), all below kMaxIds. Serialised by the caller.
  void make_room(EndpointId base, uint32_t count);
  /// Sets the address of an id with room; nullptr takes it away.
  void set(EndpointId id, std::byte* base);
  /// The address, or nullptr for an id without one; any id.
  std::byte* get(EndpointId id) const {
    if (id >= kMaxIds) return nullptr;
    // Acquire: pairs with the release that published the page, so that its zeroes are seen.
    const Page* page = pages_[id / kPageIds].load(std::memory_order_acquire);
    if (page == nullptr) return nullptr;
    // Acquire: pairs with set(), so that what was mapped before is there.
    return (*page)[id % kPageIds].load(std::memory_order_acquire);
  }

 private:
  static constexpr uint32_t kPageIds = 1024;
  using Page = std::array<std::atomic<std::byte*>, kPageIds>;
  std::array<std::atomic<Page*>, kMaxIds / kPageIds> pages_{};
};

class HostFabric final : public Fabric {
 public:
  /// `courier` may be null: then this process is PE 0 and imports its own endpoints only.
  explicit HostFabric(std::unique_ptr<Courier> courier);
  /// Tells owners and importers that this process's endpoints are gone.
  ~HostFabric() override;

  const char* name() const override { return "host"; }
  FabricCapabilities capabilities() const override;
  Reach reach(const PeerIdentity& self, const PeerIdentity& peer) const override;

  Status reserve_ids(uint32_t count, EndpointIds* ids) override;
  Status release_ids(EndpointIds ids) override;
  Status limits(const EndpointProperties& properties, EndpointLimits* limits) const override;
  Status set_window(EndpointId id, std::byte* window, uint64_t size) override;
  std::byte* window(EndpointId id) const override;
  Status create(EndpointId id, const EndpointProperties& properties) override;
  Status export_handle(EndpointId id, EndpointHandle* handle) override;
  Status import_handle(EndpointId id, const EndpointHandle& handle) override;
  Status query(EndpointId id, uint32_t count, bool* ready) override;
  std::string pending(EndpointId id) const override;
  Status destroy(EndpointId id) override;
  Status allocate(uint64_t bytes, MemoryId* memory) override;
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
  Status fence() override;
  Status quiet() override;

 private:
  struct Memory {
    OwnedFd fd;
    uint64_t bytes = 0;
    uint32_t binds = 0;
  };
  struct Bind {
    uint64_t size = 0;
    MemoryId memory = 0;  // 0 for an import
    uint64_t memory_offset = 0;
    Status mapping;  // of an import: why this part could not be mapped
  };
  /// What an owner knows of one import of its endpoint.
  struct Importer {
    uint64_t sent = 0;   // changes told
    uint64_t acked = 0;  // changes it has answered
  };
  using ImporterKey = std::pair<int, uint32_t>;  // PE and its request number
  struct Endpoint {
    bool own = false;
    bool ready = false;  // a query has said so
    uint64_t size = 0;
    std::map<uint64_t, Bind> binds;  // by offset
    // own
    bool exportable = false;
    uint64_t serial = 0;
    Nonce nonce;
    std::map<ImporterKey, Importer> importers;
    Status failure;  // own: for the next query, once; import: for every query
    // import
    int owner = -1;
    uint64_t owner_serial = 0;
    uint32_t request = 0;
    bool told = false;  // kReady came
    bool gone = false;  // refused, or destroyed by its owner
  };
  struct Window {
    std::byte* base = nullptr;
    uint64_t size = 0;
  };

  // All of these are called with mutex_ held.
  Status check_reserved(EndpointId id, const char* call) const;
  Status find_live(EndpointId id, const char* call, Endpoint** endpoint);
  Status check_free_id(EndpointId id, const char* call, uint64_t size) const;
  bool evaluate(EndpointId id, Endpoint& endpoint, Status* status);
  void unmap_all(EndpointId id, Endpoint& endpoint);

  // host_peers.cc. Messages to this very PE are handled at once instead of travelling.
  Status send(int pe, const Message& message, int fd);
  void deliver(int pe, const unsigned char* bytes, size_t size, OwnedFd fd);
  void handle(int pe, const Message& message, OwnedFd fd);
  void on_attach(int pe, const Message& message);
  void on_ack(int pe, const Message& message);
  void on_detach(int pe, const Message& message);
  void on_bound(EndpointId id, Endpoint& import, const Message& message, OwnedFd fd);
  void on_unbound(EndpointId id, Endpoint& import, const Message& message);
  void answer(Endpoint& import, const Message& message, const Status& status);
  Status tell_bound(int pe, uint32_t request, Importer& importer, uint64_t offset, const Bind& bind);
  void tell_importers(Endpoint& endpoint, const char* what, const std::function<Status(ImporterKey, Importer&)>& tell);

  const std::unique_ptr<Courier> courier_;
  const int my_pe_;
  WindowTable table_;

  mutable std::mutex mutex_;
  std::map<EndpointId, uint32_t> reserved_;  // base -> count
  std::map<EndpointId, Window> windows_;
  std::map<EndpointId, Endpoint> endpoints_;
  std::map<MemoryId, Memory> memory_;
  uint64_t next_serial_ = 1;
  uint32_t next_request_ = 1;
  MemoryId next_memory_ = 1;
};

}  // namespace heddle::host
