// What a mapping fabric needs of memory: addresses, allocations, tickets by which other processes map them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/owned.h"
#include "runtime/status.h"

namespace heddle::mapped {

/// How another process comes to an allocation: a descriptor, or bytes of the provider's own.
struct Ticket {
  static constexpr size_t kBytes = 72;
  OwnedFd fd;  ///< not valid: the bytes say all
  bool has_bytes = false;
  unsigned char bytes[kBytes] = {};
};

/// One kind of memory. Sizes and offsets are multiples of granularity(), and addresses lie in reserved ranges: the
/// fabric has checked. Called by the fabric's callers and by the courier's thread, one at a time but for addresses and
/// allocate().
class MemoryProvider {
 public:
  /// Names an allocation; the provider's own value.
  using Handle = uint64_t;

  virtual ~MemoryProvider() = default;

  /// Smallest unit of allocations, binds and windows, in bytes; a power of two.
  virtual uint64_t granularity() const = 0;
  /// What messages call that unit, e.g. "page size".
  virtual const char* granularity_name() const = 0;

  /// Whether every allocation has a place of its own, here and where it is imported. Then nothing is reserved,
  /// endpoints are one whole allocation each, map() and map_imported() say where it is, and importers must unmap before
  /// release().
  virtual bool is_whole() const { return false; }

  /// Reserves `bytes` of inaccessible addresses that begin at a multiple of `alignment` (a power of two).
  virtual Status reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) = 0;
  /// Gives back what reserve_addresses gave; nothing is mapped there any more.
  virtual void release_addresses(std::byte* base, uint64_t bytes) = 0;

  /// Allocates `bytes`. kOutOfMemory with the bytes asked and available.
  virtual Status allocate(uint64_t bytes, Handle* handle) = 0;
  /// Retains the program's allocation that is mapped at `address` from its start on, when it can be mapped and exported
  /// as own ones are. `*taken` becomes the bytes that are mapped there, at most `bytes`.
  virtual Status adopt(const void* address, uint64_t /*bytes*/, Handle* /*handle*/, uint64_t* /*taken*/) {
    return error(Code::kNotSupported, "only memory of the library's own is mapped here, not the program's at %p",
                 address);
  }
  /// Frees an allocation; mappings of it, here and in peers, stay good until they are unmapped.
  virtual void release(Handle handle) = 0;
  /// Where an allocation lies, when is_whole().
  virtual std::byte* address(Handle /*handle*/) const { return nullptr; }
  /// A ticket of the allocation for another process to import.
  virtual Status export_memory(Handle handle, Ticket* ticket) = 0;

  /// Maps [memory_offset, memory_offset + bytes) of an own allocation at `*address`, for reading and writing. When
  /// is_whole(), `*address` is written instead.
  virtual Status map(std::byte** address, uint64_t bytes, Handle handle, uint64_t memory_offset) = 0;
  /// The same from a peer's ticket, which is checked first: it comes from outside.
  virtual Status map_imported(std::byte** address, uint64_t bytes, const Ticket& ticket, uint64_t memory_offset) = 0;
  /// Makes whole mappings in [address, address + bytes) reserved and inaccessible again.
  virtual Status unmap(std::byte* address, uint64_t bytes) = 0;
};

}  // namespace heddle::mapped
