// Bulk copies between shared and global memory: PTX of sm_90 and up (CUDA PTX ISA, 9.7.9.25 asynchronous copies and
// 9.7.13.15 mbarrier). One thread issues; addresses and sizes are multiples of 16. Shared memory by 32-bit addresses.
#pragma once

#include "device/access.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
namespace heddle::device {

/// Earlier accesses, of this thread or ordered before it, come before later bulk copies.
HEDDLE_DEVICE HEDDLE_INLINE void fence_bulk() { asm volatile("fence.proxy.async;" ::: "memory"); }
/// The same for accesses to global memory alone.
HEDDLE_DEVICE HEDDLE_INLINE void fence_bulk_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

/// A barrier of one arrival and as many bytes as are expected.
HEDDLE_DEVICE HEDDLE_INLINE void barrier_init(uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}
/// The initialised barriers are visible to bulk copies.
HEDDLE_DEVICE HEDDLE_INLINE void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// The barrier's memory may be used for something else.
HEDDLE_DEVICE HEDDLE_INLINE void barrier_end(uint32_t barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
HEDDLE_DEVICE HEDDLE_INLINE void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
/// Whether the phase of this parity has completed; waits a while in hardware.
HEDDLE_DEVICE HEDDLE_INLINE bool barrier_completed(uint32_t barrier, uint32_t parity) {
  uint32_t completed;
  asm volatile("{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2; selp.u32 %0, 1, 0, done; }"
               : "=r"(completed)
               : "r"(barrier), "r"(parity)
               : "memory");
  return completed != 0;
}

/// Puts `value` into a word of shared memory, and returns what was there; acquire within the block.
HEDDLE_DEVICE HEDDLE_INLINE uint32_t shared_take(uint32_t word, uint32_t value) {
  uint32_t old;
  asm volatile("atom.acquire.cta.shared::cta.exch.b32 %0, [%1], %2;" : "=r"(old) : "r"(word), "r"(value) : "memory");
  return old;
}
/// Stores a word of shared memory; release within the block.
HEDDLE_DEVICE HEDDLE_INLINE void shared_leave(uint32_t word, uint32_t value) {
  asm volatile("st.release.cta.shared::cta.u32 [%0], %1;" ::"r"(word), "r"(value) : "memory");
}

/// Global, also of a peer, to shared; arrives at the barrier with its bytes.
HEDDLE_DEVICE HEDDLE_INLINE void bulk_load(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global_address(global)), "r"(bytes), "r"(barrier)
               : "memory");
}
/// Shared to global, also of a peer; one group of this thread.
HEDDLE_DEVICE HEDDLE_INLINE void bulk_store(void* global, uint32_t shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;\n\tcp.async.bulk.commit_group;" ::"l"(
                   global_address(global)),
               "r"(shared), "r"(bytes)
               : "memory");
}
/// All of this thread's stores but the latest have read their shared memory.
HEDDLE_DEVICE HEDDLE_INLINE void bulk_wait_read_but_one() {
  asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
}
/// All of this thread's stores are done, and visible to it as its own stores are.
HEDDLE_DEVICE HEDDLE_INLINE void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

}  // namespace heddle::device
#endif
