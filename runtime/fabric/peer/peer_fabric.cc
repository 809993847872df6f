#include "runtime/fabric/peer/peer_fabric.h"

#include <strings.h>

#include <utility>

#include "runtime/fabric/host/host_fabric.h"
#include "runtime/fabric/peer/classic_memory.h"
#include "runtime/fabric/peer/peer_memory.h"
#include "runtime/log.h"

namespace heddle {

FabricChoice peer_choice(const Settings& settings) {
  const cuda::Driver* driver = nullptr;
  Status status = cuda::get_driver(&driver);
  CUdevice device = 0;
  if (status.is_ok() && driver->DeviceGet(&device, 0) == CUDA_SUCCESS) status = check_gpu(*driver, device);
  if (!status.is_ok()) return {"peer", false, status.text()};
  int count = 0;
  (void)driver->DeviceGetCount(&count);  // get_driver has seen at least one
  const Status vmm = check_vmm(*driver, device);
  const std::string gpus = format("%d GPU%s", count, count == 1 ? "" : "s");
  if (settings.disable_cuda_vmm) return {"peer", true, gpus + ", by cudaMalloc (NVSHMEM_DISABLE_CUDA_VMM is set)"};
  if (!vmm.is_ok()) return {"peer", true, gpus + ", by cudaMalloc: " + vmm.text()};
  return {"peer", true, gpus + " with CUDA virtual memory management"};
}

Status make_peer_fabric(const Settings& settings, const FabricRequest& request, std::unique_ptr<Courier> courier,
                        std::unique_ptr<Fabric>* fabric) {
  return peer::PeerFabric::make(settings, request, std::move(courier), fabric).in("the peer fabric");
}

namespace peer {

Status PeerFabric::make(const Settings& settings, const FabricRequest& request, std::unique_ptr<Courier> courier,
                        std::unique_ptr<Fabric>* fabric) {
  std::shared_ptr<Gpu> gpu;
  HEDDLE_RETURN_IF_ERROR(Gpu::open(request, &gpu));
  Plan plan;
  HEDDLE_RETURN_IF_ERROR(choose_memory(settings, *gpu, &plan));
  for (const std::string& remark : plan.remarks) log(LogLevel::kInfo, "%s", remark.c_str());
  std::unique_ptr<mapped::MemoryProvider> provider;
  if (plan.memory == GpuMemory::kClassic) {
    provider = std::make_unique<ClassicMemory>(gpu);
  } else {
    std::unique_ptr<PeerMemory> memory;
    HEDDLE_RETURN_IF_ERROR(PeerMemory::open(gpu, plan.memory == GpuMemory::kFabricHandles, &memory));
    provider = std::move(memory);
  }
  std::unique_ptr<PeerFabric> fresh(new PeerFabric(std::move(courier), std::move(provider), std::move(gpu), plan));
  HEDDLE_RETURN_IF_ERROR(fresh->open());
  *fabric = std::move(fresh);
  return Status::ok();
}

/// File descriptors where all PEs are on one host, as they must be today; fabric handles where they are asked for.
Status PeerFabric::choose_memory(const Settings& settings, const Gpu& gpu, Plan* plan) {
  plan->keeps_to_itself = settings.disable_p2p;
  const char* const asked = settings.cumem_handle_type.c_str();
  const bool wants_fabric = strcasecmp(asked, "FABRIC") == 0, takes_any = strcasecmp(asked, "ANY") == 0;
  const Status vmm = check_vmm(gpu.driver(), gpu.device());
  if (settings.disable_cuda_vmm || !vmm.is_ok()) {
    const std::string why = settings.disable_cuda_vmm ? "NVSHMEM_DISABLE_CUDA_VMM is set" : vmm.text();
    if (wants_fabric) {
      return error(Code::kNotSupported, "NVSHMEM_CUMEM_HANDLE_TYPE=FABRIC needs CUDA VMM, but %s; unset one of them",
                   why.c_str());
    }
    plan->memory = GpuMemory::kClassic;
    plan->remarks.push_back("GPU memory by cudaMalloc, shared by CUDA IPC: " + why);
    return Status::ok();
  }
  Status fabric = wants_fabric || takes_any ? Status::ok() : find_imex_channel();
  if (fabric.is_ok()) fabric = try_fabric_handles(gpu);
  if (wants_fabric && !fabric.is_ok()) {
    return fabric.in("NVSHMEM_CUMEM_HANDLE_TYPE=FABRIC cannot be followed (unset it to use file descriptors)");
  }
  if (wants_fabric) plan->memory = GpuMemory::kFabricHandles;
  plan->remarks.push_back(wants_fabric ? "GPU memory by CUDA VMM, shared by fabric handles"
                                       : "GPU memory by CUDA VMM, shared by file descriptors");
  plan->remarks.push_back(fabric.is_ok() ? "fabric handles work here" : "no fabric handles: " + fabric.text());
  return Status::ok();
}

PeerFabric::PeerFabric(std::unique_ptr<Courier> courier, std::unique_ptr<mapped::MemoryProvider> provider,
                       std::shared_ptr<Gpu> gpu, const Plan& plan)
    : MappedFabric("peer", std::move(courier), std::move(provider)),
      gpu_(std::move(gpu)),
      driver_(gpu_->driver()),
      plan_(plan) {}

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
  capabilities.whole_endpoints = plan_.memory == GpuMemory::kClassic;
  capabilities.device_memory = true;
  capabilities.adopts_memory = plan_.memory != GpuMemory::kClassic;
  capabilities.memory_bytes = memory_bytes_;
  EndpointLimits bounds;
  if (limits({}, &bounds).is_ok()) capabilities.granularity = bounds.bind_alignment;
  return capabilities;
}

std::vector<std::string> PeerFabric::remarks() const { return plan_.remarks; }

void PeerFabric::describe(PeerIdentity* self) const {
  gpu_->describe(self);
  self->gpu_keeps_to_itself = plan_.keeps_to_itself ? 1 : 0;
  self->gpu_memory = plan_.memory;
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
  note_reserved(*base, bytes);
  return Status::ok();
}

Status PeerFabric::allocate(uint64_t bytes, MemoryId* memory) {
  HEDDLE_RETURN_IF_ERROR(MappedFabric::allocate(bytes, memory));
  if (std::byte* const at = address(*memory); at != nullptr) note_reserved(at, bytes);
  return Status::ok();
}

void PeerFabric::note_reserved(std::byte* begin, uint64_t bytes) {
  // relaxed: set before anything of the range is given to users
  reserved_begin_.store(begin, std::memory_order_relaxed);
  reserved_end_.store(begin + bytes, std::memory_order_relaxed);
}

}  // namespace peer
}  // namespace heddle
