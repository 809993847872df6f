// Memory in the C API: the symmetric heap, registered buffers, regions.
#include <cinttypes>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "heap/allocator.h"
#include "include/nvshmem_host.h"
#include "runtime/global.h"
#include "runtime/host_rma.h"

namespace heddle {
namespace {

/// Local ranges that the program registered, and its region. Never destroyed: other threads may be in calls at exit.
struct Registrations {
  std::mutex mutex;                     // guards all members
  std::map<uintptr_t, size_t> buffers;  // start -> bytes; no two overlap
  nvshmemx_region_handle_t last_region = 0;
  nvshmemx_region_handle_t open_region = 0;  // 0: none
  uint32_t region_hints = 0;
};

Registrations& registrations() {
  static Registrations* all = new Registrations;
  return *all;
}

int report_code(const char* call, const Status& status) { return report(call, status).nvshmem_code(); }

// ---- the symmetric heap

/// The collective half of the malloc family. `valid`: what this PE found wrong with its arguments; all PEs then fail.
void* allocate(const char* call, uint64_t bytes, uint64_t alignment, bool zeroed, const Status& valid) {
  World* const w = world();
  if (w == nullptr) return report_no_world(call), nullptr;
  void* block = nullptr;
  const std::lock_guard<std::mutex> lock(collective_mutex());
  const Status status = guarded([&] { return w->allocate(call, bytes, alignment, zeroed, valid, &block); });
  return report(call, status).is_ok() ? block : nullptr;
}

/// Every heap begins at a multiple of its stride past a 2 MiB boundary: more than both have, no PE can promise. A heap
/// of a place of its own promises what that has.
Status check_alignment(const World& w, uint64_t alignment) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    return error(Code::kInvalidValue, "alignment %" PRIu64 " is not a power of two", alignment);
  }
  constexpr uint64_t kHugePage = uint64_t{2} << 20;
  const auto places =
      kHugePage | static_cast<uint64_t>(w.view().stride) | reinterpret_cast<uintptr_t>(w.view().my_heap);
  const uint64_t largest = places & (~places + 1);
  if (alignment <= largest) return Status::ok();
  return error(Code::kInvalidValue,
               "alignment %" PRIu64 " is over %" PRIu64 ", the largest that the heaps of all PEs have", alignment,
               largest);
}

// ---- registered buffers

Status add_buffer(const void* addr, size_t length) {
  const auto start = reinterpret_cast<uintptr_t>(addr);
  if (addr == nullptr || length == 0) {
    return error(Code::kInvalidValue, "[%p, +%zu bytes) is empty; pass an address and a length of at least 1", addr,
                 length);
  }
  if (length > UINTPTR_MAX - start) {
    return error(Code::kInvalidValue, "[%p, +%zu bytes) runs past the last address", addr, length);
  }
  Registrations& all = registrations();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto next = all.buffers.lower_bound(start);
  auto clash = all.buffers.end();
  if (next != all.buffers.end() && next->first < start + length) clash = next;
  if (next != all.buffers.begin()) {
    --next;
    if (next->first + next->second > start) clash = next;
  }
  if (clash != all.buffers.end()) {
    return error(Code::kInvalidValue, "[%p, +%zu bytes) overlaps the registered buffer [0x%" PRIxPTR ", +%zu bytes)",
                 addr, length, clash->first, clash->second);
  }
  all.buffers[start] = length;
  return Status::ok();
}

Status remove_buffer(const void* addr) {
  Registrations& all = registrations();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.buffers.erase(reinterpret_cast<uintptr_t>(addr)) > 0) return Status::ok();
  return error(Code::kInvalidValue, "no registered buffer starts at %p", addr);
}

void* register_symmetric(const char* call, const void* buffer, size_t size, const void* preferred, int flags) {
  World* const w = world();
  if (w == nullptr) return report_no_world(call), nullptr;
  Status valid;
  if (flags != 0) valid = error(Code::kInvalidValue, "flags %d: there are none yet, pass 0", flags);
  void* alias = nullptr;
  const std::lock_guard<std::mutex> lock(collective_mutex());
  const Status status = guarded([&] { return w->register_buffer(call, buffer, size, preferred, valid, &alias); });
  return report(call, status).is_ok() ? alias : nullptr;
}

// ---- regions

constexpr uint32_t kKnownHints = NVSHMEMX_REGION_HINT_BATCH_RMA;

Status start_region(nvshmemx_region_handle_t* handle, const nvshmemx_region_attrs_t* attrs) {
  const uint32_t hints = attrs == nullptr ? static_cast<uint32_t>(NVSHMEMX_REGION_HINT_NONE) : attrs->hints;
  if (handle == nullptr) return error(Code::kInvalidValue, "handle is NULL");
  if ((hints & ~kKnownHints) != 0) {
    return error(Code::kInvalidValue,
                 "hints 0x%x hold unknown bits; NVSHMEMX_REGION_HINT_BATCH_RMA (1) is the only one", hints);
  }
  Registrations& all = registrations();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.open_region != 0) {
    return error(Code::kInvalidValue, "region %" PRIu64 " is open; a process has one at a time: stop it first",
                 all.open_region);
  }
  all.open_region = ++all.last_region;
  all.region_hints = hints;
  *handle = all.open_region;
  return Status::ok();
}

Status stop_region(nvshmemx_region_handle_t handle) {
  Registrations& all = registrations();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (handle == 0 || handle != all.open_region) {
    return error(Code::kInvalidValue, "handle %" PRIu64 " is not that of an open region (open: %" PRIu64 "; 0 is none)",
                 handle, all.open_region);
  }
  all.open_region = 0;
  return Status::ok();
}

}  // namespace

void forget_registrations() {
  Registrations& all = registrations();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.buffers.clear();
  all.open_region = 0;
}

}  // namespace heddle

using heddle::Code;
using heddle::error;
using heddle::kNoWorldCode;
using heddle::report_no_world;
using heddle::Status;
using heddle::World;

// ---- the symmetric heap

void* nvshmem_malloc(size_t size) {
  return heddle::allocate(__func__, size, heddle::Allocator::kMinAlignment, false, Status::ok());
}

void* nvshmem_calloc(size_t count, size_t size) {
  size_t bytes = 0;
  Status valid;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    bytes = SIZE_MAX;
    valid = error(Code::kInvalidValue, "%zu elements of %zu bytes are more than SIZE_MAX bytes", count, size);
  }
  return heddle::allocate(__func__, bytes, heddle::Allocator::kMinAlignment, true, valid);
}

void* nvshmem_align(size_t alignment, size_t size) {
  const World* const w = heddle::world();
  if (w == nullptr) return report_no_world(__func__), nullptr;
  return heddle::allocate(__func__, size, alignment, false, heddle::check_alignment(*w, alignment));
}

void nvshmem_free(void* ptr) {
  World* const w = heddle::world();
  if (w == nullptr) return report_no_world(__func__);
  if (ptr == nullptr) return;
  const std::lock_guard<std::mutex> lock(heddle::collective_mutex());
  (void)heddle::report(__func__, heddle::guarded([&] { return w->free(ptr); }));
}

void* nvshmem_ptr(const void* ptr, int pe) {
  const World* const w = heddle::world();
  if (HEDDLE_UNLIKELY(w == nullptr)) return report_no_world(__func__), nullptr;
  char* const address = static_cast<char*>(const_cast<void*>(ptr));
  // Its own heap is there for a PE on any fabric.
  if (pe == w->my_pe() && heddle::device::in_heap(w->view(), address, 1)) return address;
  // Mapped memory of a GPU too: the address is for kernels then.
  const heddle::device::HeapView& view = w->mapped_view();
  if (view.direct == 0 || !heddle::device::is_pe(view, pe) || !heddle::device::in_heap(view, address, 1))
    return nullptr;
  return heddle::device::translate(view, address, pe);
}

void* nvshmemx_mc_ptr(nvshmem_team_t, const void*) {
  if (heddle::world() == nullptr) report_no_world(__func__);
  return nullptr;  // no fabric that is built in has multicast
}

// ---- registered buffers

int nvshmemx_buffer_register(void* addr, size_t length) {
  if (heddle::world() == nullptr) return report_no_world(__func__), kNoWorldCode;
  return heddle::report_code(__func__, heddle::guarded([&] { return heddle::add_buffer(addr, length); }));
}

int nvshmemx_buffer_unregister(void* addr) {
  if (heddle::world() == nullptr) return report_no_world(__func__), kNoWorldCode;
  return heddle::report_code(__func__, heddle::remove_buffer(addr));
}

void nvshmemx_buffer_unregister_all(void) {
  if (heddle::world() == nullptr) return report_no_world(__func__);
  heddle::Registrations& all = heddle::registrations();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.buffers.clear();
}

void* nvshmemx_buffer_register_symmetric(void* buf_ptr, size_t size, int flags) {
  return heddle::register_symmetric(__func__, buf_ptr, size, nullptr, flags);
}

void* nvshmemx_buffer_register_symmetric_at_preferred_address(void* buf_ptr, size_t size, void* preferred_addr,
                                                              int flags) {
  return heddle::register_symmetric(__func__, buf_ptr, size, preferred_addr, flags);
}

int nvshmemx_buffer_unregister_symmetric(void* mmap_ptr, size_t size) {
  World* const w = heddle::world();
  if (w == nullptr) return report_no_world(__func__), kNoWorldCode;
  const std::lock_guard<std::mutex> lock(heddle::collective_mutex());
  return heddle::report_code(__func__, heddle::guarded([&] {
                               return w->unregister_buffer("nvshmemx_buffer_unregister_symmetric", mmap_ptr, size);
                             }));
}

// ---- regions

int nvshmemx_region_start(nvshmemx_region_handle_t* handle, const nvshmemx_region_attrs_t* attrs) {
  if (heddle::world() == nullptr) return report_no_world(__func__), kNoWorldCode;
  return heddle::report_code(__func__, heddle::start_region(handle, attrs));
}

int nvshmemx_region_stop(nvshmemx_region_handle_t handle) {
  if (heddle::world() == nullptr) return report_no_world(__func__), kNoWorldCode;
  return heddle::report_code(__func__, heddle::stop_region(handle));
}

int nvshmemx_region_is_active(uint32_t hints, int* active) {
  if (heddle::world() == nullptr) return report_no_world(__func__), kNoWorldCode;
  if (active == nullptr) return heddle::report_code(__func__, error(Code::kInvalidValue, "active is NULL"));
  heddle::Registrations& all = heddle::registrations();
  const std::lock_guard<std::mutex> lock(all.mutex);
  *active = all.open_region != 0 && (all.region_hints & hints) == hints ? 1 : 0;
  return NVSHMEMX_SUCCESS;
}
