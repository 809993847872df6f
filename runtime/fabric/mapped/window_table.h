// From an endpoint id to the address of a ready endpoint; data operations read this table and nothing else.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "runtime/fabric/fabric.h"

namespace heddle::mapped {

/// Readers take no lock. Pages come when their ids are reserved.
class WindowTable {
 public:
  static constexpr uint32_t kMaxIds = 65536;

  ~WindowTable() {
    for (auto& page : pages_) delete page.load(std::memory_order_relaxed);  // relaxed: nobody else is left
  }

  /// Makes room for ids [base, base + count), all below kMaxIds. Serialised by the caller.
  void make_room(EndpointId base, uint32_t count) {
    for (uint32_t i = base / kPageIds; i <= (base + count - 1) / kPageIds; ++i) {
      // Relaxed: only the caller's thread makes pages, one at a time. Release: readers see the page's zeroes.
      if (pages_[i].load(std::memory_order_relaxed) == nullptr) pages_[i].store(new Page{}, std::memory_order_release);
    }
  }
  /// Sets the address of an id with room; nullptr takes it away.
  void set(EndpointId id, std::byte* base) {
    // Relaxed: as in make_room(). Release: readers of the address find the memory mapped.
    (*pages_[id / kPageIds].load(std::memory_order_relaxed))[id % kPageIds].store(base, std::memory_order_release);
  }
  /// The address, or nullptr for an id without one; any id.
  std::byte* get(EndpointId id) const {
    if (id >= kMaxIds) return nullptr;
    // Acquire: pairs with the release that published the page, so that its zeroes are seen.
    const Page* page = pages_[id / kPageIds].load(std::memory_order_acquire);
    if (page == nullptr) return nullptr;
    // Acquire: pairs with set(), so that what was mapped before is there.
    return (*page)[id % kPageIds].load(std::memory_order_acquire);
  }

 private:
  static constexpr uint32_t kPageIds = 1024;
  using Page = std::array<std::atomic<std::byte*>, kPageIds>;
  std::array<std::atomic<Page*>, kMaxIds / kPageIds> pages_{};
};

}  // namespace heddle::mapped
