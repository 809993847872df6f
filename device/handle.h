// From a symmetric address to an endpoint handle or a peer's address: one multiply-add where the heaps lie at one
// stride, else one look into a table of distances.
#pragma once

#include "device/config.h"

namespace heddle::device {

/// Values of HeapView::direct.
constexpr uint32_t kNotMapped = 0;  ///< some PE's heap is not mapped
constexpr uint32_t kByStride = 1;   ///< every PE's heap is mapped, at one stride
constexpr uint32_t kByTable = 2;    ///< every PE's heap is mapped, wherever it happened to be (HeapView::distances)
constexpr int kMostByTable = 64;    ///< PEs that the table has room for

/// All that translation needs; one per process on the host, one per translation unit in constant memory of kernels.
struct HeapView {
  char* my_heap = nullptr;  ///< start of this PE's heap, in this process
  int64_t stride = 0;       ///< from one PE's heap to the next one's, in bytes
  uint64_t extent = 0;      ///< bytes from my_heap up to the end of bound memory
  uint64_t reserved = 0;    ///< the first bytes of every heap, which are the library's own and no call's argument
  int32_t my_pe = 0;
  int32_t n_pes = 0;     ///< 0 while there is no world: every PE is then out of range
  uint32_t id_base = 0;  ///< endpoint id of PE 0; PE p's is id_base + p
  uint32_t direct = kNotMapped;
  /// kByTable: from my_heap to each PE's heap, in bytes. Inside and not behind a pointer, because kernels then find it
  /// in constant memory, where it costs no registers.
  int64_t distances[kMostByTable] = {};
};

/// The view's extent, which another host thread may be changing by nvshmem_malloc.
HEDDLE_HD HEDDLE_INLINE uint64_t extent_of(const HeapView& view) {
#if defined(__CUDA_ARCH__)
  return view.extent;  // constant memory
#else
  return __atomic_load_n(&view.extent, __ATOMIC_RELAXED);  // relaxed: a bound; whoever has a new block was given it
#endif
}

/// Offset of a symmetric address in the heap; meaningless unless in_heap.
HEDDLE_HD HEDDLE_INLINE uint64_t heap_offset(const HeapView& view, const void* address) {
  return static_cast<uint64_t>(static_cast<const char*>(address) - view.my_heap);
}

/// Whether [address, address + bytes) lies in the part of this PE's heap that programs may name: bound memory behind
/// the library's own.
HEDDLE_HD HEDDLE_INLINE bool in_heap(const HeapView& view, const void* address, uint64_t bytes) {
  const uint64_t offset = heap_offset(view, address);
  const uint64_t extent = extent_of(view);
  return offset >= view.reserved && offset <= extent && bytes <= extent - offset;
}

HEDDLE_HD HEDDLE_INLINE bool is_pe(const HeapView& view, int pe) {
  return static_cast<uint32_t>(pe) < static_cast<uint32_t>(view.n_pes);
}

/// The address at which this process sees `address` of `pe`. Needs view.direct, a PE in range and a symmetric address.
template <class T>
HEDDLE_HD HEDDLE_INLINE T* translate(const HeapView& view, T* address, int pe) {
  const int64_t distance = HEDDLE_UNLIKELY(view.direct == kByTable)
                               ? view.distances[pe]
                               : static_cast<int64_t>(pe - view.my_pe) * view.stride;
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(distance));
}

/// Endpoint id and offset of a symmetric address at a PE (CUDA guide: handle).
struct Handle {
  uint32_t id;
  uint64_t offset;
};
HEDDLE_HD HEDDLE_INLINE Handle make_handle(const HeapView& view, const void* address, int pe) {
  return {view.id_base + static_cast<uint32_t>(pe), heap_offset(view, address)};
}

}  // namespace heddle::device
