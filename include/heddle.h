/* What Heddle offers beyond the NVSHMEM API: the text of errors, and the figures of the heap. */
#ifndef HEDDLE_H
#define HEDDLE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/// Text of the last error: what failed, the values, which PE, and the remedy, e.g. "nvshmem_malloc: asked 2097152
/// bytes;
/// ...". The calling thread's last error, else the last of any thread. Errors stay until heddle_clear_error() or the
/// next one; successful calls change nothing, so clear before a call that returns void and look after it.
/// Never NULL; "" when there was none. Valid until this thread calls it again. May be called at any time.
const char* heddle_last_error(void);

/// Forgets the last error of this thread and of the process. Kernels that have failed must have ended: launches of a
/// graph, which may have the same number as one that failed, can wait again from now on. May be called at any time.
void heddle_clear_error(void);

/// Figures of this PE's symmetric heap, in bytes. Set `size` to sizeof(struct heddle_heap_info) before the call: a
/// library that knows fewer members zeroes the rest, one that knows more fills only those that the program has.
struct heddle_heap_info {
  size_t size;            ///< in: sizeof this structure, as the program was built
  uint64_t limit;         ///< what the heap may grow to, the library's own part included
  uint64_t in_use;        ///< in live blocks, each rounded up to 256
  uint64_t largest_free;  ///< largest block that nvshmem_malloc could give now, growth included
  uint64_t physical;      ///< memory that the heap holds now, registered buffers included
  uint64_t internal;      ///< the library's own part
  uint64_t blocks;        ///< number of live blocks
};

/// Fills `info` with this PE's figures. Local; any thread; does not wait for other PEs.
/// 0, or NVSHMEMX_ERROR_INVALID_VALUE when `info` is NULL or its size is smaller than two members, or
/// NVSHMEMX_ERROR_INTERNAL outside init and finalize.
int heddle_heap_info(struct heddle_heap_info* info);

/// Heddle's version, e.g. "0.1.0" (nvshmemx_vendor_get_version_info gives the NVSHMEM version it follows). Any time.
const char* heddle_version(void);

/// The fabric that this PE's heap is on: "host", ...; "" outside init and finalize.
const char* heddle_fabric_name(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
