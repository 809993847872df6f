// Which fabrics there are, and making the one that the settings ask for.
#include <algorithm>
#include <thread>

#include "runtime/fabric/fabric.h"
#include "runtime/fabric/fault/fault_fabric.h"
#include "runtime/log.h"

namespace heddle {

std::vector<FabricChoice> list_fabrics(const Settings& settings) {
  return {
      {"cft", false, "needs a GPU of sm_100 or newer, CUDA 13.3+, driver R610+ and IMEX; not built into this version"},
      peer_choice(settings),
      {"host", true, "shared memory of one host (memfd)"},
      {"net", false, "no network fabric in this version"},
  };
}

namespace {

/// Says why the heap is not in GPU memory: a program with kernels is better told now than by its first kernel.
void log_host_choice(const std::vector<FabricChoice>& choices, bool asked, const FabricRequest& request) {
  std::string why = "HEDDLE_FABRIC=host asks for it";
  for (const FabricChoice& one : choices) {
    if (!asked && one.name == "peer") why = "peer cannot be used: " + one.reason;
  }
  if (request.cuda_device >= 0) {
    log(LogLevel::kWarn, "cuda_device_id %d is ignored and kernels cannot reach the heap, which is in host memory: %s",
        request.cuda_device, why.c_str());
  } else {
    log(LogLevel::kInfo, "the heap is in host memory, which kernels cannot reach: %s", why.c_str());
  }
}

}  // namespace

Status make_fabric(const Settings& settings, const FabricRequest& request, std::unique_ptr<Courier> courier,
                   std::unique_ptr<Fabric>* fabric) {
  const std::vector<FabricChoice> choices = list_fabrics(settings);
  const std::string& asked = settings.fabric;
  auto choice = choices.end();
  if (asked.empty() || asked == "auto") {
    choice = std::find_if(choices.begin(), choices.end(), [](const FabricChoice& one) { return one.usable; });
  } else {
    choice = std::find_if(choices.begin(), choices.end(), [&](const FabricChoice& one) { return one.name == asked; });
    if (choice == choices.end()) {
      std::string known = "auto";
      for (const FabricChoice& one : choices) known += ", " + one.name;
      return error(Code::kInvalidValue,
                   "HEDDLE_FABRIC=\"%s\" names no fabric; known are %s (heddle-info --fabrics says which can be used)",
                   asked.c_str(), known.c_str());
    }
    if (!choice->usable) {
      return error(Code::kNotSupported, "HEDDLE_FABRIC=\"%s\" cannot be used: %s; unset it or choose host",
                   asked.c_str(), choice->reason.c_str());
    }
  }
  const int my_pe = courier ? courier->my_pe() : 0;
  FaultPlan plan;
  HEDDLE_RETURN_IF_ERROR(FaultPlan::parse(settings.fault, my_pe, &plan));
  std::unique_ptr<Fabric> made;
  if (choice->name == "peer") {
    HEDDLE_RETURN_IF_ERROR(make_peer_fabric(settings, request, std::move(courier), &made));
  } else {
    log_host_choice(choices, choice->name == asked, request);
    made = make_host_fabric(std::move(courier));
  }
  if (!settings.fault.empty()) made = std::make_unique<FaultFabric>(std::move(made), std::move(plan));
  *fabric = std::move(made);
  return Status::ok();
}

namespace {

const char* words(GpuMemory memory) {
  switch (memory) {
    case GpuMemory::kDescriptors:
      return "CUDA VMM memory, shared by file descriptors";
    case GpuMemory::kFabricHandles:
      return "CUDA VMM memory, shared by fabric handles";
    case GpuMemory::kClassic:
      return "cudaMalloc memory, shared by CUDA IPC";
  }
  return "memory of a kind that this version does not know";
}

}  // namespace

Status judge_choices(const std::vector<std::string>& names, const std::vector<PeerIdentity>& identities) {
  for (size_t pe = 1; pe < names.size(); ++pe) {
    if (names[pe] == names[0]) continue;
    const auto has_gpu = [&](size_t one) { return identities[one].gpu_capability != 0; };
    if (has_gpu(pe) != has_gpu(0)) {
      return error(Code::kNotSupported,
                   "PE %zu uses no GPU (fabric %s) but PE %zu uses one (fabric %s); set "
                   "HEDDLE_FABRIC=host on all PEs, or give every PE a GPU",
                   has_gpu(0) ? pe : 0, names[has_gpu(0) ? pe : 0].c_str(), has_gpu(0) ? 0 : pe,
                   names[has_gpu(0) ? 0 : pe].c_str());
    }
    return error(Code::kNotSupported,
                 "PE 0 uses the fabric %s but PE %zu uses %s; set the same HEDDLE_FABRIC and "
                 "HEDDLE_FAULT on all PEs",
                 names[0].c_str(), pe, names[pe].c_str());
  }
  for (size_t pe = 1; pe < identities.size(); ++pe) {
    if (identities[pe].gpu_memory == identities[0].gpu_memory) continue;
    return error(Code::kNotSupported,
                 "the heap of PE 0 is %s, but that of PE %zu is %s; set the same NVSHMEM_DISABLE_CUDA_VMM and "
                 "NVSHMEM_CUMEM_HANDLE_TYPE on all PEs (where a GPU has no CUDA VMM: NVSHMEM_DISABLE_CUDA_VMM=1)",
                 words(identities[0].gpu_memory), pe, words(identities[pe].gpu_memory));
  }
  return Status::ok();
}

#ifndef HEDDLE_HAVE_CUDA
FabricChoice peer_choice(const Settings& /*settings*/) {
  return {"peer", false, "this library was built without a CUDA toolkit; build it with one (HEDDLE_CUDA=ON)"};
}

Status make_peer_fabric(const Settings& settings, const FabricRequest&, std::unique_ptr<Courier>,
                        std::unique_ptr<Fabric>*) {
  return error(Code::kNotSupported, "%s", peer_choice(settings).reason.c_str());
}
#endif

Status Fabric::adopt(const void* address, uint64_t /*bytes*/, MemoryId* /*memory*/, uint64_t* /*taken*/) {
  return error(Code::kNotSupported, "the %s fabric binds only memory that it made, not the program's at %p", name(),
               address);
}

Status Fabric::put_strided(EndpointId id, uint64_t offset, const void* source, int64_t destination_stride,
                           int64_t source_stride, size_t count, size_t element) {
  const auto* from = static_cast<const std::byte*>(source);
  for (size_t i = 0; i < count; ++i) {
    HEDDLE_RETURN_IF_ERROR(put(id, offset + i * static_cast<uint64_t>(destination_stride) * element,
                               from + i * static_cast<size_t>(source_stride) * element, element));
  }
  return Status::ok();
}

Status Fabric::get_strided(EndpointId id, uint64_t offset, void* destination, int64_t destination_stride,
                           int64_t source_stride, size_t count, size_t element) {
  auto* to = static_cast<std::byte*>(destination);
  for (size_t i = 0; i < count; ++i) {
    HEDDLE_RETURN_IF_ERROR(get(id, offset + i * static_cast<uint64_t>(source_stride) * element,
                               to + i * static_cast<size_t>(destination_stride) * element, element));
  }
  return Status::ok();
}

Status await_ready(Fabric& fabric, EndpointId id, uint32_t count, Deadline deadline, const std::string& what,
                   const std::atomic<uint32_t>* poison) {
  constexpr std::chrono::microseconds kShortest{10}, kLongest{1000};
  for (auto pause = kShortest;; pause = std::min(pause * 2, kLongest)) {
    bool ready = false;
    HEDDLE_RETURN_IF_ERROR(fabric.query(id, count, &ready).in(what));
    if (ready) return Status::ok();
    // acquire: whoever sees the word may read the text of the loss
    if (poison != nullptr && poison->load(std::memory_order_acquire) != 0) {
      return error(Code::kPeerLost, "%s: PE %u was lost meanwhile", what.c_str(),
                   poison->load(std::memory_order_relaxed) - 1);  // relaxed: the first loss stays
    }
    if (deadline.passed()) break;
    std::this_thread::sleep_for(pause);
  }
  std::string missing;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string pending = fabric.pending(id + i);
    if (!pending.empty()) missing += (missing.empty() ? "" : "; ") + pending;
  }
  return error(Code::kTimeout,
               "%s: endpoints %u to %u were not ready in time (%s); raise HEDDLE_TIMEOUT or HEDDLE_WAIT_TIMEOUT if the "
               "PEs are only slow",
               what.c_str(), id, id + count - 1, missing.empty() ? "the fabric does not say why" : missing.c_str());
}

}  // namespace heddle
