// What every fabric shares that maps endpoints into its process: ids, endpoints, binds, and the conversation by which
// an owner's memory appears in its importers. The kind of memory is a MemoryProvider's; data operations are the
// subclass's.
//
// Endpoints (mapped_fabric.cc) and the conversation with importers and owners (mapped_peers.cc) are two files of one
// class. All state is under one mutex, but the table of window addresses: data operations read only that. Windows are
// the caller's: the destructor leaves them as they are.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "runtime/fabric/fabric.h"
#include "runtime/fabric/mapped/memory_provider.h"
#include "runtime/fabric/mapped/message.h"
#include "runtime/fabric/mapped/window_table.h"
#include "runtime/owned.h"

namespace heddle::mapped {

class MappedFabric : public Fabric {
 public:
  /// `courier` may be null: then this process is PE 0 and imports its own endpoints only. `name` is the fabric's, in
  /// messages too.
  MappedFabric(const char* name, std::unique_ptr<Courier> courier, std::unique_ptr<MemoryProvider> provider);
  /// Tells owners and importers that this process's endpoints are gone.
  ~MappedFabric() override;

  const char* name() const override { return name_; }

  Status reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) override;
  void release_addresses(std::byte* base, uint64_t bytes) override;
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
  Status adopt(const void* address, uint64_t bytes, MemoryId* memory, uint64_t* taken) override;
  Status release(MemoryId memory) override;
  std::byte* address(MemoryId memory) const override;
  Status bind(EndpointId id, uint64_t offset, MemoryId memory, uint64_t memory_offset, uint64_t size) override;
  Status unbind(EndpointId id, uint64_t offset, uint64_t size) override;

 protected:
  /// Where the memory of ready endpoint `id` begins in this process, or nullptr; any thread.
  std::byte* ready_window(EndpointId id) const { return table_.get(id); }
  /// The status of a data operation on an endpoint without a window.
  static Status no_window(EndpointId id, const char* call);

 private:
  struct Memory {
    MemoryProvider::Handle handle = 0;
    uint64_t bytes = 0;
    uint32_t binds = 0;
    bool abandoned = false;  // whole, and a peer may still have it mapped: never freed
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
  void say_gone(Endpoint& endpoint);
  Status check_whole(uint64_t endpoint_bytes, uint64_t memory_bytes, uint64_t offset, uint64_t size) const;

  // mapped_peers.cc. Messages to this very PE are handled at once instead of travelling.
  Status send(int pe, const Message& message, OwnedFd fd = {});
  void deliver(int pe, const unsigned char* bytes, size_t size, OwnedFd fd);
  bool await_detached(std::unique_lock<std::mutex>& lock, const Endpoint& endpoint);
  void handle(int pe, const Message& message, OwnedFd fd);
  void on_attach(int pe, const Message& message);
  void on_ack(int pe, const Message& message);
  void on_detach(int pe, const Message& message);
  void on_bound(EndpointId id, Endpoint& import, const Message& message, OwnedFd fd);
  void on_unbound(EndpointId id, Endpoint& import, const Message& message);
  void answer(Endpoint& import, const Message& message, const Status& status);
  Status tell_bound(int pe, uint32_t request, Importer& importer, uint64_t offset, const Bind& bind);
  void tell_importers(Endpoint& endpoint, const char* what, const std::function<Status(ImporterKey, Importer&)>& tell);

  const char* const name_;
  const std::unique_ptr<Courier> courier_;
  const std::unique_ptr<MemoryProvider> provider_;
  const uint64_t unit_;  // the provider's granularity
  const bool whole_;     // the provider's is_whole()
  const int my_pe_;
  WindowTable table_;

  mutable std::mutex mutex_;
  std::condition_variable detached_;         // an importer has gone
  std::map<EndpointId, uint32_t> reserved_;  // base -> count
  std::map<EndpointId, Window> windows_;
  std::map<EndpointId, Endpoint> endpoints_;
  std::map<MemoryId, Memory> memory_;
  uint64_t next_serial_ = 1;
  uint32_t next_request_ = 1;
  MemoryId next_memory_ = 1;
};

}  // namespace heddle::mapped
