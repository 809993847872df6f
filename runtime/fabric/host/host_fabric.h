// The host fabric: endpoints of one host's processes on memfd and shared mappings. Data operations are in host_data.cc.
#pragma once

#include <memory>

#include "runtime/fabric/mapped/mapped_fabric.h"

namespace heddle::host {

class HostFabric final : public mapped::MappedFabric {
 public:
  /// `courier` may be null: then this process is PE 0 and imports its own endpoints only.
  explicit HostFabric(std::unique_ptr<Courier> courier);

  FabricCapabilities capabilities() const override;
  Reach reach(const PeerIdentity& self, const PeerIdentity& peer) const override;

  Status put(EndpointId id, uint64_t offset, const void* source, size_t bytes) override;
  Status get(EndpointId id, uint64_t offset, void* destination, size_t bytes) override;
  Status atomic(AtomicOp op, AtomicType type, EndpointId id, uint64_t offset, uint64_t operand, uint64_t compare,
                uint64_t* result) override;
  Status put_signal(EndpointId id, uint64_t offset, const void* source, size_t bytes, uint64_t signal_offset,
                    uint64_t value, SignalOp op) override;
  Status signal(EndpointId id, uint64_t offset, uint64_t value, SignalOp op) override;
  Status put_counted(EndpointId id, uint64_t offset, const void* source, size_t bytes,
                     uint64_t counter_offset) override;
  Status clear(EndpointId id, uint64_t offset, uint64_t bytes) override;
  Status fence() override;
  Status quiet() override;
};

/// Why processes of one host cannot share memory with each other, judged by boot id, node and user; or that they can.
Reach same_host(const PeerIdentity& self, const PeerIdentity& peer, const char* fabric);

}  // namespace heddle::host
