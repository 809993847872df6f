// Anonymous shared memory (memfd), its mapping into reserved addresses, and how much of it there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/owned.h"
#include "runtime/status.h"

namespace heddle::host {

/// Bytes of a page: the granularity of memory and binds.
uint64_t page_bytes();

/// What one more allocation may count on.
struct AvailableMemory {
  uint64_t bytes = ~uint64_t{0};  ///< all ones: nothing readable says anything
  std::string limit;              ///< who says so, e.g. "MemAvailable of /proc/meminfo"
};

/// The least of MemAvailable and, for this process's cgroup and its parents (version 2), memory.max less what is in use
/// and cannot be reclaimed. `root` is put before every path, for tests.
AvailableMemory available_memory(const std::string& root = "");

/// Makes `bytes` of sparse shared memory that no file system names. kOutOfMemory, with the bytes asked and available,
/// when it cannot be had; pages come when they are touched, so this says what is plausible and promises nothing.
Status make_memory(uint64_t bytes, OwnedFd* fd);

/// Reserves `bytes` of inaccessible addresses at a multiple of `alignment` (a power of two). kOutOfMemory when the
/// process may not have so many.
Status reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base);
/// Gives them back, with what is mapped there.
void release_addresses(std::byte* base, uint64_t bytes);

/// Maps [memory_offset, memory_offset + bytes) of `fd` at `address`, over reserved addresses, readable and writable.
/// A descriptor that is no regular file or too small is kInvalidValue: touching it would end the process.
Status map_memory(std::byte* address, uint64_t bytes, int fd, uint64_t memory_offset);

/// Makes [address, address + bytes) reserved and inaccessible again.
Status unmap_memory(std::byte* address, uint64_t bytes);

}  // namespace heddle::host
