// What the GPU programs share: one GPU for each PE, checks that count, and one closing line. A program that finds fewer
// GPUs than it has PEs leaves with 77, saying so, unless GPU_TESTS_SHARE=1 lets PEs share a GPU; their kernels
// wait for each other, so that is meant for CUDA MPS: GPU_TESTS_SHARE=1 tests/gpu/with_mps.sh ctest -L gpu
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "heddle.h"
#include "nvshmem.h"
#include "nvshmemx.h"

namespace gpu {

inline long passed = 0, failed = 0;
inline int me = 0, n = 1, right = 0, left = 0;  // this PE, how many, and its neighbours

/// Counts one expectation and says what failed.
inline bool that(bool condition, const std::string& what) {
  if (condition) {
    ++passed;
  } else if (++failed <= 20) {
    std::fprintf(stderr, "PE %d: FAILED: %s (last error: %s)\n", me, what.c_str(), heddle_last_error());
  }
  return condition;
}

/// CUDA calls that cannot fail in a program that makes sense to continue.
inline void must(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::fprintf(stderr, "PE %d: FAILED: %s: %s\n", me, what, cudaGetErrorString(code));
  std::_Exit(1);  // no orderly end: the GPU may be lost
}
/// The last launch, and all kernels so far, have ended well.
inline void done(const char* what) {
  must(cudaGetLastError(), what);
  must(cudaDeviceSynchronize(), what);
}

[[noreturn]] inline void skip(const std::string& why) {
  std::printf("skipped: %s\n", why.c_str());
  std::fflush(stdout);
  std::_Exit(77);
}

/// Joins the job and takes a GPU of one's own.
inline void start() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) skip("there is no GPU");
  nvshmem_init();
  if (nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED) {
    std::fprintf(stderr, "FAILED: nvshmem_init: %s\n", heddle_last_error());
    std::_Exit(1);
  }
  me = nvshmem_my_pe();
  n = nvshmem_n_pes();
  right = (me + 1) % n;
  left = (me + n - 1) % n;
  const int on_node = nvshmem_team_n_pes(NVSHMEMX_TEAM_NODE);
  const char* const share = std::getenv("GPU_TESTS_SHARE");
  if (devices < on_node && (share == nullptr || std::strcmp(share, "1") != 0)) {
    nvshmem_finalize();
    skip(std::to_string(on_node) + " PEs but " + std::to_string(devices) + " GPU(s)");
  }
  must(cudaSetDevice(nvshmem_team_my_pe(NVSHMEMX_TEAM_NODE) % devices), "cudaSetDevice");
}

/// Symmetric memory that the program cannot do without.
template <class T>
T* allocate(size_t count) {
  void* const block = nvshmem_calloc(count, sizeof(T));
  if (block == nullptr) {
    std::fprintf(stderr, "PE %d: FAILED: %s\n", me, heddle_last_error());
    std::_Exit(1);
  }
  return static_cast<T*>(block);
}

template <class T>
std::vector<T> fetch(const T* device, size_t count) {
  std::vector<T> host(count);
  must(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost), "copy from the GPU");
  return host;
}
template <class T>
void give(T* device, const std::vector<T>& host) {
  must(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), "copy to the GPU");
}
/// A copy of `host` in memory of this GPU that is not symmetric.
template <class T>
T* on_gpu(const std::vector<T>& host) {
  T* device = nullptr;
  must(cudaMalloc(&device, host.size() * sizeof(T)), "cudaMalloc");
  give(device, host);
  return device;
}

/// Byte `at` of what PE `pe` sends.
__host__ __device__ inline unsigned char pattern(size_t at, int pe) {
  const uint32_t mixed = (static_cast<uint32_t>(at) * 2654435761u) ^ (static_cast<uint32_t>(pe + 1) * 40503u);
  return static_cast<unsigned char>(mixed >> 13);
}
inline std::vector<unsigned char> patterns(size_t bytes, int pe) {
  std::vector<unsigned char> all(bytes);
  for (size_t i = 0; i < bytes; ++i) all[i] = pattern(i, pe);
  return all;
}

/// Prints the line, ends the world, and gives the exit code: 0 when no PE has failed.
inline int finish(const char* name) {
  long* const totals = allocate<long>(2);
  nvshmem_long_atomic_add(&totals[0], passed, 0);
  nvshmem_long_atomic_add(&totals[1], failed, 0);
  nvshmem_barrier_all();
  const long all_passed = nvshmem_long_g(&totals[0], 0), all_failed = nvshmem_long_g(&totals[1], 0);
  if (me == 0) std::printf("%s: %ld passed, %ld failed\n", name, all_passed, all_failed);
  nvshmem_barrier_all();
  nvshmem_free(totals);
  nvshmem_finalize();
  return all_failed == 0 && failed == 0 && all_passed > 0 ? 0 : 1;
}

}  // namespace gpu
