#include "runtime/host_rma.h"

#include <cinttypes>

#include "runtime/log.h"

namespace heddle::host {
namespace {

device::Handle handle_of(const World& world, const void* address, int pe) {
  return device::make_handle(world.view(), address, pe);
}

/// Whether nothing but memory lies in the `bytes` of a heap from `offset` on: what blocks and buffers leave may have
/// none, and a copy or kernel that meets that costs the GPU's context. `address`: how the program named it.
Status check_memory(const World& world, const void* address, uint64_t bytes, uint64_t offset) {
  if (world.has_memory(offset, bytes)) return Status::ok();
  return error(Code::kInvalidValue,
               "%" PRIu64
               " bytes at %p reach into a part of the symmetric heap that has no memory now; pass a range in a "
               "live block",
               bytes, address);
}

/// Addresses that are reserved for the heap of a PE here.
struct Window {
  int pe = -1;  ///< -1: none
  uintptr_t heap = 0;
};

/// The first window that [first, last] meets.
Window window_of(const device::HeapView& view, uintptr_t first, uintptr_t last) {
  const auto mine = reinterpret_cast<uintptr_t>(view.my_heap);
  if (view.stride == 0) {  // heaps at places of their own: all of their memory is there
    for (int pe = 0; pe < view.n_pes; ++pe) {
      if (view.direct != device::kByTable && pe != view.my_pe) continue;
      const uintptr_t heap = mine + static_cast<uintptr_t>(pe == view.my_pe ? 0 : view.distances[pe]);
      if (last >= heap && first < heap + device::extent_of(view)) return {pe, heap};
    }
    return {};
  }
  const auto stride = static_cast<uintptr_t>(view.stride);
  const uintptr_t begin = mine - static_cast<uintptr_t>(view.my_pe) * stride;
  if (last < begin || first >= begin + static_cast<uintptr_t>(view.n_pes) * stride) return {};
  const uintptr_t pe = first < begin ? 0 : (first - begin) / stride;
  return {static_cast<int>(pe), begin + pe * stride};
}

}  // namespace

Status check_range(const World& world, const void* address, uint64_t bytes, int pe) {
  const device::HeapView& view = world.view();
  if (!device::is_pe(view, pe)) {
    return error(Code::kInvalidValue, "PE %d is out of range; this job has PEs 0 to %d", pe, view.n_pes - 1);
  }
  if (bytes == 0) return Status::ok();  // nothing is touched: programs pass NULL with no elements
  if (!device::in_heap(view, address, bytes)) {
    const uint64_t extent = device::extent_of(view);
    if (device::in_heap(view, address, 0)) {
      return error(Code::kInvalidValue,
                   "%" PRIu64 " bytes at %p end %" PRIu64
                   " bytes past the symmetric heap [%p, %p); pass a length that fits the block",
                   bytes, address, bytes - (extent - device::heap_offset(view, address)),
                   static_cast<void*>(view.my_heap + view.reserved), static_cast<void*>(view.my_heap + extent));
    }
    return error(Code::kInvalidValue,
                 "%p (%" PRIu64
                 " bytes) is not in the symmetric heap [%p, %p); the remote side is named by an address that "
                 "nvshmem_malloc gave this PE: destination of a put, source of a get",
                 address, bytes, static_cast<void*>(view.my_heap + view.reserved),
                 static_cast<void*>(view.my_heap + extent));
  }
  return check_memory(world, address, bytes, device::heap_offset(view, address));
}

bool reported_bad(const World& world, const char* call, const void* address, uint64_t bytes, int pe) {
  return !report(call, check_range(world, address, bytes, pe)).is_ok();
}

bool reported_null(const char* call, const char* name, const void* local, size_t count) {
  if (local != nullptr || count == 0) return false;
  (void)report(call,
               error(Code::kInvalidValue, "%s is NULL, but %zu elements or bytes of it are asked for", name, count));
  return true;
}

Status check_local(const World& world, const char* name, const void* local, uint64_t bytes) {
  if (bytes == 0) return Status::ok();
  if (local == nullptr) {
    return error(Code::kInvalidValue, "%s is NULL, but %" PRIu64 " bytes of it are asked for", name, bytes);
  }
  const device::HeapView& view = world.mapped_view();
  const auto first = reinterpret_cast<uintptr_t>(local);
  const Window window = window_of(view, first, bytes - 1 <= UINTPTR_MAX - first ? first + (bytes - 1) : UINTPTR_MAX);
  if (window.pe < 0) return Status::ok();
  const auto* const here = view.my_heap + static_cast<intptr_t>(first - window.heap);
  if (first >= window.heap && device::in_heap(view, here, bytes)) {
    return check_memory(world, local, bytes, first - window.heap).in(name);
  }
  return error(Code::kInvalidValue,
               "%s: %" PRIu64
               " bytes at %p are not all in memory of the symmetric heap, which for PE %d is [%p, %p) here; pass a "
               "length that fits the block",
               name, bytes, local, window.pe, reinterpret_cast<void*>(window.heap + view.reserved),
               reinterpret_cast<void*>(window.heap + device::extent_of(view)));
}

bool reported_bad_local(const World& world, const char* call, const char* name, const void* local, uint64_t bytes) {
  return !report(call, check_local(world, name, local, bytes)).is_ok();
}

void put_unmapped(World& world, const char* call, void* destination, const void* source, size_t bytes, int pe,
                  bool nbi) {
  if (reported_bad(world, call, destination, bytes, pe) || reported_bad_local(world, call, "source", source, bytes)) {
    return;
  }
  if (bytes == 0) return;
  const device::Handle to = handle_of(world, destination, pe);
  Fabric& fabric = world.fabric();
  (void)report(call,
               nbi ? fabric.put_nbi(to.id, to.offset, source, bytes) : fabric.put(to.id, to.offset, source, bytes));
}

bool get_unmapped(World& world, const char* call, void* destination, const void* source, size_t bytes, int pe,
                  bool nbi) {
  if (reported_bad(world, call, source, bytes, pe) ||
      reported_bad_local(world, call, "destination", destination, bytes)) {
    return false;
  }
  if (bytes == 0) return true;
  const device::Handle from = handle_of(world, source, pe);
  Fabric& fabric = world.fabric();
  return report(call, nbi ? fabric.get_nbi(from.id, from.offset, destination, bytes)
                          : fabric.get(from.id, from.offset, destination, bytes))
      .is_ok();
}

void iput_unmapped(World& world, const char* call, void* destination, uint64_t span, const void* source,
                   ptrdiff_t destination_stride, ptrdiff_t source_stride, size_t count, size_t element, int pe) {
  if (reported_bad(world, call, destination, span, pe) ||
      reported_bad_local(world, call, "source", source, strided_bytes(source_stride, count, element)) || count == 0) {
    return;
  }
  const device::Handle to = handle_of(world, destination, pe);
  (void)report(call,
               world.fabric().put_strided(to.id, to.offset, source, destination_stride, source_stride, count, element));
}

void iget_unmapped(World& world, const char* call, void* destination, const void* source, uint64_t span,
                   ptrdiff_t destination_stride, ptrdiff_t source_stride, size_t count, size_t element, int pe) {
  if (reported_bad(world, call, source, span, pe) ||
      reported_bad_local(world, call, "destination", destination, strided_bytes(destination_stride, count, element)) ||
      count == 0) {
    return;
  }
  const device::Handle from = handle_of(world, source, pe);
  (void)report(call, world.fabric().get_strided(from.id, from.offset, destination, destination_stride, source_stride,
                                                count, element));
}

void atomic_unmapped(World& world, const char* call, AtomicOp op, AtomicType type, void* destination, uint64_t operand,
                     uint64_t compare, uint64_t* result, int pe) {
  const uint64_t bytes = type == AtomicType::kF16 ? 2 : type == AtomicType::kU32 || type == AtomicType::kF32 ? 4 : 8;
  if (reported_bad(world, call, destination, bytes, pe)) return;
  const device::Handle at = handle_of(world, destination, pe);
  (void)report(call, world.fabric().atomic(op, type, at.id, at.offset, operand, compare, result));
}

void signal_unmapped(World& world, const char* call, uint64_t* signal, uint64_t value, int op, int pe) {
  if (reported_bad(world, call, signal, sizeof *signal, pe)) return;
  const device::Handle at = handle_of(world, signal, pe);
  (void)report(call, world.fabric().signal(at.id, at.offset, value, static_cast<SignalOp>(op)));
}

void put_signal_unmapped(World& world, const char* call, void* destination, const void* source, size_t bytes,
                         uint64_t* signal, uint64_t value, int op, int pe) {
  if (reported_bad(world, call, destination, bytes, pe) || reported_bad(world, call, signal, sizeof *signal, pe))
    return;
  if (reported_bad_local(world, call, "source", source, bytes)) return;
  const device::Handle to = handle_of(world, destination, pe);
  const uint64_t signal_offset = device::heap_offset(world.view(), signal);
  (void)report(call, world.fabric().put_signal(to.id, to.offset, source, bytes, signal_offset, value,
                                               static_cast<SignalOp>(op)));
}

bool reported_bad_signal_op(const char* call, int op) {
  if (HEDDLE_LIKELY(op == device::kSignalSet || op == device::kSignalAdd)) return false;
  (void)report(call, error(Code::kInvalidValue,
                           "signal operation %d is neither NVSHMEM_SIGNAL_SET (9) nor NVSHMEM_SIGNAL_ADD (10)", op));
  return true;
}

bool reported_bad_stride(const char* call, ptrdiff_t destination_stride, ptrdiff_t source_stride) {
  if (destination_stride >= 1 && source_stride >= 1) return false;
  (void)report(call, error(Code::kInvalidValue, "strides %td (destination) and %td (source) must both be at least 1",
                           destination_stride, source_stride));
  return true;
}

void report_wait(const World& world, const char* call, const Waiter& waiter, const void* variable,
                 const std::string& wanted) {
  (void)report(call, world.wait_failure(waiter.verdict(), format("the value at %p %s", variable, wanted.c_str())));
}

Status put_counted(World& world, void* destination, const void* source, size_t bytes, uint64_t* counter, int pe) {
  HEDDLE_RETURN_IF_ERROR(check_range(world, destination, bytes, pe));
  HEDDLE_RETURN_IF_ERROR(check_range(world, counter, sizeof *counter, pe));
  const uint64_t to = device::heap_offset(world.view(), destination);
  const uint64_t count_at = device::heap_offset(world.view(), counter);
  if (to % 16 != 0 || reinterpret_cast<uintptr_t>(source) % 16 != 0 || bytes % 16 != 0) {
    return error(Code::kInvalidValue, "destination %p, source %p and %zu bytes must all be multiples of 16",
                 destination, source, bytes);
  }
  if (count_at % 256 != 0) {
    return error(Code::kInvalidValue, "counter %p is at heap offset %" PRIu64 ", which is no multiple of 256",
                 static_cast<void*>(counter), count_at);
  }
  if (count_at + sizeof *counter > to && count_at < to + bytes) {
    return error(Code::kInvalidValue, "counter %p lies inside the destination [%p, +%zu bytes)",
                 static_cast<void*>(counter), destination, bytes);
  }
  if (bytes == 0) return Status::ok();
  HEDDLE_RETURN_IF_ERROR(check_local(world, "source", source, bytes));
  if (void* remote = mapped(world, destination, bytes, pe); HEDDLE_LIKELY(remote != nullptr)) {
    device::copy(device::ThreadScope(), remote, source, bytes);
    device::add_release(device::translate(world.view(), counter, pe), bytes);
    world.ring(pe);
    return Status::ok();
  }
  const device::Handle handle = handle_of(world, destination, pe);
  return world.fabric().put_counted(handle.id, handle.offset, source, bytes, count_at);
}

}  // namespace heddle::host
