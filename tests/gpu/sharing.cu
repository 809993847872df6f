// Two PEs, or more, on one GPU: host calls, on_stream calls, kernels that wait for each other, the teams of GPUs, and
// what the library says. Without MPS the kernels take turns, so their rounds are few; with the argument "mps" they are
// many, and the library must have found MPS. Its words are read back: NVSHMEM_DEBUG must be INFO, and
// NVSHMEM_DEBUG_FILE name a file for each process (%p).
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>

#include "tests/gpu/gpu.cuh"

namespace {

using gpu::left;
using gpu::me;
using gpu::must;
using gpu::right;
using gpu::that;

cudaStream_t stream;

/// Like gpu::start, but all PEs take GPU 0, before init.
void start_on_one() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) gpu::skip("there is no GPU");
  must(cudaSetDevice(0), "cudaSetDevice");
  must(cudaFree(nullptr), "context of GPU 0");
  nvshmem_init();
  if (nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED) {
    std::fprintf(stderr, "FAILED: nvshmem_init: %s\n", heddle_last_error());
    std::_Exit(1);
  }
  me = nvshmem_my_pe();
  gpu::n = nvshmem_n_pes();
  right = (me + 1) % gpu::n;
  left = (me + gpu::n - 1) % gpu::n;
  if (gpu::n < 2) gpu::skip("one PE shares nothing");
  if (std::string(heddle_fabric_name()).find("peer") != 0) gpu::skip(std::string("fabric ") + heddle_fabric_name());
}

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// ---- host and on_stream calls

void test_host_calls() {
  constexpr size_t kBytes = 3u << 20;
  auto* const box = gpu::allocate<unsigned char>(kBytes);
  auto* const word = gpu::allocate<uint64_t>(1);
  auto* const signal = gpu::allocate<uint64_t>(1);
  const auto mine = gpu::patterns(kBytes, me), theirs = gpu::patterns(kBytes, left);
  nvshmem_barrier_all();
  for (const size_t bytes : {size_t{8}, size_t{1000}, kBytes}) {
    nvshmem_putmem(box, mine.data(), bytes, right);
    nvshmem_barrier_all();
    that(std::memcmp(gpu::fetch(box, bytes).data(), theirs.data(), bytes) == 0, "put of " + std::to_string(bytes));
    std::vector<unsigned char> got(bytes);
    nvshmem_getmem(got.data(), box, bytes, right);
    that(std::memcmp(got.data(), mine.data(), bytes) == 0, "get of " + std::to_string(bytes));
    nvshmem_barrier_all();
  }
  for (int i = 0; i < 50; ++i) (void)nvshmem_uint64_atomic_fetch_add(word, 2, 0);
  nvshmem_barrier_all();
  that(nvshmem_uint64_g(word, 0) == static_cast<uint64_t>(100 * gpu::n), "adds of all PEs");
  for (uint64_t round = 1; round <= 10; ++round) {
    const std::vector<unsigned char> message(1000, static_cast<unsigned char>(10 * round + static_cast<uint64_t>(me)));
    nvshmem_uint8_put_signal(box, message.data(), 1000, signal, round, NVSHMEM_SIGNAL_SET, right);
    that(nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, round) == round, "signal");
    const auto expected = static_cast<unsigned char>(10 * round + static_cast<uint64_t>(left));
    that(gpu::fetch(box, 1000) == std::vector<unsigned char>(1000, expected), "data before its signal");
    nvshmem_barrier_all();
  }
  for (nvshmem_team_t team : {nvshmem_team_t{NVSHMEM_TEAM_WORLD}, nvshmem_team_t{NVSHMEMI_TEAM_SAME_GPU}}) {
    that(nvshmem_barrier(team) == 0, "barrier of a team that is all PEs");
  }
  nvshmem_free(box);
  nvshmem_free(word);
  nvshmem_free(signal);
}

void test_on_stream(int rounds) {
  constexpr size_t kCount = 50000;
  auto* const box = gpu::allocate<uint64_t>(kCount);
  auto* const source = gpu::allocate<uint64_t>(kCount);
  auto* const signal = gpu::allocate<uint64_t>(1);
  const auto start = std::chrono::steady_clock::now();
  for (int round = 1; round <= rounds; ++round) {
    const auto tag = static_cast<uint64_t>(round * 100);
    gpu::give(source, std::vector<uint64_t>(kCount, tag + static_cast<uint64_t>(me)));
    must(cudaDeviceSynchronize(), "source");
    nvshmemx_uint64_put_on_stream(box, source, kCount, right, stream);
    nvshmemx_barrier_all_on_stream(stream);
    must(cudaStreamSynchronize(stream), "put_on_stream");
    const std::vector<uint64_t> theirs(kCount, tag + static_cast<uint64_t>(left));
    that(gpu::fetch(box, kCount) == theirs, "put_on_stream");
    nvshmem_barrier_all();
    must(cudaMemset(box, 0, kCount * 8), "clear");
    must(cudaDeviceSynchronize(), "clear");
    nvshmem_barrier_all();
    nvshmemx_uint64_put_signal_on_stream(box, source, kCount, signal, tag, NVSHMEM_SIGNAL_SET, right, stream);
    nvshmemx_signal_wait_until_on_stream(signal, NVSHMEM_CMP_EQ, tag, stream);
    must(cudaStreamSynchronize(stream), "put_signal_on_stream");
    that(gpu::fetch(box, kCount) == theirs, "put_signal_on_stream");
    nvshmem_barrier_all();
  }
  if (me == 0) {
    std::printf("sharing: on_stream put, barrier, put_signal and wait: %.1f us a round\n",
                microseconds_since(start) / rounds);
  }
  nvshmem_free(box);
  nvshmem_free(source);
  nvshmem_free(signal);
}

// ---- kernels that wait for each other

/// Each PE stores the round at its right neighbour, meets all, and counts what it finds wrong at home.
__global__ void meet(uint64_t* word, int rounds, uint64_t first, int* wrong) {
  for (int i = 0; i < rounds; ++i) {
    const uint64_t value = first + static_cast<uint64_t>(i);
    if (threadIdx.x == 0) nvshmem_uint64_p(word, value, (nvshmem_my_pe() + 1) % nvshmem_n_pes());
    nvshmemx_barrier_all_block();
    if (threadIdx.x == 0 && *static_cast<volatile uint64_t*>(word) != value) *wrong += 1;
    nvshmemx_barrier_all_block();
  }
}

/// PE 0 serves to PE 1, which answers. The box carries the round in every word.
__global__ void rally(uint64_t* box, uint64_t* source, size_t count, uint64_t* signal, int rounds, uint64_t first,
                      int* wrong) {
  const int me = nvshmem_my_pe();
  if (me > 1) return;
  for (int i = 0; i < rounds; ++i) {
    const uint64_t value = first + static_cast<uint64_t>(i);
    for (int turn = 0; turn < 2; ++turn) {
      if (turn == me) {
        for (size_t at = threadIdx.x; at < count; at += blockDim.x) source[at] = value;
        nvshmemx_uint64_put_signal_block(box, source, count, signal, value, NVSHMEM_SIGNAL_SET, 1 - me);
      } else {
        if (threadIdx.x == 0) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, value);
        __syncthreads();
        for (size_t at = threadIdx.x; at < count; at += blockDim.x) {
          if (static_cast<volatile uint64_t*>(box)[at] != value) atomicAdd(wrong, 1);
        }
        __syncthreads();
      }
    }
  }
}

/// Runs `launch(rounds, first)` once to warm up and once for the time, and says how long a round took.
template <class Launch>
void time_rounds(const char* what, int rounds, int* wrong, const Launch& launch) {
  heddle_clear_error();
  must(cudaMemset(wrong, 0, sizeof *wrong), "clear");
  must(cudaDeviceSynchronize(), "clear");
  nvshmem_barrier_all();
  launch(2, uint64_t{1});
  gpu::done(what);
  nvshmem_barrier_all();
  const auto start = std::chrono::steady_clock::now();
  launch(rounds, uint64_t{3});
  gpu::done(what);
  const double microseconds = microseconds_since(start);
  that(gpu::fetch(wrong, 1)[0] == 0, what);
  that(*heddle_last_error() == '\0', std::string(what) + ": no kernel gave up");
  if (me == 0) std::printf("sharing: %s: %.1f us a round, %d rounds\n", what, microseconds / rounds, rounds);
  nvshmem_barrier_all();
}

void test_kernels(int rounds) {
  constexpr size_t kCount = 500;
  auto* const word = gpu::allocate<uint64_t>(1);
  auto* const box = gpu::allocate<uint64_t>(kCount);
  auto* const source = gpu::allocate<uint64_t>(kCount);
  auto* const signal = gpu::allocate<uint64_t>(1);
  int* wrong = nullptr;
  must(cudaMalloc(&wrong, sizeof *wrong), "cudaMalloc");
  time_rounds("two barriers in a kernel", rounds, wrong,
              [&](int count, uint64_t first) { meet<<<1, 64, 0, stream>>>(word, count, first, wrong); });
  time_rounds("put_signal there and back in kernels", rounds, wrong, [&](int count, uint64_t first) {
    rally<<<1, 128, 0, stream>>>(box, source, kCount, signal, count, first, wrong);
  });
  must(cudaFree(wrong), "cudaFree");
  nvshmem_free(word);
  nvshmem_free(box);
  nvshmem_free(source);
  nvshmem_free(signal);
}

// ---- collective launch

__global__ void all_blocks_meet(unsigned* arrived, unsigned blocks, int* late) {
  if (threadIdx.x == 0) {
    atomicAdd(arrived, 1u);
    // Every block of this grid is resident, or this one would never see all.
    const long long start = clock64();
    while (*static_cast<volatile unsigned*>(arrived) < blocks) {
      if (clock64() - start > 20000000000LL) {  // some ten seconds
        *late = 1;
        break;
      }
    }
  }
  __syncthreads();
  if (blockIdx.x == 0) nvshmemx_barrier_all_block();  // and all PEs' grids are resident at once
}

void test_collective_launch(bool mps) {
  const auto* const kernel = reinterpret_cast<const void*>(all_blocks_meet);
  int most = 0, processors = 0, per_processor = 0;
  that(nvshmemx_collective_launch_query_gridsize(kernel, 256, nullptr, 0, &most) == 0 && most > 0, "query_gridsize");
  must(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0), "multiprocessors");
  must(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, kernel, 256, 0), "occupancy");
  const int whole = processors * per_processor;
  const bool has_percentage = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") != nullptr;
  if (!has_percentage) that(most == (mps ? whole / gpu::n : whole), "the largest grid, " + std::to_string(most));
  if (me == 0) std::printf("sharing: largest grid %d of %d blocks\n", most, whole);
  unsigned* arrived = nullptr;
  must(cudaMalloc(&arrived, 2 * sizeof *arrived), "cudaMalloc");
  must(cudaMemset(arrived, 0, 2 * sizeof *arrived), "clear");
  must(cudaDeviceSynchronize(), "clear");
  int* late = reinterpret_cast<int*>(arrived + 1);
  unsigned blocks = static_cast<unsigned>(most);
  void* arguments[] = {&arrived, &blocks, &late};
  nvshmem_barrier_all();
  that(nvshmemx_collective_launch(kernel, most, 256, arguments, 0, stream) == 0,
       "collective_launch of the largest grid");
  gpu::done("collective_launch");
  const auto seen = gpu::fetch(arrived, 2);
  that(seen[0] == blocks && seen[1] == 0, "all blocks were resident");
  that(*heddle_last_error() == '\0', "the grids met");
  that(nvshmemx_collective_launch(kernel, most + 1, 256, arguments, 0, stream) == NVSHMEMX_ERROR_INVALID_VALUE,
       "a grid that is too large");
  const std::string text = heddle_last_error();
  that(text.find("at most " + std::to_string(most)) != std::string::npos, "the text names the largest grid: " + text);
  that(text.find("PE " + std::to_string(right)) != std::string::npos, "and who shares: " + text);
  that(text.find(mps ? "under CUDA MPS" : "without CUDA MPS") != std::string::npos, "and how: " + text);
  heddle_clear_error();
  must(cudaFree(arrived), "cudaFree");
  nvshmem_barrier_all();
}

// ---- teams and words

__global__ void ask_teams(int* answers) {
  answers[0] = nvshmem_team_my_pe(NVSHMEMI_TEAM_SAME_GPU);
  answers[1] = nvshmem_team_n_pes(NVSHMEMI_TEAM_SAME_GPU);
  answers[2] = nvshmem_team_my_pe(NVSHMEMI_TEAM_GPU_LEADERS);
  answers[3] = nvshmem_team_n_pes(NVSHMEMI_TEAM_GPU_LEADERS);
  answers[4] = nvshmem_team_translate_pe(NVSHMEMI_TEAM_SAME_GPU, 1, NVSHMEM_TEAM_WORLD);
  answers[5] = nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, 1, NVSHMEMI_TEAM_SAME_GPU);
}

void test_teams() {
  const bool leads = me == 0;
  const std::vector<int> expected = {me, gpu::n, leads ? 0 : -1, leads ? 1 : -1, 1, 1};
  const std::vector<int> host = {nvshmem_team_my_pe(NVSHMEMI_TEAM_SAME_GPU),
                                 nvshmem_team_n_pes(NVSHMEMI_TEAM_SAME_GPU),
                                 nvshmem_team_my_pe(NVSHMEMI_TEAM_GPU_LEADERS),
                                 nvshmem_team_n_pes(NVSHMEMI_TEAM_GPU_LEADERS),
                                 nvshmem_team_translate_pe(NVSHMEMI_TEAM_SAME_GPU, 1, NVSHMEM_TEAM_WORLD),
                                 nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, 1, NVSHMEMI_TEAM_SAME_GPU)};
  that(host == expected, "teams on the host");
  int* answers = nullptr;
  must(cudaMalloc(&answers, 6 * sizeof *answers), "cudaMalloc");
  ask_teams<<<1, 1, 0, stream>>>(answers);
  gpu::done("ask_teams");
  that(gpu::fetch(answers, 6) == expected, "teams in kernels");
  must(cudaFree(answers), "cudaFree");
}

void test_words(bool mps) {
  that(nvshmemx_init_status() == (mps ? NVSHMEM_STATUS_FULL_MPG : NVSHMEM_STATUS_LIMITED_MPG), "init_status");
  const char* const pattern = std::getenv("NVSHMEM_DEBUG_FILE");
  std::string name = pattern == nullptr ? "" : pattern;
  const size_t process = name.find("%p");
  if (!that(process != std::string::npos, "NVSHMEM_DEBUG_FILE is set, and each process has its own")) return;
  name.replace(process, 2, std::to_string(getpid()));
  std::ifstream file(name);
  that(file.good(), "the log is there");
  (void)unlink(name.c_str());  // the library goes on with what it has open
  if (me != 0) return;         // the lowest PE speaks for all
  std::stringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  std::string sharers = "PE 0";
  for (int pe = 1; pe < gpu::n; ++pe) sharers += (pe + 1 == gpu::n ? " and PE " : ", PE ") + std::to_string(pe);
  const size_t at = text.find(sharers + " share GPU 0");
  that(at != std::string::npos, "the log names the sharers");
  if (at == std::string::npos) return;
  const std::string line = text.substr(at, text.find('\n', at) - at);
  that(line.find(mps ? "under CUDA MPS" : "without CUDA MPS") != std::string::npos, "what init said: " + line);
  std::printf("sharing: %s\n", line.c_str());
}

// ---- another GPU than the heap's

__global__ void wait_without_heap(int* reached) {
  if (threadIdx.x == 0) *reached = 1;
  __threadfence_system();
  nvshmemx_barrier_all_block();
  *reached = 2;
}

/// True when another GPU was there, and a kernel that waits was launched on it: finalize then says so.
bool test_another_gpu() {
  int devices = 0;
  must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (devices < 2) {
    if (me == 0) std::printf("sharing: one GPU is visible, so work on another one was not tried\n");
    return false;
  }
  auto* const box = gpu::allocate<uint64_t>(1);
  must(cudaSetDevice(1), "cudaSetDevice");
  cudaStream_t elsewhere = nullptr;
  must(cudaStreamCreateWithFlags(&elsewhere, cudaStreamNonBlocking), "cudaStreamCreate");
  const auto refused = [](const char* what) {
    const std::string text = heddle_last_error();
    that(text.find("is GPU 1") != std::string::npos && text.find("on GPU 0") != std::string::npos,
         std::string(what) + " on another GPU: " + text);
    heddle_clear_error();
  };
  const auto* const kernel = reinterpret_cast<const void*>(wait_without_heap);
  int most = 0;
  that(nvshmemx_collective_launch_query_gridsize(kernel, 1, nullptr, 0, &most) == NVSHMEMX_ERROR_INVALID_VALUE,
       "query_gridsize on another GPU");
  refused("query_gridsize");
  int* reached = nullptr;
  must(cudaHostAlloc(&reached, sizeof *reached, cudaHostAllocPortable | cudaHostAllocMapped), "cudaHostAlloc");
  *reached = 0;
  void* arguments[] = {&reached};
  that(nvshmemx_collective_launch(kernel, 1, 64, arguments, 0, elsewhere) == NVSHMEMX_ERROR_INVALID_VALUE,
       "collective_launch on another GPU");
  refused("collective_launch");
  nvshmemx_uint64_p_on_stream(box, 1, me, nullptr);
  refused("p_on_stream on the default stream");
  must(cudaSetDevice(0), "cudaSetDevice");
  nvshmemx_uint64_p_on_stream(box, 1, me, elsewhere);
  refused("p_on_stream");
  that(nvshmem_uint64_g(box, me) == 0, "nothing was put");

  // A kernel that would wait there ends.
  must(cudaSetDevice(1), "cudaSetDevice");
  wait_without_heap<<<1, 64, 0, elsewhere>>>(reached);
  gpu::done("a kernel on another GPU");
  that(*reached == 1, "a kernel on another GPU ends in its barrier");
  must(cudaStreamDestroy(elsewhere), "cudaStreamDestroy");
  must(cudaFreeHost(reached), "cudaFreeHost");
  must(cudaSetDevice(0), "cudaSetDevice");
  nvshmem_free(box);
  heddle_clear_error();
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  const bool mps = count > 1 && std::string(arguments[1]) == "mps";
  start_on_one();
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  test_words(mps);
  test_teams();
  test_host_calls();
  test_on_stream(mps ? 100 : 5);
  test_kernels(mps ? 2000 : 20);
  test_collective_launch(mps);
  const bool was_elsewhere = test_another_gpu();
  must(cudaStreamDestroy(stream), "cudaStreamDestroy");
  const int code = gpu::finish("sharing");
  const std::string said = heddle_last_error();
  const bool is_told = said.find("nvshmemx_barrier_all_block") != std::string::npos &&
                       said.find("on another GPU than the symmetric heap's") != std::string::npos;
  if (is_told == was_elsewhere) return code;
  std::fprintf(stderr, "PE %d: FAILED: what finalize says of kernels on another GPU: \"%s\"\n", me, said.c_str());
  return 1;
}
