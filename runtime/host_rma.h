// The host side of every data call: check, translate, then the same inline algorithms that kernels run, on mapped
// memory; or the fabric's data operations where a peer is not mapped. Errors are reported (log and heddle_last_error).
//
// `call` is the public name, for messages. Symmetric addresses are this PE's own; `pe` says whose copy is meant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "device/access.h"
#include "device/copy.h"
#include "device/handle.h"
#include "device/rma.h"
#include "device/signal.h"
#include "device/wait.h"
#include "runtime/log.h"
#include "runtime/world.h"

namespace heddle::host {

/// Where `pe`'s copy of [address, address + bytes) is mapped here; nullptr when it is not, or when the arguments are
/// wrong.
template <class T>
HEDDLE_INLINE T* mapped(const World& world, T* address, uint64_t bytes, int pe) {
  const device::HeapView& view = world.view();
  if (HEDDLE_LIKELY(view.direct != 0 && device::is_pe(view, pe) && device::in_heap(view, address, bytes))) {
    return device::translate(view, address, pe);
  }
  return nullptr;
}

// ---- the slow halves, out of line (host_rma.cc): they find out whether the arguments are wrong (reported,
// kInvalidValue) or the peer is reached by the fabric's data operations only.

/// Why a call's symmetric range is no good, or ok: PE out of range, address outside the heap, no memory there.
Status check_range(const World& world, const void* address, uint64_t bytes, int pe);
/// Whether a local buffer of `count` elements or bytes is NULL although some are needed, reported under `call`.
bool reported_null(const char* call, const char* name, const void* local, size_t count);
/// Why a local range is no good, or ok: NULL, or in the addresses of the PEs' heaps but not all in one heap's memory.
/// What lies elsewhere is the program's own, and is taken for good. `name` is the argument's, for messages.
Status check_local(const World& world, const char* name, const void* local, uint64_t bytes);
/// check_local, reported under `call`.
bool reported_bad_local(const World& world, const char* call, const char* name, const void* local, uint64_t bytes);
/// check_range, reported under `call`.
bool reported_bad(const World& world, const char* call, const void* address, uint64_t bytes, int pe);

/// `nbi`: the source must stay until quiet, or the destination is there only then.
void put_unmapped(World& world, const char* call, void* destination, const void* source, size_t bytes, int pe,
                  bool nbi = false);
/// False, and reported, when nothing was read.
bool get_unmapped(World& world, const char* call, void* destination, const void* source, size_t bytes, int pe,
                  bool nbi = false);
/// `span`: bytes from the first to past the last element of the symmetric side.
void iput_unmapped(World& world, const char* call, void* destination, uint64_t span, const void* source,
                   ptrdiff_t destination_stride, ptrdiff_t source_stride, size_t count, size_t element, int pe);
void iget_unmapped(World& world, const char* call, void* destination, const void* source, uint64_t span,
                   ptrdiff_t destination_stride, ptrdiff_t source_stride, size_t count, size_t element, int pe);
void atomic_unmapped(World& world, const char* call, AtomicOp op, AtomicType type, void* destination, uint64_t operand,
                     uint64_t compare, uint64_t* result, int pe);
void signal_unmapped(World& world, const char* call, uint64_t* signal, uint64_t value, int op, int pe);
void put_signal_unmapped(World& world, const char* call, void* destination, const void* source, size_t bytes,
                         uint64_t* signal, uint64_t value, int op, int pe);
/// One object by value: `bytes` (1, 2, 4 or 8) in the low bytes of `word`.
inline void put_word_unmapped(World& world, const char* call, void* destination, uint64_t word, size_t bytes, int pe) {
  if (reported_bad(world, call, destination, bytes, pe)) return;
  const device::Handle to = device::make_handle(world.view(), destination, pe);
  (void)report(call, world.fabric().put_word(to.id, to.offset, word, bytes));
}
inline uint64_t get_word_unmapped(World& world, const char* call, const void* source, size_t bytes, int pe) {
  uint64_t word = 0;
  if (reported_bad(world, call, source, bytes, pe)) return word;
  const device::Handle from = device::make_handle(world.view(), source, pe);
  (void)report(call, world.fabric().get_word(from.id, from.offset, &word, bytes));
  return word;
}
bool reported_bad_signal_op(const char* call, int op);
/// Reports a wait that gave up on `variable`; `wanted` says what was waited for, "to be ...".
void report_wait(const World& world, const char* call, const Waiter& waiter, const void* variable,
                 const std::string& wanted);
/// "to be >= 5; it is 3": a comparison that did not come true.
template <class T>
std::string wanted_text(T value, int cmp, T reference) {
  static constexpr const char* kSigns[] = {"==", "!=", ">", "<=", "<", ">="};
  return format("to be %s %s; it is %s", kSigns[cmp], std::to_string(reference).c_str(), std::to_string(value).c_str());
}
/// Reports a wait for any or all of `count` variables, seen at `seen`; names the first that holds it up.
template <class T, class References>
[[gnu::cold, gnu::noinline]] void report_wait(const World& world, const char* call, const Waiter& waiter,
                                              const T* variables, const T* seen, size_t count, const int* status,
                                              int cmp, References references) {
  for (size_t i = 0; i < count; ++i) {
    const T value = device::load_relaxed(seen + i);  // relaxed: it is only shown
    const T reference = static_cast<T>(references[i]);
    if (!device::counts(status, i) || device::compare(value, cmp, reference)) continue;
    return report_wait(world, call, waiter, variables + i, wanted_text(value, cmp, reference));
  }
  report_wait(world, call, waiter, variables, "to change");  // it came just now
}

// ---- put and get

template <class T>
HEDDLE_INLINE void p(World& world, const char* call, T* destination, T value, int pe) {
  if (T* remote = mapped(world, destination, sizeof(T), pe); HEDDLE_LIKELY(remote != nullptr)) {
    device::store_relaxed(remote, value);
  } else {
    put_word_unmapped(world, call, destination, device::to_word(value), sizeof(T), pe);
  }
}

template <class T>
HEDDLE_INLINE T g(World& world, const char* call, const T* source, int pe) {
  if (const T* remote = mapped(world, source, sizeof(T), pe); HEDDLE_LIKELY(remote != nullptr)) {
    return device::load_relaxed(remote);
  }
  return device::from_word<T>(static_cast<device::Word<T>>(get_word_unmapped(world, call, source, sizeof(T), pe)));
}

/// On mapped memory blocking and nbi alike: the source may be reused on return.
HEDDLE_INLINE void put(World& world, const char* call, void* destination, const void* source, size_t bytes, int pe,
                       bool nbi = false) {
  void* remote = mapped(world, destination, bytes, pe);
  if (HEDDLE_LIKELY(remote != nullptr && source != nullptr)) {
    device::copy(device::ThreadScope(), remote, source, bytes);
  } else {
    put_unmapped(world, call, destination, source, bytes, pe, nbi);
  }
}

HEDDLE_INLINE void get(World& world, const char* call, void* destination, const void* source, size_t bytes, int pe,
                       bool nbi = false) {
  const void* remote = mapped(world, source, bytes, pe);
  if (HEDDLE_LIKELY(remote != nullptr && destination != nullptr)) {
    device::copy(device::ThreadScope(), destination, remote, bytes);
  } else {
    get_unmapped(world, call, destination, source, bytes, pe, nbi);
  }
}

/// Bytes from the first to past the last element of a strided range; 0 for none. Strides in elements, at least 1.
inline uint64_t strided_bytes(ptrdiff_t stride, size_t count, size_t element) {
  return count == 0 ? 0 : (static_cast<uint64_t>(stride) * (count - 1) + 1) * element;
}
bool reported_bad_stride(const char* call, ptrdiff_t destination_stride, ptrdiff_t source_stride);

template <class T>
void iput(World& world, const char* call, T* destination, const T* source, ptrdiff_t destination_stride,
          ptrdiff_t source_stride, size_t count, int pe) {
  if (reported_bad_stride(call, destination_stride, source_stride)) return;
  if (reported_null(call, "source", source, count)) return;
  const uint64_t bytes = strided_bytes(destination_stride, count, sizeof(T));
  if (T* remote = mapped(world, destination, bytes, pe); remote != nullptr) {
    device::strided_copy(device::ThreadScope(), remote, source, destination_stride, source_stride, count);
    return;
  }
  iput_unmapped(world, call, destination, bytes, source, destination_stride, source_stride, count, sizeof(T), pe);
}

template <class T>
void iget(World& world, const char* call, T* destination, const T* source, ptrdiff_t destination_stride,
          ptrdiff_t source_stride, size_t count, int pe) {
  if (reported_bad_stride(call, destination_stride, source_stride)) return;
  if (reported_null(call, "destination", destination, count)) return;
  const uint64_t bytes = strided_bytes(source_stride, count, sizeof(T));
  if (const T* remote = mapped(world, source, bytes, pe); remote != nullptr) {
    device::strided_copy(device::ThreadScope(), destination, remote, destination_stride, source_stride, count);
    return;
  }
  iget_unmapped(world, call, destination, source, bytes, destination_stride, source_stride, count, sizeof(T), pe);
}

// ---- atomics

/// The fabric's type for objects like T: integers by width, floating types by kind.
template <class T>
constexpr AtomicType atomic_type() {
  if constexpr (std::is_same_v<T, float>) {
    return AtomicType::kF32;
  } else if constexpr (std::is_same_v<T, double>) {
    return AtomicType::kF64;
  } else if constexpr (sizeof(T) == 2) {
    return AtomicType::kF16;
  } else if constexpr (sizeof(T) == 4) {
    return AtomicType::kU32;
  } else {
    return AtomicType::kU64;
  }
}

/// One atomic on mapped memory; the old value. `kOp` decides which of `operand` and `compare` is read.
template <AtomicOp kOp, class T>
HEDDLE_INLINE T atomic_mapped(T* remote, T operand, T compare) {
  if constexpr (kOp == AtomicOp::kFetch) return device::load_relaxed(remote);
  if constexpr (kOp == AtomicOp::kSet) return device::store_relaxed(remote, operand), operand;
  if constexpr (kOp == AtomicOp::kSwap) return device::atomic_exchange(remote, operand);
  if constexpr (kOp == AtomicOp::kCompareSwap) return device::atomic_compare_exchange(remote, compare, operand);
  if constexpr (kOp == AtomicOp::kAdd) return device::atomic_fetch_add(remote, operand);
  if constexpr (kOp == AtomicOp::kAnd) return device::atomic_fetch_and(remote, operand);
  if constexpr (kOp == AtomicOp::kOr) return device::atomic_fetch_or(remote, operand);
  if constexpr (kOp == AtomicOp::kXor) return device::atomic_fetch_xor(remote, operand);
}

/// One atomic at `pe`; the old value when `kFetching`.
template <AtomicOp kOp, bool kFetching, class T>
HEDDLE_INLINE T atomic(World& world, const char* call, T* destination, T operand, T compare, int pe) {
  if (T* remote = mapped(world, destination, sizeof(T), pe); HEDDLE_LIKELY(remote != nullptr)) {
    return atomic_mapped<kOp>(remote, operand, compare);
  }
  uint64_t old = 0;
  atomic_unmapped(world, call, kOp, atomic_type<T>(), destination, device::to_word(operand), device::to_word(compare),
                  kFetching ? &old : nullptr, pe);
  return device::from_word<T>(static_cast<device::Word<T>>(old));
}

// ---- signals and counted signals

inline void signal_op(World& world, const char* call, uint64_t* signal, uint64_t value, int op, int pe) {
  if (reported_bad_signal_op(call, op)) return;
  if (uint64_t* remote = mapped(world, signal, sizeof *signal, pe); HEDDLE_LIKELY(remote != nullptr)) {
    device::signal_relaxed(remote, value, op);
    world.ring(pe);
  } else {
    signal_unmapped(world, call, signal, value, op, pe);
  }
}

inline void put_signal(World& world, const char* call, void* destination, const void* source, size_t bytes,
                       uint64_t* signal, uint64_t value, int op, int pe) {
  if (reported_bad_signal_op(call, op)) return;
  void* remote = mapped(world, destination, bytes, pe);
  uint64_t* remote_signal = mapped(world, signal, sizeof *signal, pe);
  if (HEDDLE_LIKELY(remote != nullptr && remote_signal != nullptr && (source != nullptr || bytes == 0))) {
    device::copy(device::ThreadScope(), remote, source, bytes);
    device::signal_release(remote_signal, value, op);
    world.ring(pe);
  } else {
    put_signal_unmapped(world, call, destination, source, bytes, signal, value, op, pe);
  }
}

/// Puts and adds the bytes to a counter (256-byte aligned in the heap; addresses and bytes multiples of 16). kOk,
/// kInvalidValue with text, or what the fabric says. 0 bytes: ok, nothing done.
Status put_counted(World& world, void* destination, const void* source, size_t bytes, uint64_t* counter, int pe);

}  // namespace heddle::host
