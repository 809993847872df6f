// How many bytes a call names, and what is wrong with the symmetric side of its arguments. Plain functions, so that
// they are tested on the host; calls.h asks them in builds that check.
#pragma once

#include "device/handle.h"
#include "device/state.h"

namespace heddle::device {

/// Bytes of `count` elements. Where calls are checked, what is more than 64 bits can say is UINT64_MAX, which lies in
/// no heap; elsewhere it wraps, at no cost.
template <bool kChecked = HEDDLE_CHECK != 0>
HEDDLE_HD HEDDLE_INLINE uint64_t bytes_of(uint64_t count, uint64_t element) {
  if (kChecked && count > UINT64_MAX / element) return UINT64_MAX;
  return count * element;
}

/// Bytes from the first to past the last element of a strided range, 0 for none; as bytes_of where it is too much.
/// `stride` is in elements, and at least 1.
template <bool kChecked = HEDDLE_CHECK != 0>
HEDDLE_HD HEDDLE_INLINE uint64_t span_of(int64_t stride, uint64_t count, uint64_t element) {
  if (count == 0) return 0;
  const uint64_t last = bytes_of<kChecked>(count - 1, static_cast<uint64_t>(stride));
  if (kChecked && last == UINT64_MAX) return UINT64_MAX;
  return bytes_of<kChecked>(last + 1, element);
}

/// What is wrong with `pe` or its copy of [address, address + bytes); kNone when nothing is. With 0 bytes no address is
/// looked at: programs pass NULL with no elements.
HEDDLE_HD HEDDLE_INLINE DeviceError judge_range(const HeapView& view, const void* address, uint64_t bytes, int pe,
                                                uint32_t alignment) {
  if (!is_pe(view, pe)) return DeviceError::kBadPe;
  if (bytes == 0) return DeviceError::kNone;
  if (!in_heap(view, address, bytes)) return DeviceError::kBadAddress;
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0) return DeviceError::kBadAlignment;
  return DeviceError::kNone;
}

/// The same for a buffer of the caller's own.
HEDDLE_HD HEDDLE_INLINE DeviceError judge_local(const void* buffer, uint64_t bytes, uint32_t alignment) {
  if (bytes == 0) return DeviceError::kNone;
  if (buffer == nullptr) return DeviceError::kNullBuffer;
  if (reinterpret_cast<uintptr_t>(buffer) % alignment != 0) return DeviceError::kBadAlignment;
  return DeviceError::kNone;
}

/// What is wrong with a counted put (nvshmemx_putmem_signal_counted_nbi_block): as judge_range, and kOverlap,
/// kNullBuffer, kBadArgument for a source or a length that is no multiple of 16.
HEDDLE_HD HEDDLE_INLINE DeviceError judge_counted(const HeapView& view, const void* dest, const void* source,
                                                  uint64_t bytes, const uint64_t* counter, int pe) {
  constexpr uint32_t kUnit = 16, kCounterUnit = 256;
  const DeviceError counter_error = judge_range(view, counter, sizeof *counter, pe, kCounterUnit);
  const DeviceError dest_error = judge_range(view, dest, bytes, pe, kUnit);
  if (dest_error != DeviceError::kNone) return dest_error;
  if (counter_error != DeviceError::kNone) return counter_error;
  if ((reinterpret_cast<uintptr_t>(source) | reinterpret_cast<uintptr_t>(dest) | bytes) % kUnit != 0) {
    return DeviceError::kBadArgument;
  }
  if (bytes == 0) return DeviceError::kNone;
  if (source == nullptr) return DeviceError::kNullBuffer;
  const uint64_t to = heap_offset(view, dest), count_at = heap_offset(view, counter);
  return count_at + sizeof *counter <= to || count_at >= to + bytes ? DeviceError::kNone : DeviceError::kOverlap;
}

}  // namespace heddle::device
