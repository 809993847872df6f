// A translation unit with a kernel, as programs have several. Define UNIT as its name before: the kernel is
// UNIT_kernel, and the host function UNIT launches it. In a module that is loaded by hand there is the kernel alone.
#pragma once

#include <nvshmem.h>
#include <nvshmemx.h>

#define JOIN_(A, B) A##B
#define JOIN(A, B) JOIN_(A, B)

// 64 threads in one block, on every PE. `box` holds 192 ints of the heap: two inboxes of 64 and an outbox. Adds what is
// wrong to *wrong.
extern "C" __global__ void JOIN(UNIT, _kernel)(int* box, uint64_t* signal, uint64_t round, int* wrong) {
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
  const int t = static_cast<int>(threadIdx.x);
  // A state that was not refreshed does not know memory that came later.
  if (nvshmem_ptr(box + 191, right) == nullptr) atomicAdd(wrong, 1000);
  box[128 + t] = static_cast<int>(round) * 100 + me;
  __syncthreads();
  nvshmemx_int_put_block(box, box + 128, 64, right);
  nvshmemx_int_put_signal_block(box + 64, box + 128, 64, signal, round, NVSHMEM_SIGNAL_SET, right);
  if (t == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, round);
  nvshmemx_barrier_all_block();
  const int expected = static_cast<int>(round) * 100 + left;
  if (box[t] != expected || box[64 + t] != expected) atomicAdd(wrong, 1);
  nvshmemx_barrier_all_block();
}

#if !defined(HEDDLE_MODULE) && !defined(__CUDACC_RTC__)
/// Launches the kernel and waits for it: a CUDA error code.
extern "C" __attribute__((visibility("default"))) int UNIT(int* box, uint64_t* signal, uint64_t round, int* wrong) {
  JOIN(UNIT, _kernel)<<<1, 64>>>(box, signal, round, wrong);
  const cudaError_t launched = cudaGetLastError();
  const cudaError_t ended = cudaDeviceSynchronize();
  return static_cast<int>(launched != cudaSuccess ? launched : ended);
}
#endif
