// One reservation of n_pes x stride addresses: PE p's heap appears at base + p * stride, our own included.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/fabric/fabric.h"
#include "runtime/status.h"

namespace heddle {

/// Reserved, inaccessible addresses of a fabric's; what is mapped into them is its business. Given back when it goes,
/// before the fabric.
class AddressSpace {
 public:
  AddressSpace() = default;
  AddressSpace(AddressSpace&& other) noexcept;
  AddressSpace& operator=(AddressSpace&& other) noexcept;
  ~AddressSpace();

  /// Reserves `count` windows of `stride` bytes (a multiple of the fabric's granularity), aligned to `alignment` (a
  /// power of two). kOutOfMemory when the process may not have so many addresses; the text names the settings to lower.
  static Status reserve(Fabric& fabric, uint32_t count, uint64_t stride, uint64_t alignment, AddressSpace* space);

  std::byte* window(uint32_t index) const { return base_ + index * stride_; }
  uint64_t stride() const { return stride_; }
  uint64_t bytes() const { return bytes_; }  ///< of all windows

 private:
  Fabric* fabric_ = nullptr;
  std::byte* base_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t stride_ = 0;
};

}  // namespace heddle
