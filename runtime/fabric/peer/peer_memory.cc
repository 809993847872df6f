#include "runtime/fabric/peer/peer_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <filesystem>
#include <utility>

namespace heddle::peer {
namespace {

// Names that cuda.h has from CUDA 12.3 and 12.4 on.
constexpr auto kFabricHandle = static_cast<CUmemAllocationHandleType>(8);       // CU_MEM_HANDLE_TYPE_FABRIC
constexpr auto kFabricHandlesSupported = static_cast<CUdevice_attribute>(128);  // ..._HANDLE_TYPE_FABRIC_SUPPORTED
constexpr size_t kFabricHandleBytes = 64;                                       // sizeof(CUmemFabricHandle)
static_assert(kFabricHandleBytes <= mapped::Ticket::kBytes);
constexpr const char* kImexChannels = "/dev/nvidia-caps-imex-channels";
constexpr const char* kFabricHandlesNeed =
    "fabric handles need GPUs joined by NVSwitch and IMEX: the service nvidia-imex, and a channel in "
    "/dev/nvidia-caps-imex-channels that this user may open";

CUmemAllocationProp properties_of(const Gpu& gpu, CUmemAllocationHandleType type) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = type;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = static_cast<int>(gpu.device());
  return properties;
}

Status refuse_fabric_handles(const Gpu& gpu, CUresult result, const char* call) {
  const Status failed = cuda_error(gpu.driver(), result, call, "%s, by a fabric handle", gpu.name().c_str());
  return error(Code::kNotSupported, "%s; %s", failed.text().c_str(), kFabricHandlesNeed);
}

}  // namespace

Status find_imex_channel() {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator(kImexChannels, failed)) {
    if (::access(entry.path().c_str(), R_OK | W_OK) == 0) return Status::ok();
  }
  return error(Code::kNotSupported, "not tried, as this user can open no channel in %s; %s", kImexChannels,
               kFabricHandlesNeed);
}

Status try_fabric_handles(const Gpu& gpu) {
  if (gpu.attribute(kFabricHandlesSupported) == 0) {
    return error(Code::kNotSupported,
                 "%s: CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED is 0, for the GPU or its driver has none; %s",
                 gpu.name().c_str(), kFabricHandlesNeed);
  }
  const cuda::Driver& driver = gpu.driver();
  const ContextScope scope(gpu);
  const RelaxedCapture relaxed(gpu);
  const CUmemAllocationProp properties = properties_of(gpu, kFabricHandle);
  size_t bytes = 0;
  CUresult result = driver.MemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return refuse_fabric_handles(gpu, result, "cuMemGetAllocationGranularity");
  CUmemGenericAllocationHandle made = 0, imported = 0;
  result = driver.MemCreate(&made, bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return refuse_fabric_handles(gpu, result, "cuMemCreate");
  unsigned char handle[kFabricHandleBytes] = {};
  const char* call = "cuMemExportToShareableHandle";
  result = driver.MemExportToShareableHandle(handle, made, kFabricHandle, 0);
  if (result == CUDA_SUCCESS) {
    call = "cuMemImportFromShareableHandle";
    result = driver.MemImportFromShareableHandle(&imported, handle, kFabricHandle);
  }
  if (result == CUDA_SUCCESS) (void)driver.MemRelease(imported);
  (void)driver.MemRelease(made);  // fails only after the driver's end
  return result == CUDA_SUCCESS ? Status::ok() : refuse_fabric_handles(gpu, result, call);
}

Status out_of_memory(const Gpu& gpu, const char* call, uint64_t bytes, const char* remedy) {
  size_t free_bytes = 0, all_bytes = 0;
  if (gpu.driver().MemGetInfo(&free_bytes, &all_bytes) != CUDA_SUCCESS) free_bytes = all_bytes = 0;
  return error(Code::kOutOfMemory,
               "asked %" PRIu64 " bytes of %s, free are %zu of %zu (%s: CUDA_ERROR_OUT_OF_MEMORY); %s", bytes,
               gpu.name().c_str(), free_bytes, all_bytes, call, remedy);
}

PeerMemory::PeerMemory(std::shared_ptr<Gpu> gpu, bool fabric_handles)
    : gpu_(std::move(gpu)),
      driver_(gpu_->driver()),
      properties_(properties_of(*gpu_, fabric_handles ? kFabricHandle : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
  if (gpu_->attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0) {
    properties_.allocFlags.gpuDirectRDMACapable = 1;
  }
}

Status PeerMemory::open(std::shared_ptr<Gpu> gpu, bool fabric_handles, std::unique_ptr<PeerMemory>* memory) {
  std::unique_ptr<PeerMemory> fresh(new PeerMemory(std::move(gpu), fabric_handles));
  const ContextScope scope(*fresh->gpu_);
  size_t bytes = 0;
  const CUresult result =
      fresh->driver_.MemGetAllocationGranularity(&bytes, &fresh->properties_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (result != CUDA_SUCCESS) {
    return cuda_error(fresh->driver_, result, "cuMemGetAllocationGranularity", "%s", fresh->gpu_->name().c_str());
  }
  if (bytes == 0 || (bytes & (bytes - 1)) != 0) {
    return error(Code::kNotSupported, "%s has an allocation granularity of %zu bytes, which is no power of two",
                 fresh->gpu_->name().c_str(), bytes);
  }
  fresh->granularity_ = bytes;
  *memory = std::move(fresh);
  return Status::ok();
}

Status PeerMemory::reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  CUdeviceptr address = 0;
  const uint64_t aligned = std::max(alignment, granularity_);
  const CUresult result = driver_.MemAddressReserve(&address, bytes, aligned, 0, 0);
  if (result != CUDA_SUCCESS) {
    const Status status = cuda_error(driver_, result, "cuMemAddressReserve",
                                     "%" PRIu64 " bytes of addresses, alignment %" PRIu64, bytes, aligned);
    return Status(Code::kOutOfMemory, status.text());
  }
  *base = reinterpret_cast<std::byte*>(address);
  return Status::ok();
}

void PeerMemory::release_addresses(std::byte* base, uint64_t bytes) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  (void)driver_.MemAddressFree(cuda::device_pointer(base), bytes);  // fails only where something is still mapped
}

Status PeerMemory::allocate(uint64_t bytes, Handle* handle) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  CUmemGenericAllocationHandle made = 0;
  const CUresult result = driver_.MemCreate(&made, bytes, &properties_, 0);
  if (result == CUDA_SUCCESS) {
    *handle = made;
    return Status::ok();
  }
  if (result != CUDA_ERROR_OUT_OF_MEMORY) {
    return cuda_error(driver_, result, "cuMemCreate", "%" PRIu64 " bytes of %s, as %s%s", bytes, gpu_->name().c_str(),
                      properties_.requestedHandleTypes == kFabricHandle ? "fabric handles" : "file descriptors",
                      properties_.allocFlags.gpuDirectRDMACapable != 0 ? ", for GPUDirect" : "");
  }
  return out_of_memory(*gpu_, "cuMemCreate", bytes, "ask for less, free some, or run fewer processes on this GPU");
}

Status PeerMemory::adopt(const void* address, uint64_t bytes, Handle* handle, uint64_t* taken) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  CUmemGenericAllocationHandle found = 0;
  const CUresult result = driver_.MemRetainAllocationHandle(&found, const_cast<void*>(address));
  if (result != CUDA_SUCCESS) {
    const Status failed = cuda_error(driver_, result, "cuMemRetainAllocationHandle", "%p", address);
    return error(Code::kInvalidValue,
                 "%p is not CUDA VMM memory (%s); memory of cuMemCreate that cuMemMap has mapped there is needed, not "
                 "that of cudaMalloc, of pools, managed or of the host",
                 address, failed.text().c_str());
  }
  uint64_t mapped = 0;
  const Status usable = check_adopted(address, found, &mapped);
  if (!usable.is_ok()) {
    (void)driver_.MemRelease(found);  // fails only after the driver's end
    return usable;
  }
  *handle = found;
  *taken = std::min(bytes, mapped);
  return Status::ok();
}

/// Whether peers can map the program's allocation as they map own ones, and how much of it is mapped at `address`.
Status PeerMemory::check_adopted(const void* address, Handle handle, uint64_t* mapped) {
  CUmemAllocationProp properties{};
  CUresult result = driver_.MemGetAllocationPropertiesFromHandle(&properties, handle);
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver_, result, "cuMemGetAllocationPropertiesFromHandle", "memory at %p", address);
  }
  const CUmemLocation& location = properties.location;
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return error(Code::kInvalidValue, "the memory at %p is not a GPU's (CUmemLocationType %d); make it on %s", address,
                 static_cast<int>(location.type), gpu_->name().c_str());
  }
  if (location.id != static_cast<int>(gpu_->device())) {
    return error(Code::kInvalidValue,
                 "the memory at %p is on GPU %d, the heap of this PE on %s; make it with location.id = %d, or make GPU "
                 "%d current before nvshmem_init",
                 address, location.id, gpu_->name().c_str(), static_cast<int>(gpu_->device()), location.id);
  }
  const auto wanted = properties_.requestedHandleTypes;
  if ((static_cast<unsigned>(properties.requestedHandleTypes) & static_cast<unsigned>(wanted)) == 0) {
    return error(
        Code::kInvalidValue,
        "the memory at %p cannot be exported as this job's heaps are (its handle types: 0x%x); give cuMemCreate "
        "CUmemAllocationProp::requestedHandleTypes = %s",
        address, static_cast<unsigned>(properties.requestedHandleTypes),
        wanted == kFabricHandle ? "CU_MEM_HANDLE_TYPE_FABRIC" : "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
  }
  size_t bytes = 0;
  CUdeviceptr begin = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR};
  void* values[] = {&bytes, &begin};
  result = driver_.PointerGetAttributes(2, attributes, values, cuda::device_pointer(address));
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver_, result, "cuPointerGetAttributes", "where the memory at %p is mapped", address);
  }
  if (begin != cuda::device_pointer(address) || bytes == 0 || bytes % granularity_ != 0) {
    return error(
        Code::kInvalidValue,
        "the allocation at %p is mapped at [0x%llx, +%zu bytes); register it from the start of its mapping, of "
        "a size that is a multiple of %" PRIu64,
        address, static_cast<unsigned long long>(begin), bytes, granularity_);
  }
  // What no importer could be given must not be bound: it would cost the importers of the heap.
  mapped::Ticket trial;
  HEDDLE_RETURN_IF_ERROR(export_memory(handle, &trial));
  *mapped = bytes;
  return Status::ok();
}

void PeerMemory::release(Handle handle) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  (void)driver_.MemRelease(handle);  // fails only after the driver's end
}

Status PeerMemory::export_memory(Handle handle, mapped::Ticket* ticket) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  if (properties_.requestedHandleTypes == kFabricHandle) {
    const CUresult result = driver_.MemExportToShareableHandle(ticket->bytes, handle, kFabricHandle, 0);
    if (result != CUDA_SUCCESS) return refuse_fabric_handles(*gpu_, result, "cuMemExportToShareableHandle");
    ticket->has_bytes = true;
    return Status::ok();
  }
  int made = -1;
  const CUresult result =
      driver_.MemExportToShareableHandle(&made, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver_, result, "cuMemExportToShareableHandle",
                      "a file descriptor for memory of %s; is the "
                      "limit of open files (ulimit -n) reached?",
                      gpu_->name().c_str());
  }
  ticket->fd = OwnedFd(made);
  return Status::ok();
}

Status PeerMemory::map(std::byte** address, uint64_t bytes, Handle handle, uint64_t memory_offset) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  const CUdeviceptr at = cuda::device_pointer(*address);
  CUresult result = driver_.MemMap(at, bytes, memory_offset, handle, 0);
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver_, result, "cuMemMap", "%" PRIu64 " bytes at %p, offset %" PRIu64 " in the allocation, %s",
                      bytes, static_cast<void*>(*address), memory_offset, gpu_->name().c_str());
  }
  CUmemAccessDesc access{};
  access.location = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = static_cast<int>(gpu_->device());
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  result = driver_.MemSetAccess(at, bytes, &access, 1);
  if (result == CUDA_SUCCESS) return Status::ok();
  (void)driver_.MemUnmap(at, bytes);  // the first failure is the one to tell
  return cuda_error(driver_, result, "cuMemSetAccess", "%" PRIu64 " bytes at %p, read and write for %s", bytes,
                    static_cast<void*>(*address), gpu_->name().c_str());
}

Status PeerMemory::map_imported(std::byte** address, uint64_t bytes, const mapped::Ticket& ticket,
                                uint64_t memory_offset) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  CUmemGenericAllocationHandle handle = 0;
  if (ticket.has_bytes) {
    unsigned char bytes_of_handle[kFabricHandleBytes];  // the driver takes them as not constant
    std::memcpy(bytes_of_handle, ticket.bytes, sizeof bytes_of_handle);
    const CUresult result = driver_.MemImportFromShareableHandle(&handle, bytes_of_handle, kFabricHandle);
    if (result != CUDA_SUCCESS) return refuse_fabric_handles(*gpu_, result, "cuMemImportFromShareableHandle");
  } else {
    void* const descriptor = reinterpret_cast<void*>(static_cast<uintptr_t>(ticket.fd.get()));
    const CUresult result =
        driver_.MemImportFromShareableHandle(&handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS) {
      return cuda_error(driver_, result, "cuMemImportFromShareableHandle", "descriptor %d, into %s", ticket.fd.get(),
                        gpu_->name().c_str());
    }
  }
  const Status mapped = map(address, bytes, handle, memory_offset);
  (void)driver_.MemRelease(handle);  // the mapping keeps the memory
  return mapped;
}

Status PeerMemory::unmap(std::byte* address, uint64_t bytes) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  const CUresult result = driver_.MemUnmap(cuda::device_pointer(address), bytes);
  if (result == CUDA_SUCCESS) return Status::ok();
  return cuda_error(driver_, result, "cuMemUnmap", "%" PRIu64 " bytes at %p on %s", bytes, static_cast<void*>(address),
                    gpu_->name().c_str());
}

}  // namespace heddle::peer
