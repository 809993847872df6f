#include "runtime/fabric/peer/peer_memory.h"

#include <algorithm>
#include <cinttypes>
#include <utility>

namespace heddle::peer {

PeerMemory::PeerMemory(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)), driver_(gpu_->driver()) {
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties_.location.id = static_cast<int>(gpu_->device());
  if (gpu_->attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0) {
    properties_.allocFlags.gpuDirectRDMACapable = 1;
  }
}

Status PeerMemory::open(std::shared_ptr<Gpu> gpu, std::unique_ptr<PeerMemory>* memory) {
  std::unique_ptr<PeerMemory> fresh(new PeerMemory(std::move(gpu)));
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
    return cuda_error(driver_, result, "cuMemCreate", "%" PRIu64 " bytes of %s, as file descriptors%s", bytes,
                      gpu_->name().c_str(), properties_.allocFlags.gpuDirectRDMACapable != 0 ? ", for GPUDirect" : "");
  }
  size_t free_bytes = 0, all_bytes = 0;
  if (driver_.MemGetInfo(&free_bytes, &all_bytes) != CUDA_SUCCESS) free_bytes = all_bytes = 0;
  return error(Code::kOutOfMemory,
               "asked %" PRIu64
               " bytes of %s, free are %zu of %zu (cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY); ask for "
               "less, free some, or run fewer processes on this GPU",
               bytes, gpu_->name().c_str(), free_bytes, all_bytes);
}

void PeerMemory::release(Handle handle) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  (void)driver_.MemRelease(handle);  // fails only after the driver's end
}

Status PeerMemory::export_memory(Handle handle, OwnedFd* fd) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  int made = -1;
  const CUresult result =
      driver_.MemExportToShareableHandle(&made, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver_, result, "cuMemExportToShareableHandle",
                      "a file descriptor for memory of %s; is the "
                      "limit of open files (ulimit -n) reached?",
                      gpu_->name().c_str());
  }
  *fd = OwnedFd(made);
  return Status::ok();
}

Status PeerMemory::map(std::byte* address, uint64_t bytes, Handle handle, uint64_t memory_offset) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  const CUdeviceptr at = cuda::device_pointer(address);
  CUresult result = driver_.MemMap(at, bytes, memory_offset, handle, 0);
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver_, result, "cuMemMap", "%" PRIu64 " bytes at %p, offset %" PRIu64 " in the allocation, %s",
                      bytes, static_cast<void*>(address), memory_offset, gpu_->name().c_str());
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
                    static_cast<void*>(address), gpu_->name().c_str());
}

Status PeerMemory::map_imported(std::byte* address, uint64_t bytes, const OwnedFd& fd, uint64_t memory_offset) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  CUmemGenericAllocationHandle handle = 0;
  void* const descriptor = reinterpret_cast<void*>(static_cast<uintptr_t>(fd.get()));
  const CUresult result =
      driver_.MemImportFromShareableHandle(&handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver_, result, "cuMemImportFromShareableHandle", "descriptor %d, into %s", fd.get(),
                      gpu_->name().c_str());
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
