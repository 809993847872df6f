// The library leaves the legacy default stream alone: while a kernel of the program spins there, host calls and calls
// on a stream that does not block complete. Every spin ends by itself after two seconds. Two PEs.
#include <chrono>
#include <thread>

#include "tests/gpu/gpu.cuh"

namespace {

using gpu::me;
using gpu::must;
using gpu::right;
using gpu::that;

/// In pinned memory, for the host and the kernel that spins.
struct Flags {
  int started, stop, ended;
};
volatile Flags* flags;
cudaStream_t stream;

__device__ uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void spin(volatile Flags* flags) {
  const uint64_t start = now_ns();
  flags->started = 1;
  __threadfence_system();
  while (flags->stop == 0 && now_ns() - start < 2000000000ull) __nanosleep(1000);
  flags->ended = 1;
  __threadfence_system();
}

template <class Condition>
bool becomes(const Condition& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

void wait() { must(cudaStreamSynchronize(stream), "the stream"); }

/// `calls` come back while the kernel spins. Both PEs make them.
template <class Calls>
void beside_spin(const char* what, const Calls& calls) {
  nvshmem_barrier_all();
  flags->started = flags->stop = flags->ended = 0;
  spin<<<1, 1, 0, cudaStreamLegacy>>>(flags);
  must(cudaGetLastError(), "spin");
  that(becomes([] { return flags->started == 1; }), "the kernel spins");
  calls();
  const bool spins = flags->ended == 0 && cudaStreamQuery(cudaStreamLegacy) == cudaErrorNotReady;
  nvshmem_barrier_all();  // the other has looked too
  flags->stop = 1;
  must(cudaStreamSynchronize(cudaStreamLegacy), "spin");
  that(spins, std::string(what) + " does not wait for the legacy stream");
}

/// What does use the legacy stream waits for the kernel's own end: so the test can tell.
void check_that_it_shows(void* plain) {
  nvshmem_barrier_all();
  flags->started = flags->stop = flags->ended = 0;
  spin<<<1, 1, 0, cudaStreamLegacy>>>(flags);
  that(becomes([] { return flags->started == 1; }), "the kernel spins");
  must(cudaMemsetAsync(plain, 0, 8, cudaStreamLegacy), "memset");
  must(cudaStreamSynchronize(cudaStreamLegacy), "memset");
  that(flags->ended == 1, "work on the legacy stream waits for the kernel");
}

struct Local {
  const char* name;
  char* at;
};

void check_host_calls(char* box, uint64_t* words, const Local& local) {
  const auto name = [&](const char* call) { return std::string(call) + ", " + local.name; };
  for (const size_t bytes : {size_t{8}, size_t{100}, size_t{1} << 20}) {
    beside_spin((name("put of ") + std::to_string(bytes)).c_str(), [&] {
      nvshmem_putmem(box, local.at, bytes, right);
      nvshmem_putmem_nbi(box, local.at, bytes, right);
      nvshmem_fence();
      nvshmem_putmem_signal(box, local.at, bytes, words, 1, NVSHMEM_SIGNAL_ADD, right);
      nvshmem_putmem_signal(box, local.at, bytes, words, 1, NVSHMEM_SIGNAL_SET, right);
      nvshmem_quiet();
    });
    beside_spin((name("get of ") + std::to_string(bytes)).c_str(), [&] {
      nvshmem_getmem(local.at, box, bytes, right);
      nvshmem_getmem_nbi(local.at, box, bytes, right);
      nvshmem_quiet();
    });
  }
  beside_spin(name("iput and iget").c_str(), [&] {
    nvshmem_uint64_iput(reinterpret_cast<uint64_t*>(box), reinterpret_cast<uint64_t*>(local.at), 2, 3, 100, right);
    nvshmem_uint64_iget(reinterpret_cast<uint64_t*>(local.at), reinterpret_cast<uint64_t*>(box), 2, 3, 100, right);
    nvshmem_quiet();
  });
}

void check_host_words(uint64_t* words) {
  uint64_t* const word = words + 1;
  beside_spin("p and g", [&] {
    nvshmem_uint64_p(word, 5, right);
    nvshmem_quiet();
    that(nvshmem_uint64_g(word, right) == 5, "g");
  });
  beside_spin("atomics", [&] {
    nvshmem_uint64_atomic_add(word, 1, right);
    nvshmem_uint64_atomic_set(word + 1, 1, right);
    (void)nvshmem_uint64_atomic_fetch_add(word, 1, right);
    (void)nvshmem_uint64_atomic_compare_swap(word, 0, 1, right);
    nvshmem_quiet();
  });
  beside_spin("signals and waits", [&] {
    nvshmemx_signal_op(word + 2, 6, NVSHMEM_SIGNAL_SET, right);
    (void)nvshmem_signal_wait_until(word + 2, NVSHMEM_CMP_EQ, 6);
    nvshmem_uint64_wait_until(word + 2, NVSHMEM_CMP_NE, 0);
    that(nvshmem_uint64_test(word + 2, NVSHMEM_CMP_GT, 5) == 1, "test");
    nvshmem_barrier_all();
    nvshmemx_signal_op(word + 2, 1, NVSHMEM_SIGNAL_ADD, right);
    (void)nvshmem_signal_wait_until(word + 2, NVSHMEM_CMP_EQ, 7);
  });
  beside_spin("barriers", [] {
    nvshmem_sync_all();
    nvshmem_barrier_all();
    nvshmem_barrier(NVSHMEM_TEAM_WORLD);
  });
  beside_spin("malloc and free", [] { nvshmem_free(gpu::allocate<char>(4096)); });
}

void check_stream_calls(char* box, uint64_t* words, const Local& local) {
  const auto name = [&](const char* call) { return std::string(call) + ", " + local.name; };
  for (const size_t bytes : {size_t{8}, size_t{100}, size_t{1} << 20}) {
    beside_spin((name("put_on_stream of ") + std::to_string(bytes)).c_str(), [&] {
      nvshmemx_putmem_on_stream(box, local.at, bytes, right, stream);
      nvshmemx_putmem_signal_on_stream(box, local.at, bytes, words, 1, NVSHMEM_SIGNAL_ADD, right, stream);
      nvshmemx_putmem_signal_on_stream(box, local.at, bytes, words, 1, NVSHMEM_SIGNAL_SET, right, stream);
      wait();
    });
    beside_spin((name("get_on_stream of ") + std::to_string(bytes)).c_str(), [&] {
      nvshmemx_getmem_on_stream(local.at, box, bytes, right, stream);
      wait();
    });
  }
  beside_spin(name("iput_on_stream and iget_on_stream").c_str(), [&] {
    auto* const symmetric = reinterpret_cast<uint64_t*>(box);
    auto* const own = reinterpret_cast<uint64_t*>(local.at);
    nvshmemx_uint64_iput_on_stream(symmetric, own, 2, 3, 100, right, stream);
    nvshmemx_uint64_iget_on_stream(own, symmetric, 2, 3, 100, right, stream);
    wait();
  });
}

void check_stream_words(uint64_t* words) {
  uint64_t* const word = words + 4;
  beside_spin("p_on_stream and g_on_stream", [&] {
    nvshmemx_uint64_p_on_stream(word, 8, right, stream);
    that(nvshmemx_uint64_g_on_stream(word, right, stream) == 8, "g_on_stream");
  });
  beside_spin("signals and waits on streams", [&] {
    nvshmemx_signal_op_on_stream(word + 1, 6, NVSHMEM_SIGNAL_ADD, right, stream);
    nvshmemx_signal_wait_until_on_stream(word + 1, NVSHMEM_CMP_EQ, 6, stream);
    nvshmemx_uint64_wait_until_on_stream(word + 1, NVSHMEM_CMP_EQ, 6, stream);
    nvshmemx_uint64_wait_until_all_on_stream(word + 1, 1, nullptr, NVSHMEM_CMP_EQ, 6, stream);
    wait();
  });
  beside_spin("barriers on streams", [] {
    nvshmemx_quiet_on_stream(stream);
    nvshmemx_flush_on_stream(stream);
    nvshmemx_barrier_all_on_stream(stream);
    nvshmemx_sync_all_on_stream(stream);
    wait();
  });
}

/// The heap grows by what it must map, and kernels are told.
void check_growth() {
  void* block = nullptr;
  beside_spin("malloc that makes the heap grow", [&] { block = gpu::allocate<char>(100u << 20); });
  beside_spin("free that makes it shrink", [&] { nvshmem_free(block); });
}

}  // namespace

int main() {
  gpu::start();
  if (std::string(heddle_fabric_name()).find("peer") != 0) gpu::skip(std::string("fabric ") + heddle_fabric_name());
  constexpr size_t kBytes = 1u << 20;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  void* pinned = nullptr;
  must(cudaMallocHost(&pinned, sizeof(Flags)), "cudaMallocHost");
  flags = static_cast<volatile Flags*>(pinned);
  flags->stop = 1;
  spin<<<1, 1, 0, cudaStreamLegacy>>>(flags);  // loads it, which could wait for other kernels
  gpu::done("spin");
  auto* const box = gpu::allocate<char>(kBytes);
  auto* const symmetric = gpu::allocate<char>(kBytes);
  auto* const words = gpu::allocate<uint64_t>(8);
  std::vector<char> pageable(kBytes, 1);
  void *plain = nullptr, *host = nullptr;
  must(cudaMalloc(&plain, kBytes), "cudaMalloc");
  must(cudaMallocHost(&host, kBytes), "cudaMallocHost");
  for (const Local& local : {Local{"symmetric", symmetric}, Local{"GPU", static_cast<char*>(plain)},
                             Local{"pinned", static_cast<char*>(host)}, Local{"pageable", pageable.data()}}) {
    check_host_calls(box, words, local);
    check_stream_calls(box, words, local);
  }
  check_that_it_shows(plain);
  check_host_words(words);
  check_stream_words(words);
  check_growth();
  must(cudaFreeHost(host), "cudaFreeHost");
  must(cudaFree(plain), "cudaFree");
  nvshmem_free(words);
  nvshmem_free(symmetric);
  nvshmem_free(box);
  must(cudaFreeHost(pinned), "cudaFreeHost");
  must(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return gpu::finish("legacy_stream");
}
