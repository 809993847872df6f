#include "heap/address_space.h"

#include <utility>

#include "runtime/settings.h"

namespace heddle {

AddressSpace::AddressSpace(AddressSpace&& other) noexcept { *this = std::move(other); }

AddressSpace& AddressSpace::operator=(AddressSpace&& other) noexcept {
  std::swap(fabric_, other.fabric_);
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  std::swap(stride_, other.stride_);
  return *this;
}

AddressSpace::~AddressSpace() {
  if (base_ != nullptr) fabric_->release_addresses(base_, bytes_);
}

Status AddressSpace::reserve(Fabric& fabric, uint32_t count, uint64_t stride, uint64_t alignment, AddressSpace* space) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 46;  // of the 2^47 that x86-64 and Arm processes have
  const bool possible = count > 0 && stride > 0 && stride <= (kMostBytes - alignment) / count;
  AddressSpace fresh;
  const Status status = possible ? fabric.reserve_addresses(count * stride, alignment, &fresh.base_)
                                 : error(Code::kOutOfMemory, "a process has no more than 2^47 bytes of addresses");
  if (!status.is_ok()) {
    return error(status.code(),
                 "cannot reserve %u x %s bytes of addresses for the symmetric heaps: %s; lower "
                 "NVSHMEM_SYMMETRIC_SIZE or the number of PEs, or raise the limit of virtual memory (ulimit -v)",
                 count, size_text(stride).c_str(), status.text().c_str());
  }
  fresh.fabric_ = &fabric;
  fresh.bytes_ = count * stride;
  fresh.stride_ = stride;
  *space = std::move(fresh);
  return Status::ok();
}

}  // namespace heddle
