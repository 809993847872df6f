// The symmetric heap: one endpoint per PE over the whole heap, grown by binding chunks, with outcomes all PEs agree on.
// On a fabric of whole endpoints it has all of its memory from the start, and the heaps lie anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "device/handle.h"
#include "heap/address_space.h"
#include "heap/allocator.h"
#include "runtime/control.h"
#include "runtime/fabric/fabric.h"

namespace heddle {

/// Figures of one PE's heap, in bytes.
struct HeapFigures {
  uint64_t limit = 0;         ///< what the heap may grow to, the library's own part included
  uint64_t in_use = 0;        ///< in the user's blocks, rounded up
  uint64_t largest_free = 0;  ///< largest block that nvshmem_malloc could give now, growth included
  uint64_t physical = 0;      ///< memory bound now
  uint64_t internal = 0;      ///< the library's own part
  uint64_t blocks = 0;        ///< live blocks of the user
};

class SymmetricHeap {
 public:
  struct Shape {
    int my_pe = 0;
    int n_pes = 1;
    uint64_t limit = 0;           ///< bytes, a multiple of chunk
    uint64_t chunk = 0;           ///< growth step, a power of two, a multiple of the fabric's bind alignment
    uint64_t internal_bytes = 0;  ///< at offset 0, zeroed, never given to the user
    const std::atomic<uint32_t>* poison = nullptr;  ///< not 0 once a PE is lost: ends every wait
  };

  explicit SymmetricHeap(Fabric& fabric) : fabric_(fabric) {}
  /// Destroys the endpoints and frees the memory; peers must no longer use them.
  ~SymmetricHeap();
  SymmetricHeap(const SymmetricHeap&) = delete;
  SymmetricHeap& operator=(const SymmetricHeap&) = delete;

  /// Local half of set-up: addresses, ids, the own endpoint with its first chunk. `handle` is what the peers import.
  Status open(const Shape& shape, Deadline deadline, EndpointHandle* handle);
  /// Imports every peer's endpoint (`handles` in PE order) and waits until all are ready.
  Status import_peers(const std::vector<EndpointHandle>& handles, Deadline deadline);

  /// Collective. A block of `bytes` aligned to `alignment`, at the same offset on every PE, or the same failure on all.
  /// `valid` carries what this PE already found wrong with its arguments, so that all PEs fail alike. 0 bytes on every
  /// PE gives nullptr. Ends with all PEs having the memory; `zeroed` memory is zero before any PE returns.
  Status allocate(ControlChannel& channel, const char* call, uint64_t bytes, uint64_t alignment, bool zeroed,
                  const Status& valid, Deadline deadline, void** block);
  /// Collective. Gives back the block at `block`; nothing happens anywhere when it is not one on some PE.
  Status free(ControlChannel& channel, void* block, Deadline deadline);

  /// Collective. Makes [buffer, buffer + bytes) of the program, the same size on every PE, part of the heap of each, at
  /// one offset: where it fits, or at `preferred` of this PE's heap when that is not null. `*alias` is where it appears
  /// here; kernels, peers and host calls reach it by that address. The memory is the fabric's to take over
  /// (Fabric::adopt); all PEs fail alike when one cannot. `valid` is as in allocate().
  Status register_buffer(ControlChannel& channel, const char* call, const void* buffer, uint64_t bytes,
                         const void* preferred, const Status& valid, Deadline deadline, void** alias);
  /// Collective. Undoes it for `alias` and the `bytes` that it was registered with; the program's own mapping stays.
  Status unregister_buffer(ControlChannel& channel, const char* call, const void* alias, uint64_t bytes,
                           const Status& valid, Deadline deadline);
  /// Buffers that are registered now.
  size_t registered() const;

  /// Whether there is memory, on every PE, in all of the `bytes` from `offset` on. Any thread.
  bool has_memory(uint64_t offset, uint64_t bytes) const;
  HeapFigures figures() const;
  device::HeapView view() const { return view_; }
  std::byte* base() const { return base_; }

 private:
  /// Memory of the fabric's, or adopted by it.
  struct Part {
    MemoryId memory = 0;
    uint64_t bytes = 0;
  };
  Status check_adopts() const;
  Status check_buffer(const void* buffer, uint64_t bytes, const void* preferred) const;
  Status adopt(const void* buffer, uint64_t bytes, std::vector<Part>* parts);
  Status place_buffer(uint64_t bytes, const void* preferred, Extent* place) const;
  Status bind_buffer(Extent place, std::vector<Part>* parts, Deadline deadline);
  Status grow(Extent segment, Deadline deadline);
  Status shrink(Extent segment, const char* what, Deadline deadline);
  void refresh_view();

  Fabric& fabric_;
  Shape shape_;
  bool whole_ = false;  // FabricCapabilities::whole_endpoints
  AddressSpace space_;  // none when whole
  std::byte* base_ = nullptr;
  EndpointIds ids_;
  std::vector<bool> made_;  // endpoints created or imported, by PE
  std::unique_ptr<Allocator> allocator_;
  std::map<uint64_t, Part> memory_;  // by offset; several in a registered segment
  device::HeapView view_;
  mutable std::mutex mutex_;  // guards allocator_, memory_ and view_ against figures() from other threads
};

}  // namespace heddle
