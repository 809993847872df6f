// Data operations of the host fabric: base + offset, then the processor's own loads, stores and atomics.
#include <cinttypes>
#include <cstring>

#include "device/access.h"
#include "device/half_convert.h"
#include "runtime/fabric/host/host_fabric.h"

namespace heddle::host {
namespace {

/// True when an object of `bytes` bytes may not start there. A split one would not be atomic.
bool misaligned(uint64_t offset, uint64_t bytes) { return offset % bytes != 0; }

Status misaligned_error(const char* call, uint64_t offset, uint64_t bytes) {
  return error(Code::kInvalidValue,
               "%s: an object of %" PRIu64 " bytes at offset %" PRIu64 " is not aligned to its size", call, bytes,
               offset);
}

/// The copy: memmove, because a PE may put to itself between ranges that overlap.
void copy(void* destination, const void* source, size_t bytes) {
  if (bytes > 0) std::memmove(destination, source, bytes);
}

void update_signal_release(uint64_t* address, uint64_t value, SignalOp op) {
  // Release: who acquires the new signal sees the data put before it.
  if (op == SignalOp::kSet) {
    device::store_release(address, value);
  } else {
    device::add_release(address, value);
  }
}

Status check_signal_op(SignalOp op, const char* call) {
  if (op == SignalOp::kSet || op == SignalOp::kAdd) return Status::ok();
  return error(Code::kInvalidValue,
               "%s: signal operation %d is neither NVSHMEM_SIGNAL_SET (9) nor NVSHMEM_SIGNAL_ADD (10)", call,
               static_cast<int>(op));
}

/// One atomic on the bits of T, the old bits. Relaxed, as in device/access.h: OpenSHMEM's atomics carry no order.
template <class T>
Status apply(AtomicOp op, T* object, T operand, T compare, T* old) {
  constexpr bool kInteger = std::is_integral_v<T>;
  switch (op) {
    case AtomicOp::kFetch:
      *old = device::load_relaxed(object);
      return Status::ok();
    case AtomicOp::kSet:
    case AtomicOp::kSwap:
      *old = device::atomic_exchange(object, operand);
      return Status::ok();
    case AtomicOp::kAdd:
      *old = device::atomic_fetch_add(object, operand);
      return Status::ok();
    case AtomicOp::kCompareSwap:
      if constexpr (kInteger) {
        *old = device::atomic_compare_exchange(object, compare, operand);
        return Status::ok();
      }
      break;
    case AtomicOp::kAnd:
      if constexpr (kInteger) {
        *old = device::atomic_fetch_and(object, operand);
        return Status::ok();
      }
      break;
    case AtomicOp::kOr:
      if constexpr (kInteger) {
        *old = device::atomic_fetch_or(object, operand);
        return Status::ok();
      }
      break;
    case AtomicOp::kXor:
      if constexpr (kInteger) {
        *old = device::atomic_fetch_xor(object, operand);
        return Status::ok();
      }
      break;
  }
  (void)compare;
  return error(Code::kInvalidValue, "atomic: operation %u does not exist%s", static_cast<unsigned>(op),
               kInteger ? "" : " for floating types, which have fetch, set, swap and add");
}

template <class T>
Status apply_bits(AtomicOp op, std::byte* address, uint64_t offset, uint64_t operand, uint64_t compare,
                  uint64_t* result) {
  if (misaligned(offset, sizeof(T))) return misaligned_error("atomic", offset, sizeof(T));
  using Word = device::Word<T>;
  T old{};
  Status status = apply(op, reinterpret_cast<T*>(address), device::from_word<T>(static_cast<Word>(operand)),
                        device::from_word<T>(static_cast<Word>(compare)), &old);
  if (status.is_ok() && result != nullptr) *result = device::to_word(old);
  return status;
}

}  // namespace

Status HostFabric::put(EndpointId id, uint64_t offset, const void* source, size_t bytes) {
  std::byte* base = ready_window(id);
  if (base == nullptr) return no_window(id, "put");
  copy(base + offset, source, bytes);
  return Status::ok();
}

Status HostFabric::get(EndpointId id, uint64_t offset, void* destination, size_t bytes) {
  const std::byte* base = ready_window(id);
  if (base == nullptr) return no_window(id, "get");
  copy(destination, base + offset, bytes);
  return Status::ok();
}

Status HostFabric::atomic(AtomicOp op, AtomicType type, EndpointId id, uint64_t offset, uint64_t operand,
                          uint64_t compare, uint64_t* result) {
  std::byte* base = ready_window(id);
  if (base == nullptr) return no_window(id, "atomic");
  std::byte* address = base + offset;
  switch (type) {
    case AtomicType::kU32:
      return apply_bits<uint32_t>(op, address, offset, operand, compare, result);
    case AtomicType::kU64:
      return apply_bits<uint64_t>(op, address, offset, operand, compare, result);
    case AtomicType::kF16:
      return apply_bits<device::Half>(op, address, offset, operand, compare, result);
    case AtomicType::kF32:
      return apply_bits<float>(op, address, offset, operand, compare, result);
    case AtomicType::kF64:
      return apply_bits<double>(op, address, offset, operand, compare, result);
  }
  return error(Code::kInvalidValue, "atomic: type %u does not exist", static_cast<unsigned>(type));
}

Status HostFabric::put_signal(EndpointId id, uint64_t offset, const void* source, size_t bytes, uint64_t signal_offset,
                              uint64_t value, SignalOp op) {
  std::byte* base = ready_window(id);
  if (base == nullptr) return no_window(id, "put_signal");
  if (misaligned(signal_offset, 8)) return misaligned_error("put_signal", signal_offset, 8);
  HEDDLE_RETURN_IF_ERROR(check_signal_op(op, "put_signal"));
  copy(base + offset, source, bytes);
  update_signal_release(reinterpret_cast<uint64_t*>(base + signal_offset), value, op);
  return Status::ok();
}

Status HostFabric::signal(EndpointId id, uint64_t offset, uint64_t value, SignalOp op) {
  std::byte* base = ready_window(id);
  if (base == nullptr) return no_window(id, "signal");
  if (misaligned(offset, 8)) return misaligned_error("signal", offset, 8);
  HEDDLE_RETURN_IF_ERROR(check_signal_op(op, "signal"));
  auto* address = reinterpret_cast<uint64_t*>(base + offset);
  // Relaxed: a signal alone is ordered after nothing but an earlier fence.
  if (op == SignalOp::kSet) {
    device::store_relaxed(address, value);
  } else {
    (void)device::atomic_fetch_add(address, value);
  }
  return Status::ok();
}

Status HostFabric::put_counted(EndpointId id, uint64_t offset, const void* source, size_t bytes,
                               uint64_t counter_offset) {
  std::byte* base = ready_window(id);
  if (base == nullptr) return no_window(id, "put_counted");
  if (misaligned(counter_offset, 8)) return misaligned_error("put_counted", counter_offset, 8);
  copy(base + offset, source, bytes);
  // Release: who acquires the final sum sees all the bytes that were counted.
  device::add_release(reinterpret_cast<uint64_t*>(base + counter_offset), bytes);
  return Status::ok();
}

Status HostFabric::clear(EndpointId id, uint64_t offset, uint64_t bytes) {
  std::byte* base = ready_window(id);
  if (base == nullptr) return no_window(id, "clear");
  std::memset(base + offset, 0, bytes);
  return Status::ok();
}

Status HostFabric::fence() {
  // Stores of one thread to coherent memory of one host: a release fence keeps the earlier ones, also those of a copy,
  // before every later atomic that somebody can acquire.
  device::fence_release();
  return Status::ok();
}

Status HostFabric::quiet() {
  // Sequentially consistent: earlier stores have left the store buffer before any later load is made.
  device::fence_system();
  return Status::ok();
}

}  // namespace heddle::host
