// Host calls on heaps in GPU memory, on_stream calls, graphs and collective launch, checked on both sides. Two PEs.
#include <limits>

#include "tests/gpu/gpu.cuh"

namespace {

using gpu::left;
using gpu::me;
using gpu::must;
using gpu::right;
using gpu::that;

cudaStream_t stream;

// ---- host calls

void test_put_and_get() {
  constexpr size_t kMost = 9u << 20;
  auto* const box = gpu::allocate<unsigned char>(kMost);
  auto* const source = gpu::allocate<unsigned char>(kMost);
  const auto mine = gpu::patterns(kMost, me), theirs = gpu::patterns(kMost, left);
  gpu::give(source, mine);
  unsigned char* pinned = nullptr;
  must(cudaMallocHost(&pinned, kMost), "cudaMallocHost");
  std::memcpy(pinned, mine.data(), kMost);
  const struct {
    const char* name;
    const unsigned char* source;
  } sources[] = {{"pageable", mine.data()}, {"GPU", source}, {"pinned", pinned}};
  for (const auto& from : sources) {
    for (const size_t bytes : {size_t{1}, size_t{8}, size_t{1000}, size_t{65536}, size_t{70001}, kMost}) {
      const std::string what = std::string(from.name) + " put of " + std::to_string(bytes);
      must(cudaMemset(box, 0, bytes), "clear");
      must(cudaDeviceSynchronize(), "clear");
      nvshmem_barrier_all();
      nvshmem_putmem(box, from.source, bytes, right);
      nvshmem_barrier_all();
      that(std::memcmp(gpu::fetch(box, bytes).data(), theirs.data(), bytes) == 0, what);
      std::vector<unsigned char> got(bytes);
      nvshmem_getmem(got.data(), box, bytes, right);
      that(std::memcmp(got.data(), mine.data(), bytes) == 0, "get after " + what);
      nvshmem_barrier_all();
      nvshmem_putmem_nbi(box, from.source, bytes, right);
      nvshmem_quiet();
      nvshmem_barrier_all();
      that(std::memcmp(gpu::fetch(box, bytes).data(), theirs.data(), bytes) == 0, what + ", nbi");
      nvshmem_barrier_all();
    }
  }
  // A pageable source may be reused at once.
  for (uint64_t i = 1; i <= 200; ++i) {
    uint64_t value = i * 1000 + static_cast<uint64_t>(me);
    nvshmem_putmem(box + 8 * i, &value, 8, right);
    value = 0;
  }
  nvshmem_barrier_all();
  const auto words = gpu::fetch(reinterpret_cast<uint64_t*>(box), 201);
  bool all = true;
  for (uint64_t i = 1; i <= 200; ++i) all &= words[i] == i * 1000 + static_cast<uint64_t>(left);
  that(all, "sources that are reused");
  nvshmem_barrier_all();
  must(cudaFreeHost(pinned), "cudaFreeHost");
  nvshmem_free(box);
  nvshmem_free(source);
}

void test_strided() {
  auto* const box = gpu::allocate<int>(1000);
  auto* const source = gpu::allocate<int>(1000);
  std::vector<int> values(1000);
  for (int i = 0; i < 1000; ++i) values[static_cast<size_t>(i)] = 10000 * me + i;
  gpu::give(source, values);
  for (const int* from : {static_cast<const int*>(values.data()), static_cast<const int*>(source)}) {
    must(cudaMemset(box, 0, 4000), "clear");
    must(cudaDeviceSynchronize(), "clear");
    nvshmem_barrier_all();
    nvshmem_int_iput(box, from, 3, 2, 300, right);
    nvshmem_barrier_all();
    const auto got = gpu::fetch(box, 1000);
    bool all = true;
    for (int i = 0; i < 900; ++i) all &= got[static_cast<size_t>(i)] == (i % 3 == 0 ? 10000 * left + i / 3 * 2 : 0);
    that(all, from == source ? "iput from GPU memory" : "iput from pageable memory");
    std::vector<int> back(300);
    nvshmem_int_iget(back.data(), box, 1, 3, 300, right);
    all = true;
    for (int i = 0; i < 300; ++i) all &= back[static_cast<size_t>(i)] == 10000 * me + 2 * i;
    that(all, "iget into pageable memory");
    nvshmem_barrier_all();
  }
  nvshmem_free(box);
  nvshmem_free(source);
}

template <class T>
void test_add(const char* name, T (*add)(T*, T, int), T (*read)(const T*, int)) {
  auto* const word = gpu::allocate<T>(1);
  nvshmem_barrier_all();
  for (int i = 0; i < 100; ++i) (void)add(word, T{2}, 0);
  nvshmem_barrier_all();
  that(read(word, 0) == static_cast<T>(200 * gpu::n), std::string(name) + " adds of all PEs");
  nvshmem_barrier_all();
  nvshmem_free(word);
}

void test_atomics() {
  test_add<int>("int", nvshmem_int_atomic_fetch_add, nvshmem_int_g);
  test_add<unsigned long long>("ulonglong", nvshmem_ulonglong_atomic_fetch_add, nvshmem_ulonglong_g);
  test_add<float>("float", nvshmemx_float_atomic_fetch_add, nvshmem_float_g);
  test_add<double>("double", nvshmemx_double_atomic_fetch_add, nvshmem_double_g);
  auto* const word = gpu::allocate<uint64_t>(1);
  nvshmem_barrier_all();
  if (me == 0) {
    nvshmem_uint64_atomic_set(word, 0xf0, right);
    that(nvshmem_uint64_atomic_fetch_or(word, 0x0f, right) == 0xf0, "fetch_or");
    that(nvshmem_uint64_atomic_fetch_and(word, 0x3c, right) == 0xff, "fetch_and");
    that(nvshmem_uint64_atomic_fetch_xor(word, 0xff, right) == 0x3c, "fetch_xor");
    that(nvshmem_uint64_atomic_compare_swap(word, 0xc3, 7, right) == 0xc3, "compare_swap");
    that(nvshmem_uint64_atomic_swap(word, 8, right) == 7, "swap");
    that(nvshmem_uint64_atomic_fetch(word, right) == 8, "fetch");
    nvshmem_uint64_atomic_inc(word, right);
    nvshmem_quiet();
    that(nvshmem_uint64_g(word, right) == 9, "inc");
  }
  nvshmem_barrier_all();
  nvshmem_free(word);
}

void test_signals() {
  constexpr size_t kWords = 100000;
  auto* const box = gpu::allocate<uint64_t>(kWords);
  auto* const signal = gpu::allocate<uint64_t>(1);
  for (uint64_t round = 1; round <= 20; ++round) {
    const size_t count = round % 2 == 0 ? 10 : kWords;
    const std::vector<uint64_t> mine(count, round * 100 + static_cast<uint64_t>(me));
    nvshmem_uint64_put_signal(box, mine.data(), count, signal, round % 3 == 0 ? 1 : round,
                              round % 3 == 0 ? NVSHMEM_SIGNAL_ADD : NVSHMEM_SIGNAL_SET, right);
    that(nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, round) == round, "signal_wait_until");
    const auto got = gpu::fetch(box, count);
    that(got == std::vector<uint64_t>(count, round * 100 + static_cast<uint64_t>(left)), "data before its signal");
    nvshmem_barrier_all();
  }
  that(nvshmem_uint64_test(signal, NVSHMEM_CMP_GE, 20) == 1, "test");
  that(nvshmem_signal_fetch(signal) == 20, "signal_fetch");
  nvshmem_barrier_all();
  nvshmem_free(box);
  nvshmem_free(signal);
}

// ---- on_stream calls

__global__ void add_one(uint64_t* word) { *word += 1; }

void test_on_stream() {
  constexpr size_t kWords = 1u << 20;
  auto* const box = gpu::allocate<uint64_t>(kWords);
  auto* const source = gpu::allocate<uint64_t>(kWords);
  auto* const signal = gpu::allocate<uint64_t>(1);
  uint64_t round = 0;
  for (const size_t count : {size_t{1}, size_t{100}, size_t{10000}, kWords}) {
    const std::vector<uint64_t> mine(count, count * 10 + static_cast<uint64_t>(me));
    const std::vector<uint64_t> theirs(count, count * 10 + static_cast<uint64_t>(left));
    gpu::give(source, mine);
    must(cudaDeviceSynchronize(), "source");
    nvshmemx_uint64_put_on_stream(box, source, count, right, stream);
    nvshmemx_barrier_all_on_stream(stream);
    must(cudaStreamSynchronize(stream), "put_on_stream");
    that(gpu::fetch(box, count) == theirs, "put_on_stream of " + std::to_string(count));
    nvshmemx_sync_all_on_stream(stream);
    nvshmemx_uint64_put_signal_on_stream(box, source, count, signal, ++round, NVSHMEM_SIGNAL_SET, right, stream);
    nvshmemx_signal_wait_until_on_stream(signal, NVSHMEM_CMP_GE, round, stream);
    nvshmemx_uint64_get_on_stream(source, box, count, me, stream);
    must(cudaStreamSynchronize(stream), "put_signal_on_stream");
    that(gpu::fetch(source, count) == theirs, "put_signal_on_stream of " + std::to_string(count));
    nvshmemx_barrier_all_on_stream(stream);
  }
  // In the stream's order: each value was read before the next.
  for (uint64_t i = 0; i < 50; ++i) {
    nvshmemx_uint64_p_on_stream(box, i, right, stream);
    nvshmemx_barrier_all_on_stream(stream);
    that(nvshmemx_uint64_g_on_stream(box, me, stream) == i, "p_on_stream");
    nvshmemx_barrier_all_on_stream(stream);
  }
  nvshmemx_uint64_iput_on_stream(box, source, 2, 3, 100, right, stream);
  nvshmemx_quiet_on_stream(stream);
  nvshmemx_barrier_all_on_stream(stream);
  must(cudaStreamSynchronize(stream), "iput_on_stream");

  // A graph of everything, launched several times.
  must(cudaMemset(box, 0, 64), "clear");
  must(cudaMemset(signal, 0, 8), "clear");
  must(cudaDeviceSynchronize(), "clear");
  nvshmem_barrier_all();
  cudaGraph_t graph;
  cudaGraphExec_t launchable;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
  nvshmemx_signal_op_on_stream(signal, 1, NVSHMEM_SIGNAL_ADD, right, stream);
  add_one<<<1, 1, 0, stream>>>(box);
  nvshmemx_uint64_put_on_stream(box + 1, box, 1, right, stream);
  nvshmemx_uint64_p_on_stream(box + 2, 77, right, stream);
  nvshmemx_barrier_all_on_stream(stream);
  nvshmemx_quiet_on_stream(stream);
  must(cudaStreamEndCapture(stream, &graph), "end of capture");
  must(cudaGraphInstantiate(&launchable, graph, 0), "instantiate");
  for (uint64_t i = 1; i <= 10; ++i) {
    must(cudaGraphLaunch(launchable, stream), "launch of a graph");
    must(cudaStreamSynchronize(stream), "graph");
    const auto words = gpu::fetch(box, 3);
    that(words[1] == i && words[2] == 77, "graph " + std::to_string(i));
    that(nvshmem_signal_fetch(signal) == i, "signal of graph " + std::to_string(i));
    nvshmem_barrier_all();
  }
  must(cudaGraphExecDestroy(launchable), "graph");
  must(cudaGraphDestroy(graph), "graph");
  nvshmem_free(box);
  nvshmem_free(source);
  nvshmem_free(signal);
}

// ---- collective launch

__global__ void barriers(int* count) {
  for (int i = 0; i < 10; ++i) {
    if (blockIdx.x == 0) nvshmemx_barrier_all_block();
  }
  if (threadIdx.x == 0) atomicAdd(count, 1);
}

void test_launch() {
  auto* const count = gpu::allocate<int>(1);
  int* argument = count;
  void* arguments[] = {&argument};
  int most = 0;
  const auto* const kernel = reinterpret_cast<const void*>(barriers);
  that(nvshmemx_collective_launch_query_gridsize(kernel, 128, arguments, 0, &most) == 0 && most > 0, "query_gridsize");
  that(nvshmemx_collective_launch(kernel, most, 128, arguments, 0, stream) == 0, "collective_launch");
  must(cudaStreamSynchronize(stream), "collective_launch");
  that(nvshmem_int_g(count, me) == most, "blocks of the largest grid");
  nvshmem_barrier_all();
  nvshmemx_collective_launch_attr_t attr{};
  attr.cuda_config.gridDim = 2;
  attr.cuda_config.blockDim = 128;
  attr.cuda_config.stream = stream;
  that(nvshmemx_collective_launch_attr(&attr, kernel, arguments) == 0, "collective_launch_attr");
  must(cudaStreamSynchronize(stream), "collective_launch_attr");
  that(nvshmem_int_g(count, me) == most + 2, "blocks of collective_launch_attr");
  that(nvshmemx_collective_launch(kernel, most + 1, 128, arguments, 0, stream) == NVSHMEMX_ERROR_INVALID_VALUE,
       "a grid that is too large");
  that(std::string(heddle_last_error()).find("at most " + std::to_string(most)) != std::string::npos,
       "the text names the largest grid");
  nvshmem_barrier_all();
  nvshmem_free(count);
}

void test_growth() {
  const auto before = gpu::allocate<unsigned>(64);
  for (int round = 0; round < 3; ++round) {
    auto* const block = gpu::allocate<unsigned>(20u << 20);  // more than a chunk
    const std::vector<unsigned> mine(1000, static_cast<unsigned>(me + round));
    nvshmem_uint_put(block + (20u << 20) - 1000, mine.data(), 1000, right);
    nvshmem_barrier_all();
    that(gpu::fetch(block + (20u << 20) - 1000, 1000) ==
             std::vector<unsigned>(1000, static_cast<unsigned>(left + round)),
         "put into grown memory");
    that(gpu::fetch(block, 1000) == std::vector<unsigned>(1000, 0), "calloc");
    nvshmem_barrier_all();
    nvshmem_free(block);
  }
  that(nvshmem_malloc(size_t{1} << 50) == nullptr, "more than there is");
  nvshmem_free(before);
}

}  // namespace

int main() {
  gpu::start();
  if (std::string(heddle_fabric_name()).find("peer") != 0) gpu::skip(std::string("fabric ") + heddle_fabric_name());
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  test_put_and_get();
  test_strided();
  test_atomics();
  test_signals();
  test_on_stream();
  test_launch();
  test_growth();
  must(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return gpu::finish("host_calls");
}
