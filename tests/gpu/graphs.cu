// Every on_stream call in a CUDA graph: captured once, launched several times with other data each time. Two PEs.
// graphs TABLE: TABLE names the calls that there are.
#include <sys/mman.h>

#include <chrono>

#include "tests/gpu/stream_calls.cuh"

namespace {

using gpu::Area;
using gpu::bytes_of;
using gpu::left;
using gpu::me;
using gpu::must;
using gpu::right;
using gpu::that;

constexpr size_t kRoom = 1u << 20;
constexpr size_t kStart = 256;  // where data begins in an area
constexpr int kLaunches = 3;

cudaStream_t stream;
uint64_t serial = 0;  // of steps, the same on all PEs

void wait() { must(cudaStreamSynchronize(stream), "the stream"); }

/// What `body` does to the stream, as a graph. The modes of capture take turns.
class Graph {
 public:
  template <class Body>
  Graph(const std::string& what, const Body& body) : what_(what) {
    static unsigned turn = 0;
    constexpr cudaStreamCaptureMode kModes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                                cudaStreamCaptureModeRelaxed};
    must(cudaStreamBeginCapture(stream, kModes[turn++ % 3]), "begin of a capture");
    body();
    const cudaError_t end = cudaStreamEndCapture(stream, &graph_);
    that(end == cudaSuccess, what + " is captured: " + cudaGetErrorString(end));
    if (end != cudaSuccess) {
      (void)cudaGetLastError();
      graph_ = nullptr;
      return;
    }
    must(cudaGraphInstantiate(&launchable_, graph_, 0), "cudaGraphInstantiate");
  }
  ~Graph() {
    if (graph_ == nullptr) return;
    must(cudaGraphExecDestroy(launchable_), "cudaGraphExecDestroy");
    must(cudaGraphDestroy(graph_), "cudaGraphDestroy");
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  bool usable() const { return graph_ != nullptr; }
  void launch() const { must(cudaGraphLaunch(launchable_, stream), what_.c_str()); }

 private:
  const std::string what_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t launchable_ = nullptr;
};

/// All PEs have a graph, or none goes on.
bool all_usable(const Graph& graph) {
  static int* const unusable = gpu::allocate<int>(1);
  if (!graph.usable()) nvshmem_int_atomic_add(unusable, 1, 0);
  nvshmem_barrier_all();
  const bool all = nvshmem_int_g(unusable, 0) == 0;
  nvshmem_barrier_all();
  if (me == 0) nvshmem_int_p(unusable, 0, 0);
  nvshmem_barrier_all();
  return all;
}

// ---- transfers

void check_moves(const gpu::Transfers& of, gpu::Memory& memory, Area& local, int nbi, size_t count) {
  const size_t bytes = count * of.element;
  const std::string what = std::string(of.name) + (nbi != 0 ? ", nbi, " : ", ") + local.name() + ", " +
                           std::to_string(bytes) + " bytes, in a graph";
  unsigned char *const box = memory.box.at(kStart), *const at = local.at(kStart);
  {
    const Graph put("put of " + what, [&] {
      of.put[nbi](box, at, count, right, stream);
      gpu::barrier_all(stream);
    });
    for (int i = 0; all_usable(put) && i < kLaunches; ++i) {
      local.fill(kStart, bytes_of(++serial, me), bytes);
      put.launch();
      wait();
      std::memcpy(memory.box.model(kStart), bytes_of(serial, left), bytes);
      that(memory.box.holds(kStart, bytes), "put of " + what);
      nvshmem_sync_all();
    }
  }
  {
    const Graph get("get of " + what, [&] { of.get[nbi](at, box, count, right, stream); });
    for (int i = 0; all_usable(get) && i < kLaunches; ++i) {
      memory.box.fill(kStart, bytes_of(++serial, me), bytes);
      nvshmem_sync_all();
      get.launch();
      wait();
      std::memcpy(local.model(kStart), bytes_of(serial, right), bytes);
      that(local.holds(kStart, bytes), "get of " + what);
      nvshmem_sync_all();
    }
  }
  const bool add = (count + static_cast<size_t>(nbi)) % 2 == 0;
  const Graph put_signal("put_signal of " + what, [&] {
    of.put_signal[nbi](box, at, count, memory.signal, 7, add ? NVSHMEM_SIGNAL_ADD : NVSHMEM_SIGNAL_SET, right, stream);
    gpu::signal_wait_until(memory.signal, NVSHMEM_CMP_EQ, 7, stream);
    gpu::signal_op(memory.signal, 0, NVSHMEM_SIGNAL_SET, me, stream);
  });
  for (int i = 0; all_usable(put_signal) && i < kLaunches; ++i) {
    local.fill(kStart, bytes_of(++serial, me), bytes);
    put_signal.launch();
    wait();
    std::memcpy(memory.box.model(kStart), bytes_of(serial, left), bytes);
    that(memory.box.holds(kStart, bytes), "put_signal of " + what);
    nvshmem_sync_all();
  }
}

void check_strided(const gpu::Transfers& of, gpu::Memory& memory, Area& local) {
  constexpr size_t kCount = 50;
  constexpr ptrdiff_t kTo = 2, kFrom = 3;
  const std::string what = std::string(of.name) + ", " + local.name() + ", in a graph";
  const auto spread = [&](Area& area, const unsigned char* data) {
    for (size_t i = 0; i < kCount; ++i) {
      std::memcpy(area.model(kStart + i * kTo * of.element), data + i * kFrom * of.element, of.element);
    }
  };
  const size_t from_bytes = kCount * kFrom * of.element, to_bytes = kCount * kTo * of.element;
  const Graph put("iput of " + what, [&] {
    of.iput(memory.box.at(kStart), local.at(kStart), kTo, kFrom, kCount, right, stream);
    gpu::barrier_all(stream);
  });
  for (int i = 0; all_usable(put) && i < kLaunches; ++i) {
    local.fill(kStart, bytes_of(++serial, me), from_bytes);
    put.launch();
    wait();
    spread(memory.box, bytes_of(serial, left));
    that(memory.box.holds(kStart, to_bytes), "iput of " + what);
    nvshmem_sync_all();
  }
  const Graph get("iget of " + what,
                  [&] { of.iget(local.at(kStart), memory.box.at(kStart), kTo, kFrom, kCount, right, stream); });
  for (int i = 0; all_usable(get) && i < kLaunches; ++i) {
    memory.box.fill(kStart, bytes_of(++serial, me), from_bytes);
    nvshmem_sync_all();
    get.launch();
    wait();
    spread(local, bytes_of(serial, right));
    that(local.holds(kStart, to_bytes), "iget of " + what);
    nvshmem_sync_all();
  }
}

/// p keeps its value; g is refused and leaves the capture as it is.
void check_element(const gpu::Transfers& of, gpu::Memory& memory) {
  if (of.p.function == nullptr) return;
  alignas(16) unsigned char value[16], got[16];
  std::memcpy(value, bytes_of(++serial, me), of.element);
  const std::vector<unsigned char> zeroes(of.element),
      kept(bytes_of(serial, left), bytes_of(serial, left) + of.element);
  const Graph graph(std::string("p of ") + of.name, [&] {
    of.p(memory.box.at(kStart), value, right, stream);
    std::memset(value, 0x55, sizeof value);
    std::memset(got, 0x55, sizeof got);
    heddle_clear_error();
    of.g(got, memory.box.at(kStart), right, stream);
    that(std::string(heddle_last_error()).find("is being captured") != std::string::npos &&
             std::memcmp(got, zeroes.data(), of.element) == 0,
         std::string("g of ") + of.name + " in a capture is refused");
    gpu::barrier_all(stream);
  });
  heddle_clear_error();
  for (int i = 0; all_usable(graph) && i < kLaunches; ++i) {
    memory.box.fill(kStart, zeroes.data(), of.element);
    nvshmem_sync_all();
    graph.launch();
    wait();
    std::memcpy(memory.box.model(kStart), kept.data(), of.element);
    that(memory.box.holds(kStart, of.element), std::string("p of ") + of.name + " in a graph");
    nvshmem_sync_all();
  }
}

// ---- waits and order

void check_waits(const gpu::Waits& of, gpu::Memory& memory) {
  unsigned char* const variables = memory.box.at(kStart);
  const auto value_of = [&](long value) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&value);  // little-endian
    return std::vector<unsigned char>(bytes, bytes + of.element);
  };
  const auto four = [&](long first) {
    std::vector<unsigned char> all;
    for (long i = 0; i < 4; ++i) {
      const auto one = value_of(first + i);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  };
  unsigned char* references = nullptr;
  must(cudaMallocHost(&references, 32), "cudaMallocHost");
  const auto nine = value_of(9), data = four(9), zeroes = std::vector<unsigned char>(4 * of.element);
  const Graph graph(std::string("waits of ") + of.name, [&] {
    of.one(variables, NVSHMEM_CMP_EQ, nine.data(), stream);
    of.all(variables, 4, nullptr, NVSHMEM_CMP_GE, nine.data(), stream);
    of.vector(variables, 4, nullptr, NVSHMEM_CMP_EQ, references, stream);
  });
  std::memcpy(references, data.data(), data.size());  // an array is read at each launch
  enum Way { kEarlier, kLater, kByStream };
  for (const Way way : {kEarlier, kLater, kByStream}) {
    const auto started = std::chrono::steady_clock::now();
    memory.box.fill(kStart, zeroes.data(), zeroes.size());
    if (!all_usable(graph)) break;
    const auto put = [&] {
      nvshmem_putmem(variables, data.data(), data.size(), right);
      nvshmem_quiet();
    };
    if (way == kEarlier) {
      put();
      nvshmem_sync_all();
    }
    graph.launch();
    if (way != kEarlier) {
      that(cudaStreamQuery(stream) == cudaErrorNotReady, std::string("a wait in a graph waits, of ") + of.name);
      nvshmem_sync_all();
    }
    if (way == kLater) put();
    if (way == kByStream) {
      nvshmemx_putmem_on_stream(variables, data.data(), data.size(), right, cudaStreamPerThread);
      must(cudaStreamSynchronize(cudaStreamPerThread), "the other stream");
    }
    wait();
    std::memcpy(memory.box.model(kStart), data.data(), data.size());
    that(memory.box.holds(kStart, data.size()), std::string("what waits of ") + of.name + " in a graph waited for");
    that(std::chrono::steady_clock::now() - started < std::chrono::seconds(10),
         std::string("waits of ") + of.name + " in a graph end");
    nvshmem_sync_all();
  }
  must(cudaFreeHost(references), "cudaFreeHost");
}

void check_order(gpu::Memory& memory) {
  auto* const word = reinterpret_cast<long*>(memory.box.at(kStart));
  const long zero = 0;
  for (const auto* meet : {&gpu::barrier_all, &gpu::sync_all, &gpu::barrier_world, &gpu::sync_world}) {
    const Graph graph(meet->name, [&] {
      nvshmemx_long_p_on_stream(word, 5, right, stream);
      gpu::quiet(stream);
      gpu::flush(stream);
      (*meet)(stream);
    });
    for (int i = 0; all_usable(graph) && i < 10; ++i) {
      memory.box.fill(kStart, reinterpret_cast<const unsigned char*>(&zero), sizeof zero);
      nvshmem_sync_all();
      graph.launch();
      wait();
      that(nvshmem_long_g(word, me) == 5, std::string(meet->name) + " in a graph");
      nvshmem_sync_all();
    }
  }
  // Host calls while a stream is captured, in each mode of capture.
  for (long i = 1; i <= 3; ++i) {
    const Graph graph("a stream beside host calls", [&] {
      nvshmemx_long_p_on_stream(word, 100 + i, right, stream);
      nvshmem_long_p(word + 1, i, right);
      nvshmem_quiet();
      that(nvshmem_long_g(word + 1, right) == i, "g of the host beside a capture");
      that(nvshmem_long_atomic_fetch_inc(word + 1, right) == i, "an atomic of the host beside a capture");
      gpu::barrier_all(stream);
    });
    if (all_usable(graph)) graph.launch();
    wait();
    that(nvshmem_long_g(word, me) == 100 + i && nvshmem_long_g(word + 1, me) == i + 1,
         "a graph made beside host calls");
    nvshmem_barrier_all();
  }
  memory.box.fill(kStart, bytes_of(++serial, me), 64);
}

/// Strides beyond what copies of two dimensions take, which go piece by piece.
void check_wide(gpu::Memory& memory) {
  constexpr size_t kStride = size_t{3} << 30;  // bytes
  void* const wide =
      mmap(nullptr, 2 * kStride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!that(wide != MAP_FAILED, "6 GiB of addresses")) return;
  auto* const local = static_cast<uint64_t*>(wide);
  const Graph graph("iput with wide strides", [&] {
    nvshmemx_uint64_iput_on_stream(reinterpret_cast<uint64_t*>(memory.box.at(kStart)), local, 1, kStride / 8, 2, right,
                                   stream);
    gpu::barrier_all(stream);
  });
  for (int i = 0; all_usable(graph) && i < kLaunches; ++i) {
    ++serial;
    for (size_t k = 0; k < 2; ++k) std::memcpy(local + k * kStride / 8, bytes_of(serial, me) + 8 * k, 8);
    graph.launch();
    wait();
    std::memcpy(memory.box.model(kStart), bytes_of(serial, left), 16);
    that(memory.box.holds(kStart, 16), "iput with wide strides in a graph");
    nvshmem_sync_all();
  }
  munmap(wide, 2 * kStride);
}

// ---- a whole exchange

__global__ void produce(const uint64_t* round, uint64_t* source, size_t count, uint64_t pe) {
  for (size_t i = threadIdx.x; i < count; i += blockDim.x) source[i] = *round * 1000003 + pe * 7919 + i;
}
/// Adds what is wrong with `data` of PE `pe` to *wrong.
__global__ void verify(const uint64_t* round, const uint64_t* data, size_t count, uint64_t pe,
                       unsigned long long* wrong) {
  for (size_t i = threadIdx.x; i < count; i += blockDim.x) {
    if (data[i] != *round * 1000003 + pe * 7919 + i) atomicAdd(wrong, 1ull);
  }
}
__global__ void next_round(uint64_t* round) { ++*round; }

void check_exchange(gpu::Memory& memory, size_t count) {
  constexpr uint64_t kRounds = 100;
  auto* const box = reinterpret_cast<uint64_t*>(memory.box.at(0));
  auto* const source = reinterpret_cast<uint64_t*>(memory.symmetric);
  auto* const copy = static_cast<uint64_t*>(memory.plain);
  uint64_t* const signal = memory.signal + 1;
  uint64_t* const round = gpu::on_gpu(std::vector<uint64_t>{1});
  unsigned long long* const wrong = gpu::on_gpu(std::vector<unsigned long long>{0});
  must(cudaDeviceSynchronize(), "the start");
  // Loaded now, as a capture is no time for it.
  cudaFuncAttributes attributes;
  must(cudaFuncGetAttributes(&attributes, produce), "produce");
  must(cudaFuncGetAttributes(&attributes, verify), "verify");
  must(cudaFuncGetAttributes(&attributes, next_round), "next_round");
  const auto mine = static_cast<uint64_t>(me), theirs = static_cast<uint64_t>(left);
  const Graph graph("an exchange", [&] {
    produce<<<1, 256, 0, stream>>>(round, source, count, mine);
    nvshmemx_uint64_put_signal_on_stream(box, source, count, signal, 1, NVSHMEM_SIGNAL_SET, right, stream);
    nvshmemx_signal_wait_until_on_stream(signal, NVSHMEM_CMP_EQ, 1, stream);
    verify<<<1, 256, 0, stream>>>(round, box, count, theirs, wrong);
    nvshmemx_uint64_get_on_stream(copy, box, count, right, stream);
    verify<<<1, 256, 0, stream>>>(round, copy, count, mine, wrong);
    nvshmemx_signal_op_on_stream(signal, 0, NVSHMEM_SIGNAL_SET, me, stream);
    next_round<<<1, 1, 0, stream>>>(round);
    nvshmemx_barrier_all_on_stream(stream);
  });
  if (all_usable(graph)) {
    for (uint64_t i = 0; i < kRounds; ++i) graph.launch();  // all of them before the first is waited for
    wait();
    const std::string what = "100 exchanges of " + std::to_string(8 * count) + " bytes in a graph";
    that(gpu::fetch(round, 1)[0] == kRounds + 1, what + ": all have run");
    that(gpu::fetch(wrong, 1)[0] == 0, what + ": all data is right");
  }
  nvshmem_barrier_all();
  must(cudaFree(round), "cudaFree");
  must(cudaFree(wrong), "cudaFree");
}

}  // namespace

int main(int argc, char** argv) {
  gpu::start();
  if (std::string(heddle_fabric_name()).find("peer") != 0) gpu::skip(std::string("fabric ") + heddle_fabric_name());
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  {
    gpu::Memory memory(kRoom);
    nvshmem_barrier_all();
    for (const gpu::Transfers& of : gpu::all_transfers()) {
      for (Area& local : memory.locals) {
        for (const size_t bytes : {size_t{16}, size_t{3003}, size_t{50001}}) {
          for (const int nbi : {0, 1}) check_moves(of, memory, local, nbi, bytes / of.element);
        }
        check_strided(of, memory, local);
      }
      check_element(of, memory);
    }
    for (const gpu::Waits& of : gpu::all_waits()) check_waits(of, memory);
    check_order(memory);
    check_wide(memory);
    for (const size_t count : {size_t{1}, size_t{512}, size_t{100000}}) check_exchange(memory, count);
    if (argc > 1) gpu::check_all_called(argv[1]);
  }
  must(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return gpu::finish("graphs");
}
