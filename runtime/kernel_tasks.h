// What the library's own kernels are given: plain structures, passed by value, so that a captured graph keeps them.
#pragma once

#include <cstdint>

namespace heddle {

/// Up to 16 bytes whose value travels with the launch.
struct StoreTask {
  void* destination;
  uint64_t low, high;
  uint32_t bytes;  ///< 1, 2, 4, 8 or 16
  uint32_t unit;   ///< 1, 2, 4 or 8 bytes, of which destination and size are multiples
};

/// A copy, then perhaps a signal that is ordered after it.
struct CopyTask {
  void* destination;
  const void* source;
  uint64_t bytes;
  uint64_t* signal;  ///< nullptr: none
  uint64_t value;
  int32_t signal_op;  ///< NVSHMEM_SIGNAL_*
  uint32_t is_get;    ///< 1: the source is the peer's side
  uint32_t unit;      ///< of copies by units: 1, 2, 4, 8 or 16 bytes, of which all else are multiples
};

/// Element i goes from source[i * source_stride] to destination[i * destination_stride]; strides in elements.
struct StridedTask {
  void* destination;
  const void* source;
  int64_t destination_stride, source_stride;
  uint64_t count;
  uint32_t element;  ///< bytes: 1, 2, 4, 8 or 16
  uint32_t is_get;
};

/// One atomic; `op` and `type` are heddle::AtomicOp and heddle::AtomicType.
struct AtomicTask {
  void* object;
  uint64_t operand, compare;
  uint64_t* result;  ///< for the old value, in pinned memory; nullptr: none
  uint32_t op, type;
};

/// Waits until every variable whose status is 0 (or there is no array of them) compares true.
struct WaitTask {
  const void* variables;
  uint64_t count;
  const int* status;       ///< nullptr: all count
  const void* references;  ///< one for each, or nullptr: `reference` for all
  uint64_t reference;
  int32_t cmp;       ///< NVSHMEM_CMP_*
  uint32_t element;  ///< bytes: 2, 4 or 8
  uint32_t is_signed;
};

}  // namespace heddle
