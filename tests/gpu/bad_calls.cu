// Calls of kernels with bad arguments, in a build that checks them (HEDDLE_CHECK): each is reported with its name,
// block and thread, ends its thread, the waits of its kernel end too, and the next kernel works. With "outside" the
// calls come before init and after finalize. Two PEs.
#define HEDDLE_CHECK 1
#include <chrono>
#include <climits>
#include <thread>

#include "gpu.cuh"

namespace {

constexpr int kThreads = 64, kBadThread = 33;

/// What the bad calls are given, beside their mistake.
struct Memory {
  char* block;           // 4 KiB of the heap, aligned to 256
  char* host;            // of this process, pageable
  char* plain;           // of this GPU, not symmetric
  uint64_t* never;       // in the heap, 0 for ever
  uint64_t *box, *tick;  // for the exchange that works
  int* through;          // of this GPU: what came after the bad call
};

__device__ char* end_of_heap() {
#if defined(__CUDA_ARCH__)
  const heddle::device::HeapView& view = heddle::device::device_state().view;
  return view.my_heap + view.extent;
#else
  return nullptr;
#endif
}

__device__ unsigned long long heddle_test_clock() {  // ns
  unsigned long long now = 0;
#if defined(__CUDA_ARCH__)
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#endif
  return now;
}

__device__ char* start_of_heap() {
#if defined(__CUDA_ARCH__)
  return heddle::device::device_state().view.my_heap;
#else
  return nullptr;
#endif
}

/// `thread`: called by one thread, else by the block. The mistakes are in `call`.
struct Case {
  const char* name;   // of the call
  const char* words;  // that the sentence has
  bool thread;
};
constexpr Case kCases[] = {
    {"nvshmem_int_p", "PE -1 is out of range; the PEs are 0 to 1", true},
    {"nvshmem_int_p", "PE 2 is out of range", true},
    {"nvshmem_int_g", "PE 2147483647 is out of range", true},
    {"nvshmem_putmem", "is not in the symmetric heap", true},
    {"nvshmem_int_g", "is not in the symmetric heap", true},
    {"nvshmem_int_p", "+4 bytes) is not in the symmetric heap", true},
    {"nvshmem_putmem_nbi", "+16 bytes) is not in the symmetric heap", true},
    {"nvshmem_int_p", "is not aligned to 4 bytes", true},
    {"nvshmem_uint64_atomic_fetch_add", "is not aligned to 8 bytes", true},
    {"nvshmemx_signal_op", "signal operation 8 is neither NVSHMEM_SIGNAL_SET (9)", true},
    {"nvshmem_putmem_signal", "signal operation 0 is neither", true},
    {"nvshmem_long_put_signal_nbi", "is not aligned to 8 bytes", true},
    {"nvshmem_int_iput", "a stride is 0; strides are at least 1", true},
    {"nvshmem_iget64", "a stride is -3", true},
    {"nvshmem_int_wait_until", "comparison 6 is none of NVSHMEM_CMP_EQ (0)", true},
    {"nvshmem_uint64_test_any", "comparison -1 is none of", true},
    {"nvshmem_signal_wait_until", "is not in the symmetric heap", true},
    {"nvshmem_long_wait_until_all", "+8192 bytes) is not in the symmetric heap", true},
    {"nvshmemx_signal_counted_wait_until", "is not aligned to 256 bytes", true},
    {"nvshmem_signal_fetch", "is not in the symmetric heap", true},
    {"nvshmem_int_put", "+18446744073709551615 bytes) is not in the symmetric heap", true},
    {"nvshmem_int_iput", "+18446744073709551615 bytes) is not in the symmetric heap", true},
    {"nvshmem_long_wait_until_all", "+18446744073709551615 bytes) is not in the symmetric heap", true},
    {"nvshmem_putmem", "+64 bytes) is not in the symmetric heap", true},
    {"nvshmem_int_put", "a buffer is NULL, but 16 bytes of it are asked for", true},
    {"nvshmem_getmem_nbi", "a buffer is NULL, but 9 bytes of it are asked for", true},
    {"nvshmem_int_iput", "is not aligned to 4 bytes", true},
    {"nvshmem_iget64", "is not aligned to 8 bytes", true},
    {"nvshmem_uint64_wait_until_all_vector", "a buffer is NULL, but 16 bytes of it are asked for", true},
    {"nvshmem_uint64_test_some", "a buffer is NULL, but 24 bytes of it are asked for", true},
    {"nvshmemx_putmem_signal_counted_nbi_block", "is not aligned to 256 bytes", false},
    {"nvshmemx_putmem_signal_counted_nbi_block", "is not aligned to 16 bytes", false},
    {"nvshmemx_putmem_signal_counted_nbi_block", "lies within the 2048 bytes of the destination", false},
    {"nvshmemx_putmem_signal_counted_nbi_block", "an argument is not allowed", false},
    {"nvshmemx_putmem_signal_counted_nbi_block", "a buffer is NULL, but 64 bytes of it are asked for", false},
    {"nvshmemx_float_put_warp", "PE 3 is out of range", false},
    {"nvshmemx_getmem_nbi_block", "is not in the symmetric heap", false},
    {"nvshmemx_double_iput_block", "a stride is 0", false},
};
constexpr int kCount = sizeof kCases / sizeof kCases[0];
constexpr int kByThread = 30;  // the first that are called by one thread

__device__ void call_by_thread(int which, const Memory& m, int pe) {
  auto* const ints = reinterpret_cast<int*>(m.block);
  auto* const words = reinterpret_cast<uint64_t*>(m.block);
  switch (which) {
    case 0:
      return nvshmem_int_p(ints, 1, -1);
    case 1:
      return nvshmem_int_p(ints, 1, nvshmem_n_pes());
    case 2:
      *ints = nvshmem_int_g(ints, INT_MAX);
      return;
    case 3:
      return nvshmem_putmem(m.host, m.block, 8, pe);
    case 4:
      *ints = nvshmem_int_g(reinterpret_cast<int*>(m.plain), pe);
      return;
    case 5:
      return nvshmem_int_p(reinterpret_cast<int*>(end_of_heap()), 1, pe);
    case 6:
      return nvshmem_putmem_nbi(end_of_heap() - 8, m.block, 16, pe);
    case 7:
      return nvshmem_int_p(reinterpret_cast<int*>(m.block + 2), 1, pe);
    case 8:
      *words = nvshmem_uint64_atomic_fetch_add(reinterpret_cast<uint64_t*>(m.block + 4), 1, pe);
      return;
    case 9:
      return nvshmemx_signal_op(words, 1, 8, pe);
    case 10:
      return nvshmem_putmem_signal(m.block, m.block + 64, 8, words + 32, 1, 0, pe);
    case 11:
      return nvshmem_long_put_signal_nbi(reinterpret_cast<long*>(m.block), reinterpret_cast<long*>(m.block) + 8, 4,
                                         reinterpret_cast<uint64_t*>(m.block + 132), 1, NVSHMEM_SIGNAL_SET, pe);
    case 12:
      return nvshmem_int_iput(ints, ints + 64, 0, 1, 3, pe);
    case 13:
      return nvshmem_iget64(words, words + 64, 1, -3, 3, pe);
    case 14:
      return nvshmem_int_wait_until(ints, 6, 0);
    case 15:
      *words = nvshmem_uint64_test_any(words, 2, nullptr, -1, 0);
      return;
    case 16:
      *words = nvshmem_signal_wait_until(reinterpret_cast<uint64_t*>(m.plain), NVSHMEM_CMP_EQ, 1);
      return;
    case 17:
      return nvshmem_long_wait_until_all(reinterpret_cast<long*>(end_of_heap()) - 1, 1024, nullptr, NVSHMEM_CMP_EQ, 1);
    case 18:
      return nvshmemx_signal_counted_wait_until(words + 1, 64);
    case 19:
      *words = nvshmem_signal_fetch(reinterpret_cast<uint64_t*>(m.plain));
      return;
    case 20:  // whose bytes are 4 in 64 bits
      return nvshmem_int_put(ints, ints + 64, (size_t{1} << 62) + 1, pe);
    case 21:
      return nvshmem_int_iput(ints, ints + 64, 4, 1, size_t{1} << 62, pe);
    case 22:
      return nvshmem_long_wait_until_all(reinterpret_cast<long*>(m.block), (size_t{1} << 61) + 1, nullptr,
                                         NVSHMEM_CMP_EQ, 0);
    case 23:
      return nvshmem_putmem(start_of_heap(), m.block, 64, pe);
    case 24:
      return nvshmem_int_put(ints, nullptr, 4, pe);
    case 25:
      return nvshmem_getmem_nbi(nullptr, m.block, 9, pe);
    case 26:
      return nvshmem_int_iput(ints, reinterpret_cast<int*>(m.block + 65), 1, 1, 3, pe);
    case 27:
      return nvshmem_iget64(m.block + 4, m.block + 64, 1, 1, 3, pe);
    case 28:
      return nvshmem_uint64_wait_until_all_vector(words, 2, nullptr, NVSHMEM_CMP_EQ, nullptr);
    default:
      *words = nvshmem_uint64_test_some(words, 3, nullptr, nullptr, NVSHMEM_CMP_EQ, 0);
  }
}

__device__ void call_by_block(int which, const Memory& m, int pe) {
  auto* const words = reinterpret_cast<uint64_t*>(m.block);
  switch (which - kByThread) {
    case 0:
      (void)nvshmemx_putmem_signal_counted_nbi_block(m.block, m.block + 1024, 64, words + 257, pe);
      break;
    case 1:
      (void)nvshmemx_putmem_signal_counted_nbi_block(m.block + 8, m.block + 1024, 64, words + 256, pe);
      break;
    case 2:
      (void)nvshmemx_putmem_signal_counted_nbi_block(m.block, m.block + 2048, 2048, words + 32, pe);
      break;
    case 3:
      (void)nvshmemx_putmem_signal_counted_nbi_block(m.block, m.block + 1028, 64, words + 256, pe);
      break;
    case 4:
      (void)nvshmemx_putmem_signal_counted_nbi_block(m.block, nullptr, 64, words + 256, pe);
      break;
    case 5:
      return nvshmemx_float_put_warp(reinterpret_cast<float*>(m.block), reinterpret_cast<float*>(m.block) + 64, 64, 3);
    case 6:
      return nvshmemx_getmem_nbi_block(m.block, m.plain, 64, pe);
    default:
      nvshmemx_double_iput_block(reinterpret_cast<double*>(m.block), reinterpret_cast<double*>(m.block) + 64, 1, 0, 8,
                                 pe);
  }
}

/// Block 1 makes the bad call; block 0 waits for what never comes.
__global__ void bad(int which, Memory m, int pe) {
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) nvshmem_uint64_wait_until(m.never, NVSHMEM_CMP_EQ, 1);
    if (threadIdx.x == 0) atomicAdd(m.through, 100);
    return;
  }
  if (which < kByThread) {
    if (threadIdx.x == kBadThread) call_by_thread(which, m, pe);
    if (threadIdx.x == kBadThread) atomicAdd(m.through, 100);
  } else {
    call_by_block(which, m, pe);
    atomicAdd(m.through, 100);
  }
  __syncthreads();  // no longer waits for the thread that has ended
  if (threadIdx.x == 0) atomicAdd(m.through, 1);
}

/// Calls that ask for nothing may name NULL, and the library's own part of the heap has no address at any PE.
__global__ void nothing(Memory m, int pe) {
  nvshmem_int_put(nullptr, nullptr, 0, pe);
  nvshmemx_getmem_nbi_block(nullptr, nullptr, 0, pe);
  nvshmem_int_iput(nullptr, nullptr, 2, 1, 0, pe);
  nvshmem_iget128(nullptr, nullptr, 1, 3, 0, pe);
  nvshmem_long_wait_until_all(nullptr, 0, nullptr, NVSHMEM_CMP_EQ, 1);
  const size_t met = nvshmem_long_test_some_vector(nullptr, 0, nullptr, nullptr, NVSHMEM_CMP_EQ, nullptr);
  const int code =
      nvshmemx_putmem_signal_counted_nbi_block(nullptr, nullptr, 0, reinterpret_cast<uint64_t*>(m.block + 2048), pe);
  if (met == 0 && code == 0 && nvshmem_ptr(start_of_heap(), pe) == nullptr) atomicAdd(m.through, 1);
}

/// A thread of each block fails, and the others come to a barrier: of a block that is not whole.
__global__ void bad_before_barrier(Memory m) {
  if (threadIdx.x == 0) nvshmem_int_p(reinterpret_cast<int*>(m.block), 1, -7);
  nvshmemx_barrier_all_block();
  if (threadIdx.x == 1) atomicAdd(m.through, 1);
}

/// The warp that is second in a group gives up whole; the others come to the group's barrier.
__global__ void bad_before_warpgroup(Memory m) {
  if (threadIdx.x / 32 == 1) nvshmem_int_p(reinterpret_cast<int*>(m.block), 1, -7);
  (void)nvshmemx_barrier_warpgroup(NVSHMEM_TEAM_WORLD);
  atomicAdd(m.through, 1);
}

/// The same where the warp ends in a wait, with the others in the barrier already.
__global__ void bad_beside_warpgroup(Memory m) {
  const unsigned long long begin = heddle_test_clock();
  while (threadIdx.x / 32 == 1 && heddle_test_clock() - begin < 200'000'000) {
  }
  if (threadIdx.x / 32 == 1) nvshmem_int_wait_until(reinterpret_cast<int*>(m.block), 77, 0);
  (void)nvshmemx_barrier_warpgroup(NVSHMEM_TEAM_WORLD);
  atomicAdd(m.through, 1);
}

__global__ void bad_block(Memory m) {
  (void)nvshmemx_barrier_warpgroup(NVSHMEM_TEAM_WORLD);
  atomicAdd(m.through, 1);
}

/// Blocks of whole groups: the last group meets.
__global__ void meet_in_warpgroup(Memory m, uint64_t value, int pe) {
  if (threadIdx.x < blockDim.x - 128) return;
  if (threadIdx.x == blockDim.x - 1) nvshmem_uint64_p(m.tick + 1, value, pe);
  const int code = nvshmemx_barrier_warpgroup(NVSHMEM_TEAM_WORLD);
  if (code == 0 && m.tick[1] == value) atomicAdd(m.through, 1);
  (void)nvshmemx_barrier_warpgroup(NVSHMEM_TEAM_WORLD);  // before anybody writes anew
}

/// Block 1 fails at once, and its threads' siblings in block 0 come to a wait and a barrier long after that.
__global__ void late(Memory m) {
  if (blockIdx.x == 1) {
    if (threadIdx.x == 0) nvshmem_int_p(reinterpret_cast<int*>(m.block), 1, -7);
    return;
  }
  const unsigned long long begin = heddle_test_clock();
  while (heddle_test_clock() - begin < 3'000'000'000) __nanosleep(100000);
  if (threadIdx.x < 32) {
    nvshmem_uint64_wait_until(m.never, NVSHMEM_CMP_EQ, 1);
  } else {
    nvshmemx_barrier_all_warp();
  }
  atomicAdd(m.through, 1);
}

/// Launched by a graph: fails the first time, and waits for the neighbour the next.
__global__ void sometimes(Memory m, const int* fails, uint64_t value, int pe) {
  if (*fails != 0) nvshmem_int_p(reinterpret_cast<int*>(m.block), 1, -7);
  nvshmem_uint64_p(m.tick + 1, value, pe);
  nvshmem_uint64_wait_until(m.tick + 1, NVSHMEM_CMP_EQ, value);
  nvshmem_barrier_all();
  atomicAdd(m.through, 1);
}

__global__ void good(Memory m, uint64_t round, int pe) {
  nvshmemx_uint64_put_signal_block(m.box, &m.box[64], 64, m.tick, round, NVSHMEM_SIGNAL_SET, pe);
  if (threadIdx.x == 0) nvshmem_signal_wait_until(m.tick, NVSHMEM_CMP_EQ, round);
  __syncthreads();
  if (m.box[threadIdx.x] == m.box[64 + threadIdx.x]) atomicAdd(m.through, 1);
  nvshmemx_barrier_all_block();
  m.box[64 + threadIdx.x] = round + 1;
  nvshmemx_barrier_all_block();
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The error, once there is one: the library looks every 20 ms.
std::string awaited_error() {
  const auto begin = std::chrono::steady_clock::now();
  while (*heddle_last_error() == '\0' && seconds_since(begin) < 2) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return heddle_last_error();
}

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

int took_through(const Memory& m) {
  const int through = gpu::fetch(m.through, 1)[0];
  gpu::give(m.through, std::vector<int>{0});
  return through;
}

/// Runs `launch`, in which all threads end within `limit` seconds; what heddle_last_error then says.
template <class Launch>
std::string ends(const char* what, double limit, const Memory& m, const Launch& launch) {
  heddle_clear_error();
  const auto begin = std::chrono::steady_clock::now();
  launch();
  gpu::done(what);
  const double took = seconds_since(begin);
  gpu::that(took < limit, std::string(what) + " took " + std::to_string(took) + " s to end");
  gpu::that(took_through(m) == 0, std::string(what) + " does not go on");
  return awaited_error();
}

/// Barriers of a warp group that is not whole, or cannot be. They leave nothing behind that the next one meets.
template <class Works>
void check_warpgroups(const Memory& m, const Works& works) {
  const auto meets = [&](unsigned threads, const std::string& after) {
    static uint64_t value = 0;
    meet_in_warpgroup<<<1, threads>>>(m, ++value, gpu::right);
    gpu::done("meet_in_warpgroup");
    gpu::that(took_through(m) == 128, "a barrier of a warp group " + after);
    gpu::that(*heddle_last_error() == '\0', "no error of a barrier of a warp group " + after);
    nvshmem_barrier_all();
  };
  meets(128, "first");
  meets(512, "of a block of four");
  std::string text = ends("bad_before_warpgroup", 1, m, [&] { bad_before_warpgroup<<<1, 128>>>(m); });
  gpu::that(has(text, "a kernel's nvshmem_int_p (block 0,0,0, thread "), "a bad call before the barrier: " + text);
  heddle_clear_error();
  meets(128, "after one whose warp had failed");
  text = ends("bad_beside_warpgroup", 2, m, [&] { bad_beside_warpgroup<<<1, 128>>>(m); });
  gpu::that(has(text, "nvshmem_int_wait_until (block 0,0,0, thread "), "a bad call beside the barrier: " + text);
  heddle_clear_error();
  meets(256, "after one that was given up");
  for (const unsigned threads : {32u, 96u, 192u}) {
    text = ends("a block of no whole groups", 1, m, [&] { bad_block<<<1, threads>>>(m); });
    gpu::that(has(text, "blocks of a multiple of 128 threads; this block has " + std::to_string(threads)), text);
  }
  heddle_clear_error();
  meets(128, "after blocks that could not be");
  nvshmem_barrier_all();
  works("barriers of warp groups");
}

/// A grid that has failed is known for as long as the program has not cleared the error; then its number may come
/// again.
template <class Works>
void check_later(const Memory& m, const Works& works) {
  const std::string text = ends("late", 5, m, [&] { late<<<2, 64>>>(m); });
  gpu::that(has(text, "a kernel's nvshmem_int_p (block 1,0,0, thread 0,0,0 of grid "), "the first cause: " + text);
  heddle_clear_error();
  nvshmem_barrier_all();
  works("threads that came late");

  int* const fails = gpu::on_gpu(std::vector<int>{1});
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  gpu::must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  gpu::must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  sometimes<<<1, 1, 0, stream>>>(m, fails, 1'000'000, gpu::right);
  gpu::must(cudaStreamEndCapture(stream, &graph), "capture");
  gpu::must(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  const auto launch = [&] {
    gpu::must(cudaGraphLaunch(exec, stream), "launch of a graph");
    gpu::must(cudaStreamSynchronize(stream), "a graph");
  };
  const std::string first = ends("a graph that fails", 1, m, launch);
  gpu::that(has(first, "a kernel's nvshmem_int_p (block 0,0,0"), "a graph that fails: " + first);
  gpu::give(fails, std::vector<int>{0});
  heddle_clear_error();
  nvshmem_barrier_all();
  launch();
  gpu::that(took_through(m) == 1, "the same graph works when the error is cleared");
  gpu::that(*heddle_last_error() == '\0', "and makes no error");
  nvshmem_barrier_all();
  gpu::must(cudaGraphExecDestroy(exec), "graph");
  gpu::must(cudaGraphDestroy(graph), "graph");
  gpu::must(cudaStreamDestroy(stream), "stream");
  gpu::must(cudaFree(fails), "cudaFree");
  works("a graph that failed once");
}

void check_calls() {
  Memory m{};
  m.block = gpu::allocate<char>(4096);
  m.never = gpu::allocate<uint64_t>(1);
  m.box = gpu::allocate<uint64_t>(128);
  m.tick = gpu::allocate<uint64_t>(2);
  std::vector<char> host(64);
  m.host = host.data();
  m.plain = gpu::on_gpu(std::vector<char>(4096));
  m.through = gpu::on_gpu(std::vector<int>{0});
  gpu::give(m.box + 64, std::vector<uint64_t>(64, 1));
  nvshmem_barrier_all();
  uint64_t round = 0;
  const auto works = [&](const std::string& after) {
    good<<<1, kThreads>>>(m, ++round, gpu::right);
    gpu::done("good");
    gpu::that(took_through(m) == kThreads, "a kernel that works after " + after);
    gpu::that(*heddle_last_error() == '\0', "no error of a kernel that works");
    nvshmem_barrier_all();
  };
  works("init");
  nothing<<<1, kThreads>>>(m, gpu::right);
  gpu::done("nothing");
  gpu::that(took_through(m) == kThreads, "calls that ask for nothing go on");
  works("calls that ask for nothing");
  for (int which = 0; which < kCount; ++which) {
    const Case& one = kCases[which];
    const std::string name = std::string(one.name) + ": " + one.words;
    heddle_clear_error();
    const auto begin = std::chrono::steady_clock::now();
    bad<<<2, kThreads>>>(which, m, gpu::right);
    gpu::done(one.name);
    const double took = seconds_since(begin);
    gpu::that(took < 1, name + ": the kernel took " + std::to_string(took) + " s to end");
    const std::string text = awaited_error();
    gpu::that(has(text, std::string("a kernel's ") + one.name + " (block 1,0,0, thread "), name + ": call in: " + text);
    gpu::that(!one.thread || has(text, "thread 33,0,0 of grid "), name + ": thread in: " + text);
    gpu::that(has(text, "2x1x1 blocks of 64x1x1 threads)"), name + ": dimensions in: " + text);
    gpu::that(has(text, one.words), name + ": words in: " + text);
    gpu::that(took_through(m) == (one.thread ? 1 : 0), name + ": what runs on, and nothing else");
    heddle_clear_error();
    works(name);
  }
  heddle_clear_error();
  const auto begin = std::chrono::steady_clock::now();
  bad_before_barrier<<<1, kThreads>>>(m);
  gpu::done("bad_before_barrier");
  gpu::that(seconds_since(begin) < 1, "a barrier of a block that is not whole ends");
  gpu::that(took_through(m) == 0, "and does not return");
  gpu::that(has(awaited_error(), "nvshmem_int_p (block 0,0,0, thread 0,0,0 of grid "), "and the bad call is reported");
  heddle_clear_error();
  nvshmem_barrier_all();
  works("a barrier that was given up");
  check_warpgroups(m, works);
  check_later(m, works);
  gpu::must(cudaFree(m.through), "cudaFree");
  gpu::must(cudaFree(m.plain), "cudaFree");
  nvshmem_free(m.tick);
  nvshmem_free(m.box);
  nvshmem_free(m.never);
  nvshmem_free(m.block);
}

// ---- outside init and finalize: all calls of a checking build end

__global__ void outside(int which, uint64_t* word, int* through) {
  switch (which) {
    case 0:
      nvshmem_uint64_p(word, 1, 0);
      break;
    case 1:
      *word = nvshmem_uint64_g(word, 0);
      break;
    case 2:
      nvshmemx_putmem_block(word, word + 64, 256, 0);
      break;
    case 3:
      nvshmem_uint64_atomic_add(word, 1, 0);
      break;
    case 4:
      nvshmem_quiet();
      break;
    case 5:
      nvshmemx_signal_op(word, 1, NVSHMEM_SIGNAL_SET, 0);
      break;
    case 6:
      (void)nvshmemx_putmem_signal_counted_nbi_block(word, word + 64, 256, word + 96, 0);
      break;
    case 7:
      nvshmem_uint64_wait_until(word, NVSHMEM_CMP_EQ, 1);
      break;
    default:
      nvshmemx_barrier_all_block();
  }
  *through = 1;
}
constexpr int kOutside = 9;

void call_outside(const char* when) {
  int* const through = gpu::on_gpu(std::vector<int>{0});
  uint64_t* const word = gpu::on_gpu(std::vector<uint64_t>(128));
  for (int which = 0; which < kOutside; ++which) {
    const auto begin = std::chrono::steady_clock::now();
    outside<<<1, 32>>>(which, word, through);
    gpu::done(when);
    gpu::that(seconds_since(begin) < 2, std::string("a call ") + when + " ends in time");
    gpu::that(gpu::fetch(through, 1)[0] == 0, std::string("a call ") + when + " ends its thread");
  }
  gpu::must(cudaFree(word), "cudaFree");
  gpu::must(cudaFree(through), "cudaFree");
}

int check_outside() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) gpu::skip("there is no GPU");
  const char* const rank = std::getenv("PMIX_RANK");
  gpu::must(cudaSetDevice(rank == nullptr ? 0 : std::atoi(rank) % devices), "cudaSetDevice");
  call_outside("before init");
  gpu::start();
  gpu::that(has(awaited_error(), "a kernel's nvshmem_uint64_p (block 0,0,0, thread "), "init tells of the first call");
  gpu::that(has(heddle_last_error(), "called outside init and finalize"), "init tells what was wrong");
  heddle_clear_error();
  const int code = gpu::finish("bad_calls outside");
  const long failed = gpu::failed;
  call_outside("after finalize");
  gpu::that(has(awaited_error(), "called outside init and finalize"),
            "heddle_last_error tells of calls after finalize");
  return gpu::failed == failed ? code : 1;
}

/// PE 0's kernel fails, and asks for the end of the job while the failure is not read yet. Ends with 7.
__global__ void fail_and_exit(int* block, uint64_t* never) {
  if (threadIdx.x == 0) nvshmem_int_p(block, 1, -7);
  __syncthreads();
  if (threadIdx.x == 1) nvshmem_global_exit(7);
  nvshmem_uint64_wait_until(never, NVSHMEM_CMP_EQ, 1);
}
int check_exit() {
  gpu::start();
  int* const block = gpu::allocate<int>(1);
  uint64_t* const never = gpu::allocate<uint64_t>(1);
  nvshmem_barrier_all();
  if (gpu::me == 0) {
    fail_and_exit<<<1, 64>>>(block, never);
    gpu::done("fail_and_exit");
  }
  std::this_thread::sleep_for(std::chrono::seconds(10));
  std::fprintf(stderr, "PE %d: FAILED: goes on after a kernel's nvshmem_global_exit\n", gpu::me);
  std::_Exit(3);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "outside") == 0) return check_outside();
  if (argc > 1 && std::strcmp(argv[1], "exit") == 0) return check_exit();
  gpu::start();
  check_calls();
  return gpu::finish("bad_calls");
}
