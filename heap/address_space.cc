#include "heap/address_space.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "runtime/settings.h"

namespace heddle {

AddressSpace::AddressSpace(AddressSpace&& other) noexcept { *this = std::move(other); }

AddressSpace& AddressSpace::operator=(AddressSpace&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(stride_, other.stride_);
  return *this;
}

AddressSpace::~AddressSpace() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_bytes_);
}

Status AddressSpace::reserve(uint32_t count, uint64_t stride, uint64_t alignment, AddressSpace* space) {
  const auto refuse = [&](int err) {
    return error_errno(Code::kOutOfMemory, err,
                       "cannot reserve %u x %s bytes of addresses for the symmetric heaps; lower "
                       "NVSHMEM_SYMMETRIC_SIZE or the number of PEs, or raise the limit of virtual memory (ulimit -v)",
                       count, size_text(stride).c_str());
  };
  constexpr uint64_t kMostBytes = uint64_t{1} << 46;  // of the 2^47 that x86-64 and Arm processes have
  if (count == 0 || stride == 0 || stride > (kMostBytes - alignment) / count) return refuse(ENOMEM);
  const uint64_t bytes = count * stride + alignment;
  void* mapping = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return refuse(errno);
  AddressSpace fresh;
  fresh.mapping_ = static_cast<std::byte*>(mapping);
  fresh.mapped_bytes_ = bytes;
  fresh.stride_ = stride;
  const auto at = reinterpret_cast<uintptr_t>(mapping);
  fresh.base_ = fresh.mapping_ + ((at + alignment - 1) / alignment * alignment - at);
  *space = std::move(fresh);
  return Status::ok();
}

}  // namespace heddle
