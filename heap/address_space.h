// One reservation of n_pes x stride addresses: PE p's heap appears at base + p * stride, our own included.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/status.h"

namespace heddle {

/// Reserved, inaccessible addresses; what is mapped into them is the fabrics' business. Unmapped when it goes.
class AddressSpace {
 public:
  AddressSpace() = default;
  AddressSpace(AddressSpace&& other) noexcept;
  AddressSpace& operator=(AddressSpace&& other) noexcept;
  ~AddressSpace();

  /// Reserves `count` windows of `stride` bytes (a multiple of the page size), aligned to `alignment` (a power of two).
  /// kOutOfMemory when the process may not have so many addresses; the text names the settings to lower.
  static Status reserve(uint32_t count, uint64_t stride, uint64_t alignment, AddressSpace* space);

  std::byte* window(uint32_t index) const { return base_ + index * stride_; }
  uint64_t stride() const { return stride_; }

 private:
  std::byte* base_ = nullptr;
  std::byte* mapping_ = nullptr;  // the mmap result; base_ is its first aligned address
  uint64_t mapped_bytes_ = 0;
  uint64_t stride_ = 0;
};

}  // namespace heddle
