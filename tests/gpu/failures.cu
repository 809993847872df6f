// What kernels, streams and host calls on GPU memory do when something is wrong: a PE is killed while they wait, there
// is no world, a launch cannot be, memory is short, the heap grows under a kernel, GPUs are hidden. One case for each
// run, named by the first argument; failures.py judges what is printed.
#include <signal.h>

#include <chrono>
#include <thread>

#include "gpu.cuh"

namespace {

using gpu::me;
using gpu::must;
using gpu::that;

std::chrono::steady_clock::time_point now() { return std::chrono::steady_clock::now(); }
uint64_t milliseconds() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now().time_since_epoch()).count());
}

/// The error of a kernel, once there is one: the library looks every 20 ms.
std::string awaited_error() {
  const uint64_t begin = milliseconds();
  while (*heddle_last_error() == '\0' && milliseconds() < begin + 2000) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return heddle_last_error();
}
bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

int rank_of_launcher() {
  const char* const rank = std::getenv("PMIX_RANK");
  return rank == nullptr ? 0 : std::atoi(rank);
}

// ---- a PE is killed

enum Wait { kWaitUntil, kWaitUntilAny, kSignal, kCounted, kBarrierThread, kBarrierWarp, kBarrierBlock, kWaits };

__global__ void wait_for_the_lost(int how, uint64_t* word, int* through) {
  switch (how) {
    case kWaitUntil:
      nvshmem_uint64_wait_until(word, NVSHMEM_CMP_EQ, 1);
      break;
    case kWaitUntilAny:
      (void)nvshmem_uint64_wait_until_any(word, 4, nullptr, NVSHMEM_CMP_NE, 0);
      break;
    case kSignal:
      (void)nvshmem_signal_wait_until(word, NVSHMEM_CMP_EQ, 1);
      break;
    case kCounted:
      nvshmemx_signal_counted_wait_until(word, 64);
      break;
    case kBarrierThread:
      if (threadIdx.x == 0) nvshmem_barrier_all();
      break;
    case kBarrierWarp:
      if (threadIdx.x < 32) nvshmemx_barrier_all_warp();
      break;
    default:
      nvshmemx_barrier_all_block();
  }
  if (threadIdx.x == 0) *through = 1;
}

__global__ void add_one(int* word) { *word += 1; }

/// PE 1 kills itself; the others say how long their wait went on, and what they were told.
int lose_a_pe(const std::string& where) {
  const char* const names[] = {"wait_until", "wait_until_any", "signal",       "counted",
                               "barrier",    "barrier_warp",   "barrier_block"};
  gpu::start();
  uint64_t* const word = gpu::allocate<uint64_t>(32);
  uint64_t* const killed_at = gpu::allocate<uint64_t>(1);
  int* const through = gpu::on_gpu(std::vector<int>{0});
  cudaStream_t stream;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  nvshmem_barrier_all();
  if (me == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int pe = 0; pe < gpu::n; ++pe) nvshmem_uint64_p(killed_at, milliseconds(), pe);
    nvshmem_quiet();
    raise(SIGKILL);
  }
  heddle_clear_error();
  if (where == "host") {
    nvshmem_uint64_wait_until(word, NVSHMEM_CMP_EQ, 1);
  } else if (where == "host_barrier") {
    nvshmem_barrier_all();
  } else if (where == "stream_wait") {
    nvshmemx_signal_wait_until_on_stream(word, NVSHMEM_CMP_EQ, 1, stream);
    must(cudaStreamSynchronize(stream), "wait on a stream");
  } else if (where == "stream_barrier") {
    nvshmemx_barrier_all_on_stream(stream);
    must(cudaStreamSynchronize(stream), "barrier on a stream");
  } else {
    int how = 0;
    while (how < kWaits && where != names[how]) ++how;
    if (how == kWaits) return 2;
    wait_for_the_lost<<<1, 64, 0, stream>>>(how, word, through);
    must(cudaGetLastError(), "launch");
    must(cudaStreamSynchronize(stream), "wait of a kernel");
  }
  const uint64_t ended = milliseconds();
  const std::string text = awaited_error();
  const uint64_t killed = gpu::fetch(killed_at, 1)[0];
  std::fprintf(stderr, "PE %d: %s ended after %ld ms: %s\n", me, where.c_str(), static_cast<long>(ended - killed),
               text.c_str());
  that(killed != 0 && ended < killed + 1000, "the wait ended within a second");
  that(has(text, "PE 1"), "the lost PE is named");
  const int before = gpu::fetch(through, 1)[0];
  that(before == 0, "what waited did not go on");
  add_one<<<1, 1, 0, stream>>>(through);
  must(cudaStreamSynchronize(stream), "a kernel after the loss");
  that(gpu::fetch(through, 1)[0] == before + 1, "the context works after the loss");
  nvshmem_finalize();
  return gpu::failed == 0 ? 0 : 3;
}

// ---- no world: waits and barriers end in every build

void wait_outside(const char* when, uint64_t* word) {
  int* const through = gpu::on_gpu(std::vector<int>{0});
  for (int how = 0; how < kWaits; ++how) {
    const uint64_t begin = milliseconds();
    wait_for_the_lost<<<1, 64>>>(how, word, through);
    gpu::done(when);
    that(milliseconds() < begin + 2000, std::string("a wait ") + when + " ends");
    that(gpu::fetch(through, 1)[0] == 0, std::string("a wait ") + when + " does not return");
  }
  must(cudaFree(through), "cudaFree");
}

__global__ void send(uint64_t* signal, int pe) {
  nvshmemx_signal_op(signal, 1, NVSHMEM_SIGNAL_SET, pe);
  (void)nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, 1);
  nvshmem_barrier_all();
}

int run_outside() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) gpu::skip("there is no GPU");
  must(cudaSetDevice(rank_of_launcher() % devices), "cudaSetDevice");
  uint64_t* const word = gpu::on_gpu(std::vector<uint64_t>(32));
  wait_outside("before init", word);
  for (int round = 0; round < 2; ++round) {
    heddle_clear_error();
    gpu::start();
    const std::string text = awaited_error();
    const char* const first = "a kernel's nvshmem_uint64_wait_until (block 0,0,0, thread ";
    that(has(text, first) && has(text, "called outside init and finalize"), "init tells of kernels before it: " + text);
    heddle_clear_error();
    uint64_t* const signal = gpu::allocate<uint64_t>(1);
    nvshmem_barrier_all();
    send<<<1, 1>>>(signal, gpu::right);
    gpu::done("send");
    that(*heddle_last_error() == '\0', "kernels work between init and finalize");
    nvshmem_barrier_all();
    const int code = gpu::finish("failures outside");
    if (code != 0) return code;
    wait_outside("after finalize", signal);  // whose memory is gone
  }
  const std::string text = awaited_error();
  that(has(text, "called outside init and finalize"), "heddle_last_error tells of kernels after finalize: " + text);
  return gpu::failed == 0 ? 0 : 1;
}

// ---- launches

__global__ void meet(int* count) {
  __shared__ char some[1024];
  some[threadIdx.x] = 1;
  atomicAdd(count, some[threadIdx.x]);
  if (blockIdx.x == 0) nvshmemx_barrier_all_block();
}

int launch() {
  gpu::start();
  int* const count = gpu::allocate<int>(1);
  int* argument = count;
  void* arguments[] = {&argument};
  const auto* const kernel = reinterpret_cast<const void*>(meet);
  int most = 0;
  that(nvshmemx_collective_launch_query_gridsize(kernel, 64, arguments, 0, &most) == 0 && most > 0, "query_gridsize");
  that(nvshmemx_collective_launch(kernel, most, 64, arguments, 0, nullptr) == 0, "the largest grid");
  gpu::done("the largest grid");
  that(gpu::fetch(count, 1)[0] == 64 * most, "all blocks of the largest grid");
  const struct {
    const char* what;
    const void* function;
    dim3 grid, block;
    size_t shared;
    std::string words;
  } bad[] = {
      {"a grid that is too large", kernel, dim3(static_cast<unsigned>(most) + 1), dim3(64), 0,
       "at most " + std::to_string(most) + " such blocks"},
      {"a grid of 3 dimensions", kernel, dim3(static_cast<unsigned>(most), 2, 2), dim3(64), 0,
       "cannot be resident at once"},
      {"blocks of no threads", kernel, dim3(1), dim3(0, 1, 1), 0,
       "blocks of 0 x 1 x 1 threads; this kernel takes 1 to"},
      {"blocks that are too large", kernel, dim3(1), dim3(64, 64), 0, "blocks of 64 x 64 x 1 threads"},
      {"too much shared memory", kernel, dim3(1), dim3(64), 1u << 20, "1048576 bytes of dynamic shared memory"},
      {"no function", nullptr, dim3(1), dim3(64), 0, "is no kernel of this program"},
  };
  for (const auto& one : bad) {
    heddle_clear_error();
    const int code = nvshmemx_collective_launch(one.function, one.grid, one.block, arguments, one.shared, nullptr);
    that(code == NVSHMEMX_ERROR_INVALID_VALUE, std::string(one.what) + ": status " + std::to_string(code));
    that(has(heddle_last_error(), one.words), std::string(one.what) + ": words");
    that(cudaGetLastError() == cudaSuccess, std::string(one.what) + ": leaves no error in the CUDA runtime");
    if (one.grid.x > static_cast<unsigned>(most) || one.grid.y > 1) continue;
    that(nvshmemx_collective_launch_query_gridsize(one.function, one.block, arguments, one.shared, &most) ==
             NVSHMEMX_ERROR_INVALID_VALUE,
         std::string(one.what) + ": query_gridsize");
  }
  that(nvshmemx_collective_launch_query_gridsize(kernel, 64, arguments, 0, nullptr) == NVSHMEMX_ERROR_INVALID_VALUE,
       "gridsize is NULL");
  that(nvshmemx_collective_launch_attr(nullptr, kernel, arguments) == NVSHMEMX_ERROR_INVALID_VALUE, "attr is NULL");
  nvshmemx_collective_launch_attr_t without{};
  without.cuda_config.gridDim = without.cuda_config.blockDim = dim3(1);
  without.cuda_config.numAttrs = 2;
  heddle_clear_error();
  that(nvshmemx_collective_launch_attr(&without, kernel, arguments) == NVSHMEMX_ERROR_INVALID_VALUE, "attrs is NULL");
  that(has(heddle_last_error(), "attrs is NULL, but numAttrs is 2"), "attrs is NULL: words");
  heddle_clear_error();
  that(nvshmemx_collective_launch(kernel, 0, 64, arguments, 0, nullptr) == 0, "a grid of 0 is the largest");
  gpu::done("a launch after those that were refused");
  that(gpu::fetch(count, 1)[0] == 2 * 64 * most, "all blocks of the grid of 0");
  nvshmem_free(count);
  return gpu::finish("failures launch");
}

// ---- memory. The heap's limit is 16 GiB.

int run_short_of_memory() {
  gpu::start();
  constexpr size_t kGiB = size_t{1} << 30;
  std::vector<void*> taken;
  if (me == 0) {
    size_t free_bytes = 0, all_bytes = 0;
    void* block = nullptr;
    for (size_t piece = 8 * kGiB; piece >= kGiB / 4; piece /= 2) {
      while (cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess && free_bytes > piece + kGiB &&
             cudaMalloc(&block, piece) == cudaSuccess) {
        taken.push_back(block);
      }
    }
    (void)cudaGetLastError();
    std::fprintf(stderr, "PE 0 leaves %zu bytes free\n", free_bytes);
  }
  nvshmem_barrier_all();
  heddle_clear_error();
  void* const large = nvshmem_malloc(8 * kGiB);
  that(large == nullptr, "8 GiB are refused on every PE, as PE 0's GPU has no more");
  std::fprintf(stderr, "PE %d was refused: %s\n", me, heddle_last_error());
  char* const small = static_cast<char*>(nvshmem_calloc(1, size_t{1} << 20));
  that(small != nullptr, "1 MiB after that");
  nvshmem_barrier_all();
  if (small != nullptr) nvshmem_char_p(small + 5, static_cast<char>(me + 1), gpu::right);
  nvshmem_barrier_all();
  that(small != nullptr && nvshmem_char_g(small + 5, me) == gpu::left + 1, "which works");
  for (void* const block : taken) must(cudaFree(block), "cudaFree");
  nvshmem_barrier_all();
  void* const second = nvshmem_malloc(8 * kGiB);
  that(second != nullptr, "8 GiB when there is room");
  heddle_clear_error();
  that(nvshmem_malloc(16 * kGiB) == nullptr && has(heddle_last_error(), "limit"), "more than the heap's limit");
  nvshmem_free(second);
  nvshmem_free(small);
  return gpu::finish("failures memory");
}

// ---- growth under a kernel that waits

__global__ void wait_then_use(uint64_t* word, int* const* later) {
  nvshmem_uint64_wait_until(word, NVSHMEM_CMP_EQ, 1);
  if (*later != nullptr) nvshmem_int_p(*later, 7, (nvshmem_my_pe() + 1) % nvshmem_n_pes());
}

__global__ void use(int* block, size_t at, int value, int pe) { nvshmem_int_p(block + at, value, pe); }

int grow_under_a_kernel() {
  gpu::start();
  constexpr size_t kCount = size_t{16} << 20;  // 64 MiB
  uint64_t* const word = gpu::allocate<uint64_t>(1);
  int** const later = gpu::on_gpu(std::vector<int*>{nullptr});
  cudaStream_t waiting, other;
  must(cudaStreamCreateWithFlags(&waiting, cudaStreamNonBlocking), "stream");
  must(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "stream");
  // CUDA loads a kernel at its first use, and that waits for the kernels that run.
  cudaFuncAttributes loaded;
  must(cudaFuncGetAttributes(&loaded, use), "use is loaded");
  nvshmem_barrier_all();
  const uint64_t begin = milliseconds();
  wait_then_use<<<1, 1, 0, waiting>>>(word, later);
  must(cudaGetLastError(), "launch");
  int* block = nullptr;
  for (int round = 0; round < 3; ++round) {
    block = static_cast<int*>(nvshmem_malloc(kCount * (static_cast<size_t>(round) + 1) * sizeof(int)));
    that(block != nullptr, "the heap grows under a kernel that waits");
    if (block == nullptr) break;
    const int value = 10 * round + me;
    nvshmem_int_p(block + kCount - 1, value, gpu::right);  // host call into what is new
    nvshmem_barrier_all();
    that(nvshmem_int_g(block + kCount - 1, me) == 10 * round + gpu::left, "a host call into new memory");
    use<<<1, 1, 0, other>>>(block, kCount - 2, value + 100, gpu::right);  // a kernel beside the one that waits
    must(cudaStreamSynchronize(other), "use");
    nvshmem_barrier_all();
    that(nvshmem_int_g(block + kCount - 2, me) == 100 + 10 * round + gpu::left, "a kernel into new memory");
    that(cudaStreamQuery(waiting) == cudaErrorNotReady, "the first kernel still waits");
    nvshmem_barrier_all();
    if (round < 2) nvshmem_free(block);
  }
  std::fprintf(stderr, "PE %d: three growths under a kernel took %ld ms\n", me,
               static_cast<long>(milliseconds() - begin));
  // The kernel that was there before the growth writes into memory that came after its launch.
  must(cudaMemcpyAsync(later, &block, sizeof block, cudaMemcpyHostToDevice, other), "later");
  must(cudaStreamSynchronize(other), "later");
  nvshmem_barrier_all();
  nvshmem_uint64_p(word, 1, gpu::right);
  nvshmem_quiet();
  must(cudaStreamSynchronize(waiting), "the kernel that waits");
  nvshmem_barrier_all();
  that(block != nullptr && nvshmem_int_g(block, me) == 7, "it has written into memory that came after its launch");
  that(*heddle_last_error() == '\0', std::string("no error: ") + heddle_last_error());
  nvshmem_barrier_all();
  nvshmem_free(block);
  must(cudaFree(later), "cudaFree");
  nvshmem_free(word);
  return gpu::finish("failures growth");
}

// ---- init with what cannot be, and host calls where no GPU is seen

/// `devices`: CUDA_VISIBLE_DEVICES of this PE, nullptr: as it is.
int say_hello(const char* devices) {
  if (devices != nullptr) setenv("CUDA_VISIBLE_DEVICES", devices, 1);
  nvshmem_init();
  if (nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED) {
    std::fprintf(stderr, "PE %d: init failed: %s\n", rank_of_launcher(), heddle_last_error());
    return 1;
  }
  const int mine = nvshmem_my_pe(), all = nvshmem_n_pes();
  int* const box = static_cast<int*>(nvshmem_calloc(1, sizeof(int)));
  nvshmem_int_p(box, mine + 1, (mine + 1) % all);
  nvshmem_barrier_all();
  std::fprintf(stderr, "PE %d: hello on %s, got %d\n", mine, heddle_fabric_name(), nvshmem_int_g(box, mine));
  nvshmem_barrier_all();
  nvshmem_free(box);
  nvshmem_finalize();
  return 0;
}

int count_devices() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  std::printf("%d\n", devices);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int rank = rank_of_launcher();
  if (what == "lost" && argc > 2) return lose_a_pe(argv[2]);
  if (what == "outside") return run_outside();
  if (what == "launch") return launch();
  if (what == "memory") return run_short_of_memory();
  if (what == "growth") return grow_under_a_kernel();
  if (what == "count") return count_devices();
  if (what == "hello") return say_hello(nullptr);
  if (what == "each-its-own") return say_hello(std::to_string(rank).c_str());
  if (what == "one-without") return say_hello(rank == 1 ? "" : nullptr);
  if (what == "all-without") return say_hello("");
  std::fprintf(stderr, "failures: \"%s\" is no case\n", what.c_str());
  return 2;
}
