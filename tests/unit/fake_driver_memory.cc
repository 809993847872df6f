// Memory of the CUDA driver in host memory: VMM, cudaMalloc with CUDA IPC, pinned memory. Whatever can be mapped twice
// is a memfd, so that an import lies at another address than what it names.
#include "tests/unit/fake_driver.h"

namespace heddle::test {
namespace {

void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }

constexpr auto kFabricHandle = static_cast<CUmemAllocationHandleType>(8);

/// `bytes` of memory with something in it, as fresh memory of a GPU has; -1 without.
int make_memory(size_t bytes) {
  const int fd = memfd_create("fake", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) return -1;
  const std::vector<char> junk(std::min<size_t>(bytes, 64 << 10), 0x5a);
  return pwrite(fd, junk.data(), junk.size(), 0) == static_cast<ssize_t>(junk.size()) ? fd : -1;
}

}  // namespace

// Functions without captures, as in the constructor.
void FakeCuda::add_memory() {
  cuda::Driver& d = driver_;
  d.MemGetInfo = [](size_t* free_bytes, size_t* all) {
    *free_bytes = the().traits.free_bytes;
    *all = uint64_t{8} << 30;
    return the().check("MemGetInfo");
  };
  d.MemGetAllocationGranularity = [](size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
    return *bytes = kGranularity, CUDA_SUCCESS;
  };
  d.MemCreate = [](CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
                   unsigned long long) {
    const bool fabric = prop->requestedHandleTypes == kFabricHandle;
    const bool is_known = fabric || prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
                          prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE;
    const char* const call = fabric ? "MemCreate of fabric" : "MemCreate";
    if (const CUresult r = the().check_free(call); r != CUDA_SUCCESS) return r;
    if (fabric && !the().traits.fabric_attribute) return CUDA_ERROR_NOT_PERMITTED;
    if (bytes == 0 || bytes % kGranularity != 0 || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_known) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes > the().traits.free_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    const int fd = make_memory(bytes);
    if (fd < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::lock_guard<std::mutex> lock(the().mutex_);
    *handle = the().add_handle(fd, *prop);
    close(fd);
    return *handle != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  };
  // Handles for the same memory have values of their own here: what one owner releases twice is found.
  d.MemRetainAllocationHandle = [](CUmemGenericAllocationHandle* handle, void* at) {
    const std::lock_guard<std::mutex> lock(the().mutex_);
    const auto address = reinterpret_cast<uintptr_t>(at);
    if (!inside(the().mappings_, address)) return CUDA_ERROR_INVALID_VALUE;
    const Allocation& mapped = std::prev(the().mapped_.upper_bound(address))->second;
    *handle = the().add_handle(mapped.fd, mapped.properties);
    return *handle != 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  };
  d.MemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
    const std::lock_guard<std::mutex> lock(the().mutex_);
    const auto found = the().handles_.find(handle);
    if (found == the().handles_.end()) return CUDA_ERROR_INVALID_VALUE;
    *properties = found->second.properties;
    return CUDA_SUCCESS;
  };
  d.MemRelease = [](CUmemGenericAllocationHandle handle) {
    const std::lock_guard<std::mutex> lock(the().mutex_);
    const auto found = the().handles_.find(handle);
    if (found == the().handles_.end()) return CUDA_ERROR_INVALID_VALUE;
    close(found->second.fd);
    the().handles_.erase(found);
    return CUDA_SUCCESS;
  };
  d.MemExportToShareableHandle = [](void* out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                    unsigned long long) {
    const bool fabric = type == kFabricHandle;
    const char* const call = fabric ? "MemExportToShareableHandle of fabric" : "MemExportToShareableHandle";
    if (const CUresult r = the().check_free(call); r != CUDA_SUCCESS) return r;
    const std::lock_guard<std::mutex> lock(the().mutex_);
    const Allocation& allocation = the().handles_.at(handle);
    if (allocation.properties.requestedHandleTypes != type) return CUDA_ERROR_INVALID_VALUE;
    if (fabric) {  // 64 bytes: the handle at the front, a mark at the end
      std::memset(out, 0x77, 64);
      std::memcpy(out, &handle, sizeof handle);
      return CUDA_SUCCESS;
    }
    *static_cast<int*>(out) = fcntl(allocation.fd, F_DUPFD_CLOEXEC, 0);
    return CUDA_SUCCESS;
  };
  d.MemImportFromShareableHandle = [](CUmemGenericAllocationHandle* handle, void* os, CUmemAllocationHandleType type) {
    if (the().imports_fail) return CUDA_ERROR_OUT_OF_MEMORY;
    const bool fabric = type == kFabricHandle;
    const char* const call = fabric ? "MemImportFromShareableHandle of fabric" : "MemImportFromShareableHandle";
    if (const CUresult r = the().check_free(call); r != CUDA_SUCCESS) return r;
    const std::lock_guard<std::mutex> lock(the().mutex_);
    int source = static_cast<int>(reinterpret_cast<uintptr_t>(os));
    if (fabric) {
      const auto* const bytes = static_cast<const unsigned char*>(os);
      CUmemGenericAllocationHandle named = 0;
      std::memcpy(&named, bytes, sizeof named);
      const auto found = the().handles_.find(named);
      if (bytes[63] != 0x77 || found == the().handles_.end()) return CUDA_ERROR_INVALID_HANDLE;
      source = found->second.fd;
    }
    *handle = the().add_handle(source, {});  // whose properties this driver does not know
    return *handle != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  d.MemAddressReserve = [](CUdeviceptr* at, size_t bytes, size_t alignment, CUdeviceptr, unsigned long long) {
    if (const CUresult r = the().check_free("MemAddressReserve"); r != CUDA_SUCCESS) return r;
    if (bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
    // More than asked and never given back before Free; the aligned part is what counts.
    char* const base = static_cast<char*>(
        mmap(nullptr, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    const uintptr_t aligned = (reinterpret_cast<uintptr_t>(base) + alignment - 1) / alignment * alignment;
    if (aligned > reinterpret_cast<uintptr_t>(base)) munmap(base, aligned - reinterpret_cast<uintptr_t>(base));
    *at = aligned;
    const std::lock_guard<std::mutex> lock(the().mutex_);
    the().reservations_[aligned] = bytes;
    return CUDA_SUCCESS;
  };
  d.MemAddressFree = [](CUdeviceptr at, size_t bytes) {
    const std::lock_guard<std::mutex> lock(the().mutex_);
    const auto found = the().reservations_.find(at);
    if (found == the().reservations_.end() || found->second != bytes) return CUDA_ERROR_INVALID_VALUE;
    const auto mapped = the().mappings_.lower_bound(at);
    if (mapped != the().mappings_.end() && mapped->first < at + bytes) return CUDA_ERROR_INVALID_VALUE;
    munmap(pointer(at), bytes);
    the().reservations_.erase(found);
    return CUDA_SUCCESS;
  };
  d.MemMap = [](CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long) {
    if (const CUresult r = the().check_free("MemMap"); r != CUDA_SUCCESS) return r;
    const std::lock_guard<std::mutex> lock(the().mutex_);
    if (!inside(the().reservations_, at) || inside(the().mappings_, at) || (at | bytes | offset) % kGranularity != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const Allocation& allocation = the().handles_.at(handle);
    struct stat size {};
    if (offset != 0 || fstat(allocation.fd, &size) != 0 || bytes > static_cast<uint64_t>(size.st_size) ||
        mmap(pointer(at), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, allocation.fd, 0) == MAP_FAILED) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    the().mappings_[at] = bytes;
    the().mapped_[at] = {fcntl(allocation.fd, F_DUPFD_CLOEXEC, 0), allocation.properties};
    return CUDA_SUCCESS;
  };
  d.MemSetAccess = [](CUdeviceptr at, size_t bytes, const CUmemAccessDesc* access, size_t) {
    if (const CUresult r = the().check_free("MemSetAccess"); r != CUDA_SUCCESS) return r;
    if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
    return mprotect(pointer(at), bytes, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  d.MemUnmap = [](CUdeviceptr at, size_t bytes) {
    const std::lock_guard<std::mutex> lock(the().mutex_);
    uint64_t sum = 0;
    auto mapping = the().mappings_.find(at);
    while (mapping != the().mappings_.end() && mapping->first == at + sum && sum < bytes) {
      sum += mapping->second;
      const auto mapped = the().mapped_.find(mapping->first);
      close(mapped->second.fd);
      the().mapped_.erase(mapped);
      mapping = the().mappings_.erase(mapping);
    }
    if (sum != bytes) return CUDA_ERROR_INVALID_VALUE;  // whole mappings only
    (void)mmap(pointer(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return CUDA_SUCCESS;
  };
  d.MemAlloc = [](CUdeviceptr* at, size_t bytes) {
    if (const CUresult r = the().check("MemAlloc"); r != CUDA_SUCCESS) return r;
    if (spoils_own_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (bytes > the().traits.free_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    int fd = -1;
    void* made = nullptr;
    if (bytes < kGranularity) {
      made = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    } else {
      fd = make_memory(bytes);
      made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (made == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *at = reinterpret_cast<CUdeviceptr>(made);
    const std::lock_guard<std::mutex> lock(the().mutex_);
    the().plain_[*at] = bytes;
    the().ordinals_[*at] = stack().back()->ordinal;
    if (fd >= 0) the().shared_[*at] = fd;
    return CUDA_SUCCESS;
  };
  d.MemFree = [](CUdeviceptr at) {
    if (const CUresult r = the().check("MemFree"); r != CUDA_SUCCESS) return r;
    const std::lock_guard<std::mutex> lock(the().mutex_);
    const auto found = the().plain_.find(at);
    if (found == the().plain_.end()) return CUDA_ERROR_INVALID_VALUE;
    if (const auto shared = the().shared_.find(at); shared == the().shared_.end()) {
      std::free(pointer(at));
    } else {
      for (const auto& [alias, owner] : the().owners_) the().freed_early_ += owner == at ? 1 : 0;
      munmap(pointer(at), found->second);
      close(shared->second);
      the().shared_.erase(shared);
    }
    the().plain_.erase(found);
    return CUDA_SUCCESS;
  };
  d.IpcGetMemHandle = [](CUipcMemHandle* handle, CUdeviceptr at) {
    if (const CUresult r = the().check("IpcGetMemHandle"); r != CUDA_SUCCESS) return r;
    const std::lock_guard<std::mutex> lock(the().mutex_);
    if (the().shared_.count(at) == 0) return CUDA_ERROR_INVALID_VALUE;
    std::memset(handle->reserved, 0x66, sizeof handle->reserved);
    std::memcpy(handle->reserved, &at, sizeof at);
    return CUDA_SUCCESS;
  };
  d.IpcOpenMemHandle = [](CUdeviceptr* at, CUipcMemHandle handle, unsigned flags) {
    if (const CUresult r = the().check("IpcOpenMemHandle"); r != CUDA_SUCCESS) return r;
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    if (!the().traits.ipc_in_one_process) return CUDA_ERROR_INVALID_CONTEXT;
    CUdeviceptr owner = 0;
    std::memcpy(&owner, handle.reserved, sizeof owner);
    const std::lock_guard<std::mutex> lock(the().mutex_);
    const auto shared = the().shared_.find(owner);
    if (handle.reserved[63] != 0x66 || shared == the().shared_.end()) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t bytes = the().plain_.at(owner);
    void* const alias = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->second, 0);
    if (alias == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *at = reinterpret_cast<CUdeviceptr>(alias);
    the().opened_[*at] = bytes;
    the().owners_[*at] = owner;
    return CUDA_SUCCESS;
  };
  d.IpcCloseMemHandle = [](CUdeviceptr at) {
    if (const CUresult r = the().check("IpcCloseMemHandle"); r != CUDA_SUCCESS) return r;
    const std::lock_guard<std::mutex> lock(the().mutex_);
    const auto found = the().opened_.find(at);
    if (found == the().opened_.end()) return CUDA_ERROR_INVALID_VALUE;
    munmap(pointer(at), found->second);
    the().opened_.erase(found);
    the().owners_.erase(at);
    return CUDA_SUCCESS;
  };
  d.MemHostAlloc = [](void** at, size_t bytes, unsigned) {
    if (const CUresult r = the().check("MemHostAlloc"); r != CUDA_SUCCESS) return r;
    if (spoils_own_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    *at = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    const std::lock_guard<std::mutex> lock(the().mutex_);
    the().pinned_[reinterpret_cast<uintptr_t>(*at)] = bytes;
    return CUDA_SUCCESS;
  };
  d.MemFreeHost = [](void* at) {
    if (const CUresult r = the().check("MemFreeHost"); r != CUDA_SUCCESS) return r;
    const std::lock_guard<std::mutex> lock(the().mutex_);
    if (the().pinned_.erase(reinterpret_cast<uintptr_t>(at)) == 0) return CUDA_ERROR_INVALID_VALUE;
    std::free(at);
    return CUDA_SUCCESS;
  };
  d.MemHostGetDevicePointer = [](CUdeviceptr* device, void* host, unsigned) {
    return *device = reinterpret_cast<CUdeviceptr>(host), CUDA_SUCCESS;
  };
}

}  // namespace heddle::test
