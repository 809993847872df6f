// The shortest program that takes every path once: a heap in GPU memory, host calls on it, kernels that put, update,
// signal and wait, barriers of both kinds. Run with 2 PEs, one GPU each (or one for both).
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "heddle.h"
#include "nvshmem.h"
#include "nvshmemx.h"

namespace {

int failed = 0;
int passed = 0;

void that(bool condition, const char* what) {
  condition ? ++passed : ++failed;
  if (!condition)
    std::fprintf(stderr, "PE %d: FAILED: %s (last error: %s)\n", nvshmem_my_pe(), what, heddle_last_error());
}

void must(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "FAILED: %s: %s\n", what, cudaGetErrorString(code));
  std::exit(1);
}

constexpr size_t kWords = 1 << 18;

__global__ void exchange(unsigned* box, const unsigned* message, unsigned long long* word, uint64_t* signal,
                         int* seen) {
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes(), right = (me + 1) % n;
  nvshmemx_uint_put_block(box, message, kWords, right);
  if (threadIdx.x == 0) {
    nvshmem_ulonglong_atomic_fetch_add(word, 5, right);
    nvshmem_fence();
    nvshmemx_signal_op(signal, 1, NVSHMEM_SIGNAL_SET, right);
    nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, 1);
    nvshmem_int_p(seen, me + 1, right);
  }
  nvshmemx_barrier_all_block();
}

__global__ void send(unsigned* box, const unsigned* message, uint64_t* signal) {
  const int right = (nvshmem_my_pe() + 1) % nvshmem_n_pes();
  nvshmemx_uint_put_signal_block(box, message, kWords, signal, 7, NVSHMEM_SIGNAL_SET, right);
  if (threadIdx.x == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, 7);
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: there is no GPU\n");
    return 77;
  }
  nvshmem_init();
  if (nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED) return 2;
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
  std::printf("PE %d of %d on fabric %s\n", me, n, heddle_fabric_name());
  must(cudaSetDevice(nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE) % devices), "cudaSetDevice");
  auto* box = static_cast<unsigned*>(nvshmem_malloc(kWords * 4));
  auto* source = static_cast<unsigned*>(nvshmem_malloc(kWords * 4));
  auto* word = static_cast<unsigned long long*>(nvshmem_calloc(1, 8));
  auto* signal = static_cast<uint64_t*>(nvshmem_calloc(2, 8));
  auto* seen = static_cast<int*>(nvshmem_calloc(1, 4));
  that(box && source && word && signal && seen, "heap");
  if (failed > 0) return 1;

  // Host calls.
  std::vector<unsigned> message(kWords), got(kWords);
  for (size_t i = 0; i < kWords; ++i) message[i] = static_cast<unsigned>(i * 3 + static_cast<size_t>(me));
  nvshmem_uint_put(box, message.data(), kWords, right);
  nvshmem_barrier_all();
  nvshmem_uint_get(got.data(), box, kWords, me);
  bool right_values = true;
  for (size_t i = 0; i < kWords; ++i) right_values &= got[i] == i * 3 + static_cast<size_t>(left);
  that(right_values, "host put");
  nvshmem_barrier_all();
  nvshmem_ulonglong_p(word, 40, right);
  nvshmem_barrier_all();
  that(nvshmem_ulonglong_g(word, me) == 40, "host p and g");
  that(nvshmem_ulonglong_atomic_fetch_add(word, 2, right) == 40, "host fetch_add");
  nvshmem_barrier_all();
  that(nvshmem_ulonglong_g(word, right) == 42, "host g from the peer");

  // A kernel.
  must(cudaMemcpy(source, message.data(), kWords * 4, cudaMemcpyHostToDevice), "copy to the heap");
  nvshmem_barrier_all();
  exchange<<<1, 256>>>(box, source, word, signal, seen);
  must(cudaGetLastError(), "launch of exchange");
  must(cudaDeviceSynchronize(), "exchange");
  must(cudaMemcpy(got.data(), box, kWords * 4, cudaMemcpyDeviceToHost), "copy from the heap");
  right_values = true;
  for (size_t i = 0; i < kWords; ++i) right_values &= got[i] == i * 3 + static_cast<size_t>(left);
  that(right_values, "block put of a kernel");
  that(nvshmem_ulonglong_g(word, me) == 47, "atomic of a kernel");
  that(nvshmem_int_g(seen, me) == left + 1, "p of a kernel");
  nvshmem_barrier_all();
  must(cudaMemset(box, 0, kWords * 4), "clear");
  must(cudaDeviceSynchronize(), "clear");
  nvshmem_barrier_all();
  send<<<1, 512>>>(box, source, signal + 1);
  must(cudaDeviceSynchronize(), "send");
  must(cudaMemcpy(got.data(), box, kWords * 4, cudaMemcpyDeviceToHost), "copy from the heap");
  right_values = true;
  for (size_t i = 0; i < kWords; ++i) right_values &= got[i] == i * 3 + static_cast<size_t>(left);
  that(right_values, "put_signal of a kernel");
  nvshmem_barrier_all();
  nvshmem_free(box);
  nvshmem_free(source);
  std::printf("PE %d: %d passed, %d failed\n", me, passed, failed);
  nvshmem_finalize();
  return failed == 0 ? 0 : 1;
}
