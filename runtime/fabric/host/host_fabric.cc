#include "runtime/fabric/host/host_fabric.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/fabric/host/host_memory.h"

namespace heddle {

std::unique_ptr<Fabric> make_host_fabric(std::unique_ptr<Courier> courier) {
  return std::make_unique<host::HostFabric>(std::move(courier));
}

namespace host {
namespace {

/// memfd; a handle is the descriptor.
class HostProvider final : public mapped::MemoryProvider {
 public:
  uint64_t granularity() const override { return page_bytes(); }
  const char* granularity_name() const override { return "page size"; }
  Status reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) override {
    return host::reserve_addresses(bytes, alignment, base);
  }
  void release_addresses(std::byte* base, uint64_t bytes) override { host::release_addresses(base, bytes); }

  Status allocate(uint64_t bytes, Handle* handle) override {
    OwnedFd fd;
    HEDDLE_RETURN_IF_ERROR(make_memory(bytes, &fd));
    *handle = static_cast<Handle>(fd.release());
    return Status::ok();
  }
  void release(Handle handle) override { OwnedFd(static_cast<int>(handle)).reset(); }
  Status export_memory(Handle handle, mapped::Ticket* ticket) override {
    ticket->fd = OwnedFd(fcntl(static_cast<int>(handle), F_DUPFD_CLOEXEC, 0));
    if (ticket->fd.valid()) return Status::ok();
    return error_errno(errno == EMFILE ? Code::kOutOfMemory : Code::kInternal, errno,
                       "duplicating descriptor %d of shared memory", static_cast<int>(handle));
  }

  Status map(std::byte** address, uint64_t bytes, Handle handle, uint64_t memory_offset) override {
    return map_memory(*address, bytes, static_cast<int>(handle), memory_offset);
  }
  Status map_imported(std::byte** address, uint64_t bytes, const mapped::Ticket& ticket,
                      uint64_t memory_offset) override {
    return map_memory(*address, bytes, ticket.fd.get(), memory_offset);
  }
  Status unmap(std::byte* address, uint64_t bytes) override { return unmap_memory(address, bytes); }
};

}  // namespace

HostFabric::HostFabric(std::unique_ptr<Courier> courier)
    : MappedFabric("host", std::move(courier), std::make_unique<HostProvider>()) {}

FabricCapabilities HostFabric::capabilities() const {
  FabricCapabilities capabilities;
  capabilities.mapped = true;
  capabilities.native_atomics = true;
  capabilities.counted_puts = true;
  capabilities.granularity = page_bytes();
  return capabilities;
}

Reach HostFabric::reach(const PeerIdentity& self, const PeerIdentity& peer) const {
  return same_host(self, peer, name());
}

Reach same_host(const PeerIdentity& self, const PeerIdentity& peer, const char* fabric) {
  if (self.node != -1 && peer.node != -1 && self.node != peer.node) {
    return {false, format("PE runs on another node of the launcher's map (node %d, this is node %d); the %s fabric "
                          "shares memory of one host only",
                          peer.node, self.node, fabric)};
  }
  if (std::memcmp(self.boot_id, peer.boot_id, sizeof self.boot_id) != 0) {
    return {false, format("PE runs under another kernel (its boot id differs from this process's); the %s fabric "
                          "shares memory of one host only",
                          fabric)};
  }
  if (self.uid != peer.uid) {
    return {false, format("PE runs as another user (uid %u, this process has uid %u); start all PEs as one user",
                          peer.uid, self.uid)};
  }
  return {true, "same host (equal boot id) and same user"};
}

}  // namespace host
}  // namespace heddle
