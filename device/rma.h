// Put, get, p, g and their strided forms on mapped memory (OpenSHMEM 1.5, 9.5). `remote` addresses are translated ones.
#pragma once

#include "device/access.h"
#include "device/bulk.h"
#include "device/copy.h"

namespace heddle::device {

/// Elements `i * source_stride` of `source` to `i * destination_stride` of `destination`, for i in [0, count); strides
/// in elements.
template <class Scope, class T>
HEDDLE_HD inline void strided_copy(const Scope& scope, T* destination, const T* source, ptrdiff_t destination_stride,
                                   ptrdiff_t source_stride, size_t count) {
  for (size_t i = static_cast<size_t>(scope.rank()); i < count; i += static_cast<size_t>(scope.size())) {
    const auto at = static_cast<ptrdiff_t>(i);
    destination[at * destination_stride] = source[at * source_stride];
  }
}

#if defined(__CUDA_ARCH__)

/// The same in kernels: one access for an element, and several elements in flight.
template <class Sides, class Scope, class T>
HEDDLE_DEVICE inline void strided_copy_elements(const Scope& scope, T* destination, const T* source,
                                                ptrdiff_t destination_stride, ptrdiff_t source_stride, size_t count) {
  constexpr int kElements = 4;
  const auto step = static_cast<size_t>(scope.size());
  for (auto first = static_cast<size_t>(scope.rank()); first < count; first += kElements * step) {
    T value[kElements];
    HEDDLE_UNROLL
    for (int k = 0; k < kElements; ++k) {
      const size_t i = first + k * step;
      if (i < count) value[k] = Sides::load(source + static_cast<ptrdiff_t>(i) * source_stride);
    }
    HEDDLE_UNROLL
    for (int k = 0; k < kElements; ++k) {
      const size_t i = first + k * step;
      if (i < count) Sides::store(destination + static_cast<ptrdiff_t>(i) * destination_stride, value[k]);
    }
  }
}

/// Bytes from which the threads of a warp that put or get together share the work.
constexpr size_t kTogetherBytes = 256;

/// One thread's copy of some size. Threads of a warp that come here together do each other's copies one after another,
/// each by all of them, so that lanes touch neighbouring bytes. Nobody waits for threads that are elsewhere.
template <class Sides>
HEDDLE_DEVICE HEDDLE_OUTLINE_LARGE void copy_together(char* destination, const char* source, size_t bytes) {
  const uint32_t here = __activemask();
  if ((here & (here - 1)) == 0) {
    if (bulk_pays<Sides>(ThreadScope(), destination, source, bytes)) {
      copy_by_bulk<Sides>(ThreadScope(), destination, source, bytes);
    } else {
      copy_any<Sides>(ThreadScope(), destination, source, bytes);
    }
    return;
  }
  // A thread's stack is visible to itself alone.
  const bool shared = !is_own_memory(destination) && !is_own_memory(source);
  if (!shared) copy_any<Sides>(ThreadScope(), destination, source, bytes);
  const LanesScope lanes(here);
  lanes.sync();  // the sources that the others have written are visible to all
  for (uint32_t rest = __ballot_sync(here, shared); rest != 0; rest &= rest - 1) {
    const int owner = __ffs(rest) - 1;
    const auto to = reinterpret_cast<char*>(__shfl_sync(here, reinterpret_cast<uint64_t>(destination), owner));
    const auto from = reinterpret_cast<const char*>(__shfl_sync(here, reinterpret_cast<uint64_t>(source), owner));
    copy_any<Sides>(lanes, to, from, __shfl_sync(here, bytes, owner));
  }
  lanes.sync();  // what the others have stored is ordered before what the owner does next
}

/// put or get of one thread.
template <class Sides>
HEDDLE_DEVICE HEDDLE_INLINE void copy_by_thread(void* destination, const void* source, size_t bytes) {
  if (bytes >= kTogetherBytes) {
    copy_together<Sides>(static_cast<char*>(destination), static_cast<const char*>(source), bytes);
  } else {
    copy<Sides>(ThreadScope(), destination, source, bytes);
  }
}

#endif

}  // namespace heddle::device
