#include "runtime/fabric/peer/peer_fabric.h"

#include <utility>

#include "runtime/fabric/host/host_fabric.h"
#include "runtime/fabric/peer/peer_memory.h"
#include "runtime/log.h"

namespace heddle {

FabricChoice peer_choice() {
  const cuda::Driver* driver = nullptr;
  Status status = cuda::get_driver(&driver);
  CUdevice device = 0;
  if (status.is_ok() && driver->DeviceGet(&device, 0) == CUDA_SUCCESS) status = check_gpu(*driver, device);
  if (!status.is_ok()) return {"peer", false, status.text()};
  int count = 0;
  (void)driver->DeviceGetCount(&count);  // get_driver has seen at least one
  return {"peer", true, format("%d GPU%s with CUDA virtual memory management", count, count == 1 ? "" : "s")};
}

Status make_peer_fabric(const Settings& settings, const FabricRequest& request, std::unique_ptr<Courier> courier,
                        std::unique_ptr<Fabric>* fabric) {
  return peer::PeerFabric::make(settings, request, std::move(courier), fabric).in("the peer fabric");
}

namespace peer {

Status PeerFabric::make(const Settings& settings, const FabricRequest& request, std::unique_ptr<Courier> courier,
                        std::unique_ptr<Fabric>* fabric) {
  if (settings.disable_cuda_vmm && (courier == nullptr || courier->my_pe() == 0)) {
    log(LogLevel::kWarn, "NVSHMEM_DISABLE_CUDA_VMM has no effect: heaps in GPU memory are made with CUDA VMM always");
  }
  std::shared_ptr<Gpu> gpu;
  HEDDLE_RETURN_IF_ERROR(Gpu::open(request, &gpu));
  std::unique_ptr<PeerMemory> memory;
  HEDDLE_RETURN_IF_ERROR(PeerMemory::open(gpu, &memory));
  std::unique_ptr<PeerFabric> fresh(
      new PeerFabric(std::move(courier), std::move(memory), std::move(gpu), settings.disable_p2p));
  HEDDLE_RETURN_IF_ERROR(fresh->open());
  *fabric = std::move(fresh);
  return Status::ok();
}

PeerFabric::PeerFabric(std::unique_ptr<Courier> courier, std::unique_ptr<mapped::MemoryProvider> provider,
                       std::shared_ptr<Gpu> gpu, bool keeps_to_itself)
    : MappedFabric("peer", std::move(courier), std::move(provider)),
      gpu_(std::move(gpu)),
      driver_(gpu_->driver()),
      keeps_to_itself_(keeps_to_itself) {}

PeerFabric::~PeerFabric() {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  // Failures are dropped: this is teardown, and a context that is broken fails at everything.
  if (stream_ != nullptr) {
    (void)driver_.StreamSynchronize(stream_);
    (void)driver_.StreamDestroy(stream_);
  }
  if (event_ != nullptr) (void)driver_.EventDestroy(event_);
  if (mailbox_ != nullptr) (void)driver_.MemFreeHost(mailbox_);
}

FabricCapabilities PeerFabric::capabilities() const {
  FabricCapabilities capabilities;
  capabilities.mapped = true;
  capabilities.native_atomics = true;
  capabilities.counted_puts = true;
  capabilities.device_initiated = true;
  capabilities.device_memory = true;
  capabilities.memory_bytes = memory_bytes_;
  EndpointLimits bounds;
  if (limits({}, &bounds).is_ok()) capabilities.granularity = bounds.bind_alignment;
  return capabilities;
}

void PeerFabric::describe(PeerIdentity* self) const {
  gpu_->describe(self);
  self->gpu_keeps_to_itself = keeps_to_itself_ ? 1 : 0;
}

Reach PeerFabric::reach(const PeerIdentity& self, const PeerIdentity& peer) const {
  const Reach host = host::same_host(self, peer, name());
  if (!host.reached) return host;
  if (self.pid != peer.pid && (self.gpu_keeps_to_itself != 0 || peer.gpu_keeps_to_itself != 0)) {
    return {false, format("NVSHMEM_DISABLE_P2P is set %s, and no other fabric reaches device memory; unset it, or set "
                          "HEDDLE_FABRIC=host on all PEs",
                          self.gpu_keeps_to_itself != 0 ? "here" : "on that PE")};
  }
  return gpu_->reach(peer);
}

Status PeerFabric::reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) {
  HEDDLE_RETURN_IF_ERROR(MappedFabric::reserve_addresses(bytes, alignment, base));
  // relaxed: set before anything of the range is given to users
  reserved_begin_.store(*base, std::memory_order_relaxed);
  reserved_end_.store(*base + bytes, std::memory_order_relaxed);
  return Status::ok();
}

}  // namespace peer
}  // namespace heddle
