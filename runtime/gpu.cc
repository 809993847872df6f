#include "runtime/gpu.h"

#include <algorithm>
#include <cstring>

#include "runtime/gpu_sharing.h"
#include "runtime/log.h"

namespace heddle {
namespace {

/// CU_DEVICE_ATTRIBUTE_MPS_ENABLED by its number: toolkits before 12.4 and older drivers do not know it.
constexpr auto kMpsEnabled = static_cast<CUdevice_attribute>(133);

}  // namespace

Status choose_gpu(int asked, int current, int local_rank, int visible, GpuChoice* choice) {
  if (visible < 1) return error(Code::kNotSupported, "no GPU is visible to this process");
  if (asked >= 0) {
    if (asked >= visible) {
      return error(Code::kInvalidValue,
                   "cuda_device_id %d was asked for, but this process sees GPUs 0 to %d; pass one of these", asked,
                   visible - 1);
    }
    *choice = {asked, format("GPU %d, which the attributes of init name (cuda_device_id)", asked)};
    return Status::ok();
  }
  if (current >= 0) {
    *choice = {current, format("GPU %d, the current device of the thread that calls init", current)};
    return Status::ok();
  }
  const int ordinal = local_rank % visible;
  *choice = {ordinal,
             format("GPU %d, by place %d among the PEs of this node and %d visible GPU%s; cudaSetDevice before "
                    "init chooses another",
                    ordinal, local_rank, visible, visible == 1 ? "" : "s")};
  return Status::ok();
}

std::string uuid_text(const unsigned char (&uuid)[16], bool is_mig) {
  std::string text = is_mig ? "MIG" : "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += format("%02x", uuid[i]);
  }
  return text;
}

namespace {

Status check_attribute(const cuda::Driver& driver, CUdevice device, CUdevice_attribute attribute, const char* what) {
  int value = 0;
  if (driver.DeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0) return Status::ok();
  return error(Code::kNotSupported, "GPU %d has no %s", static_cast<int>(device), what);
}

}  // namespace

Status check_gpu(const cuda::Driver& driver, CUdevice device) {
  return check_attribute(driver, device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing");
}

Status check_vmm(const cuda::Driver& driver, CUdevice device) {
  HEDDLE_RETURN_IF_ERROR(check_attribute(driver, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                         "virtual memory management (CUDA VMM)"));
  return check_attribute(driver, device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                         "memory handles as file descriptors (CUDA VMM)");
}

Status Gpu::open(const FabricRequest& request, std::shared_ptr<Gpu>* gpu) {
  const cuda::Driver* driver = nullptr;
  HEDDLE_RETURN_IF_ERROR(cuda::get_driver(&driver));
  int visible = 0;
  CUresult result = driver->DeviceGetCount(&visible);
  if (result != CUDA_SUCCESS) return cuda_error(*driver, result, "cuDeviceGetCount", "%s", "");
  CUcontext context = nullptr;
  CUdevice current = -1;
  if (driver->CtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr ||
      driver->CtxGetDevice(&current) != CUDA_SUCCESS) {
    current = -1;
  }
  GpuChoice choice;
  HEDDLE_RETURN_IF_ERROR(
      choose_gpu(request.cuda_device, static_cast<int>(current), request.local_rank, visible, &choice));

  std::shared_ptr<Gpu> fresh(new Gpu(*driver));
  result = driver->DeviceGet(&fresh->device_, choice.ordinal);
  if (result != CUDA_SUCCESS) return cuda_error(*driver, result, "cuDeviceGet", "ordinal %d", choice.ordinal);
  HEDDLE_RETURN_IF_ERROR(check_gpu(*driver, fresh->device_));
  HEDDLE_RETURN_IF_ERROR(fresh->read(visible));
  result = driver->DevicePrimaryCtxRetain(&fresh->context_, fresh->device_);
  if (result != CUDA_SUCCESS) {
    return cuda_error(*driver, result, "cuDevicePrimaryCtxRetain", "%s", fresh->name_.c_str());
  }
  log(LogLevel::kInfo, "uses %s", choice.reason.c_str());
  *gpu = std::move(fresh);
  return Status::ok();
}

Status Gpu::read(int visible) {
  char name[128] = {};
  CUresult result = driver_.DeviceGetName(name, sizeof name, device_);
  if (result != CUDA_SUCCESS) return cuda_error(driver_, result, "cuDeviceGetName", "device %d", device_);
  name_ = format("GPU %d (%s)", static_cast<int>(device_), name);
  is_mig_ = std::strstr(name, " MIG ") != nullptr;
  int mps = 0;
  const bool tells = driver_.DeviceGetAttribute(&mps, kMpsEnabled, device_) == CUDA_SUCCESS;
  has_mps_ = tells ? mps != 0 : finds_mps_daemon();
  capability_ = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  writes_words_ = attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) != 0;
  for (int ordinal = 0; ordinal < visible; ++ordinal) {
    Visible one;
    CUuuid uuid{};
    result = driver_.DeviceGet(&one.device, ordinal);
    if (result == CUDA_SUCCESS) result = driver_.DeviceGetUuid(&uuid, one.device);
    if (result != CUDA_SUCCESS) return cuda_error(driver_, result, "cuDeviceGetUuid", "ordinal %d", ordinal);
    static_assert(sizeof uuid.bytes == sizeof one.uuid);
    std::memcpy(one.uuid, uuid.bytes, sizeof one.uuid);
    if (one.device == device_) std::memcpy(uuid_, one.uuid, sizeof uuid_);
    visible_.push_back(one);
  }
  return Status::ok();
}

Gpu::~Gpu() {
  if (context_ != nullptr) (void)driver_.DevicePrimaryCtxRelease(device_);  // the process may be past the driver's end
}

int Gpu::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  return driver_.DeviceGetAttribute(&value, attribute, device_) == CUDA_SUCCESS ? value : 0;
}

void Gpu::describe(PeerIdentity* identity) const {
  std::memcpy(identity->gpu_uuid, uuid_, sizeof identity->gpu_uuid);
  identity->gpu_capability = static_cast<uint16_t>(capability_);
  identity->gpu_is_mig = is_mig_ ? 1 : 0;
  identity->gpu_has_mps = has_mps_ ? 1 : 0;
  identity->gpu_mps_percentage = static_cast<uint16_t>(mps_percentage());
}

std::vector<std::string> Gpu::unused_by(const std::vector<PeerIdentity>& peers) const {
  std::vector<std::string> unused;
  for (const Visible& one : visible_) {
    const bool used = std::any_of(peers.begin(), peers.end(), [&](const PeerIdentity& peer) {
      return std::memcmp(one.uuid, peer.gpu_uuid, sizeof one.uuid) == 0;
    });
    if (!used)
      unused.push_back(format("GPU %d (%s)", static_cast<int>(one.device), uuid_text(one.uuid, false).c_str()));
  }
  return unused;
}

const Gpu::Visible* Gpu::find(const PeerIdentity& peer) const {
  for (const Visible& one : visible_) {
    if (std::memcmp(one.uuid, peer.gpu_uuid, sizeof one.uuid) == 0) return &one;
  }
  return nullptr;
}

Reach Gpu::reach(const PeerIdentity& peer) const {
  if (peer.gpu_capability == 0) return {false, "PE has no GPU; set HEDDLE_FABRIC=host on all PEs"};
  if (std::memcmp(uuid_, peer.gpu_uuid, sizeof uuid_) == 0) return {true, "same GPU"};
  const std::string its = uuid_text(peer.gpu_uuid, peer.gpu_is_mig != 0);
  if (is_mig_ || peer.gpu_is_mig != 0) {
    return {false, its + " and " + uuid_text(uuid_, is_mig_) +
                       " cannot map each other's memory, because a MIG instance has no peers; give all PEs one "
                       "instance or whole GPUs, or set HEDDLE_FABRIC=host on all PEs"};
  }
  const Visible* const there = find(peer);
  if (there == nullptr) {
    return {false, its +
                       " is not visible to this process; do not hide GPUs of the job from each other with "
                       "CUDA_VISIBLE_DEVICES or the launcher's GPU binding: let every PE see all of the node's GPUs "
                       "and choose by cudaSetDevice"};
  }
  int can = 0;
  const CUresult result = driver_.DeviceCanAccessPeer(&can, device_, there->device);
  if (result != CUDA_SUCCESS || can == 0) {
    return {false, format("%s has no peer access to %s (GPU %d here): they share neither NVLink nor a PCIe root that "
                          "allows it; set HEDDLE_FABRIC=host on all PEs",
                          name_.c_str(), its.c_str(), static_cast<int>(there->device))};
  }
  return {true, format("peer access from %s to GPU %d", name_.c_str(), static_cast<int>(there->device))};
}

bool Gpu::has_native_atomics(const PeerIdentity& peer) const {
  const Visible* const there = find(peer);
  if (there == nullptr) return false;
  if (there->device == device_) return true;
  int has = 0;
  return driver_.DeviceGetP2PAttribute(&has, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, device_, there->device) ==
             CUDA_SUCCESS &&
         has != 0;
}

Status check_stream(const Gpu& gpu, CUstream stream) {
  const cuda::Driver& driver = gpu.driver();
  const bool is_default = stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  CUcontext context = nullptr;
  const CUresult found = is_default ? driver.CtxGetCurrent(&context) : driver.StreamGetCtx(stream, &context);
  // A failure is for the call that uses the stream to say.
  if (found != CUDA_SUCCESS || context == nullptr || context == gpu.context()) return Status::ok();
  // Another context of the same GPU sees the same memory.
  CUdevice device = -1;
  CUcontext popped = nullptr;
  if (driver.CtxPushCurrent(context) != CUDA_SUCCESS) return Status::ok();
  const CUresult asked = driver.CtxGetDevice(&device);
  (void)driver.CtxPopCurrent(&popped);
  if (asked != CUDA_SUCCESS || device == gpu.device()) return Status::ok();
  const std::string what =
      is_default ? "the current device of this thread" : format("the device of stream %p", static_cast<void*>(stream));
  return error(
      Code::kInvalidValue,
      "%s is GPU %d, but the symmetric heap and what kernels know of it are on %s: kernels and streams that use "
      "them must be of that GPU. Call cudaSetDevice(%d) before making streams and launching, or choose GPU %d "
      "by cudaSetDevice before nvshmem_init",
      what.c_str(), static_cast<int>(device), gpu.name().c_str(), static_cast<int>(gpu.device()),
      static_cast<int>(device));
}

ContextScope::ContextScope(const Gpu& gpu) : driver_(gpu.driver()) {
  CUcontext current = nullptr;
  if (driver_.CtxGetCurrent(&current) == CUDA_SUCCESS && current == gpu.context()) return;
  // Where this fails, the calls that follow do too, and say why.
  pushed_ = driver_.CtxPushCurrent(gpu.context()) == CUDA_SUCCESS;
}

ContextScope::~ContextScope() {
  CUcontext popped = nullptr;
  if (pushed_) (void)driver_.CtxPopCurrent(&popped);
}

}  // namespace heddle
