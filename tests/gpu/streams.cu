// Every on_stream call against a model: all sizes and alignments, local memory of every kind, on streams of every kind.
// Two PEs. streams TABLE: TABLE names the calls that there are.
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

constexpr size_t kRoom = 5u << 20;
constexpr size_t kStart = 256;  // where data begins in an area

struct Stream {
  const char* name;
  cudaStream_t stream;
  void wait() const { must(cudaStreamSynchronize(stream), name); }
};

uint64_t serial = 0;  // of steps, the same on all PEs

std::string text(const Stream& on, const gpu::Transfers& of, const char* call, const Area& local, size_t bytes,
                 size_t to, size_t from) {
  return std::string(call) + " " + of.name + ", " + local.name() + ", " + std::to_string(bytes) + " bytes, offsets " +
         std::to_string(to) + " and " + std::to_string(from) + ", on " + on.name;
}

// ---- transfers

/// Offsets, in bytes, are those of the destination and of the source.
void check_put(const Stream& on, const gpu::Transfers& of, gpu::Memory& memory, Area& local, int nbi, size_t count,
               size_t to, size_t from) {
  const size_t bytes = count * of.element;
  local.fill(kStart + from, bytes_of(++serial, me), bytes);
  of.put[nbi](memory.box.at(kStart + to), local.at(kStart + from), count, right, on.stream);
  // A pageable source was read in the call.
  if (local.is_pageable() && nbi == 0) local.fill(kStart + from, bytes_of(serial + 1000, me), bytes);
  gpu::barrier_all(on.stream);
  on.wait();
  std::memcpy(memory.box.model(kStart + to), bytes_of(serial, left), bytes);
  that(memory.box.holds(kStart + to, bytes), text(on, of, nbi != 0 ? "put_nbi" : "put", local, bytes, to, from));
  nvshmem_sync_all();
}

void check_get(const Stream& on, const gpu::Transfers& of, gpu::Memory& memory, Area& local, int nbi, size_t count,
               size_t to, size_t from) {
  const size_t bytes = count * of.element;
  memory.box.fill(kStart + from, bytes_of(++serial, me), bytes);
  nvshmem_sync_all();
  of.get[nbi](local.at(kStart + to), memory.box.at(kStart + from), count, right, on.stream);
  on.wait();
  std::memcpy(local.model(kStart + to), bytes_of(serial, right), bytes);
  that(local.holds(kStart + to, bytes), text(on, of, nbi != 0 ? "get_nbi" : "get", local, bytes, to, from));
  nvshmem_sync_all();
}

void check_put_signal(const Stream& on, const gpu::Transfers& of, gpu::Memory& memory, Area& local, int nbi,
                      size_t count, size_t to, size_t from) {
  const size_t bytes = count * of.element;
  const bool add = serial / 6 % 2 == 0;
  static uint64_t signalled = 0;  // the value of the signal, the same everywhere
  const uint64_t value = add ? 3 : signalled + 10;
  signalled = add ? signalled + 3 : value;
  local.fill(kStart + from, bytes_of(++serial, me), bytes);
  of.put_signal[nbi](memory.box.at(kStart + to), local.at(kStart + from), count, memory.signal, value,
                     add ? NVSHMEM_SIGNAL_ADD : NVSHMEM_SIGNAL_SET, right, on.stream);
  gpu::signal_wait_until(memory.signal, NVSHMEM_CMP_EQ, signalled, on.stream);
  on.wait();
  std::memcpy(memory.box.model(kStart + to), bytes_of(serial, left), bytes);
  that(memory.box.holds(kStart + to, bytes),
       text(on, of, nbi != 0 ? "put_signal_nbi" : "put_signal", local, bytes, to, from));
  nvshmem_sync_all();
}

void check_strided(const Stream& on, const gpu::Transfers& of, gpu::Memory& memory, Area& local, size_t count,
                   ptrdiff_t to, ptrdiff_t from) {
  const auto place = [&](ptrdiff_t stride, size_t i) { return kStart + i * static_cast<size_t>(stride) * of.element; };
  const auto span = [&](ptrdiff_t stride) { return place(stride, count - 1) + of.element - kStart; };
  const auto spread = [&](Area& area, const unsigned char* data) {
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(area.model(place(to, i)), data + (place(from, i) - kStart), of.element);
    }
  };
  const std::string what = std::to_string(count) + " elements of " + of.name + ", strides " + std::to_string(to) +
                           " and " + std::to_string(from) + ", " + local.name() + ", on " + on.name;
  local.fill(kStart, bytes_of(++serial, me), span(from));
  of.iput(memory.box.at(kStart), local.at(kStart), to, from, count, right, on.stream);
  gpu::barrier_all(on.stream);
  on.wait();
  spread(memory.box, bytes_of(serial, left));
  that(memory.box.holds(kStart, span(to)), "iput of " + what);
  nvshmem_sync_all();

  memory.box.fill(kStart, bytes_of(++serial, me), span(from));
  nvshmem_sync_all();
  of.iget(local.at(kStart), memory.box.at(kStart), to, from, count, right, on.stream);
  on.wait();
  spread(local, bytes_of(serial, right));
  that(local.holds(kStart, span(to)), "iget of " + what);
  nvshmem_sync_all();
}

void check_element(const Stream& on, const gpu::Transfers& of, gpu::Memory& memory) {
  if (of.p.function == nullptr) return;
  for (int i = 0; i < 4; ++i) {
    const size_t at = kStart + 3 * of.element * static_cast<size_t>(i);
    alignas(16) unsigned char value[16], got[16] = {};
    std::memcpy(value, bytes_of(++serial, me), of.element);
    of.p(memory.box.at(at), value, right, on.stream);
    gpu::barrier_all(on.stream);
    on.wait();
    std::memcpy(memory.box.model(at), bytes_of(serial, left), of.element);
    that(memory.box.holds(at, of.element), std::string("p of ") + of.name + " on " + on.name);
    of.g(got, memory.box.at(at), right, on.stream);
    that(std::memcmp(got, value, of.element) == 0, std::string("g of ") + of.name + " on " + on.name);
    nvshmem_sync_all();
  }
}

void check_transfers(const Stream& on, const gpu::Transfers& of, gpu::Memory& memory) {
  const bool is_mem = std::strcmp(of.name, "mem") == 0;
  const std::vector<size_t> few = {1, 8, 24, 100, 1024, 5000, 70001};
  const std::vector<size_t> many = {
      1,    2,    3,    4,    5,    7,    8,     9,     12,    15,    16,     17,       31,
      32,   33,   63,   64,   65,   100,  255,   256,   257,   1000,  1023,   1024,     1025,
      4095, 4096, 4097, 5000, 8192, 9001, 32768, 32769, 65536, 65537, 262149, 1u << 20, (4u << 20) + 3};
  const size_t offsets[][2] = {{0, 0}, {1, 0}, {0, 1}, {3, 2}, {4, 4}, {8, 3}, {16, 16}};  // elements
  size_t turn = 0;
  for (Area& local : memory.locals) {
    size_t last = 0;
    for (const size_t bytes : is_mem ? many : few) {
      const size_t count = std::max<size_t>(1, bytes / of.element);
      if (count == last) continue;
      last = count;
      for (size_t i = 0; i < (is_mem ? std::size(offsets) : 1); ++i, ++turn) {
        const auto& offset = offsets[turn % std::size(offsets)];
        for (const int nbi : {0, 1}) {
          check_put(on, of, memory, local, nbi, count, offset[0] * of.element, offset[1] * of.element);
          check_get(on, of, memory, local, nbi, count, offset[0] * of.element, offset[1] * of.element);
          check_put_signal(on, of, memory, local, nbi, count, offset[0] * of.element, offset[1] * of.element);
        }
      }
    }
    for (const size_t count : {size_t{1}, size_t{7}, size_t{300}}) {
      for (const auto& [to, from] : {std::pair<int, int>{1, 1}, {2, 1}, {1, 3}, {3, 2}}) {
        check_strided(on, of, memory, local, count, to, from);
      }
    }
    // Nothing: neither is touched.
    of.put[0](memory.box.at(kStart), local.at(kStart), 0, right, on.stream);
    of.get[0](local.at(kStart), memory.box.at(kStart), 0, right, on.stream);
    of.iput(memory.box.at(kStart), local.at(kStart), 1, 1, 0, right, on.stream);
    gpu::barrier_all(on.stream);
    on.wait();
    that(memory.box.holds(kStart, 64) && local.holds(kStart, 64), std::string("nothing, of ") + of.name);
    nvshmem_sync_all();
  }
  check_element(on, of, memory);
}

// ---- waits

/// `count` values of a type, from integers.
std::vector<unsigned char> values_of(const gpu::Waits& of, const std::vector<long>& values) {
  std::vector<unsigned char> all;
  for (const long value : values) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&value);  // little-endian, as all that has GPUs
    all.insert(all.end(), bytes, bytes + of.element);
  }
  return all;
}

void check_waits(const Stream& on, const gpu::Waits& of, gpu::Memory& memory) {
  unsigned char* const variables = memory.box.at(kStart);
  int* status = nullptr;
  void* references = nullptr;
  must(cudaMallocHost(&status, 4 * sizeof(int)), "cudaMallocHost");
  must(cudaMallocHost(&references, 32), "cudaMallocHost");
  const auto one = [&](int cmp, long value) { of.one(variables, cmp, values_of(of, {value}).data(), on.stream); };
  const auto store = [&](const std::vector<long>& values) {
    const auto data = values_of(of, values);
    memory.box.fill(kStart, data.data(), data.size());
  };
  const auto started = std::chrono::steady_clock::now();
  // What is true already: each comparison, what a status leaves out, signs.
  store({5, 6, 7, 8});
  one(NVSHMEM_CMP_EQ, 5);
  one(NVSHMEM_CMP_NE, 4);
  one(NVSHMEM_CMP_GT, 4);
  one(NVSHMEM_CMP_LE, 5);
  one(NVSHMEM_CMP_LT, 6);
  one(NVSHMEM_CMP_GE, 5);
  const int left_out[4] = {0, 0, 1, 0};
  std::memcpy(status, left_out, sizeof left_out);
  const auto seven = values_of(of, {7}), five = values_of(of, {5}), each = values_of(of, {5, 6, 9, 8});
  std::memcpy(references, each.data(), each.size());
  of.all(variables, 4, nullptr, NVSHMEM_CMP_GE, five.data(), on.stream);
  of.all(variables, 4, status, NVSHMEM_CMP_NE, seven.data(), on.stream);
  of.all(variables, 0, nullptr, NVSHMEM_CMP_EQ, seven.data(), on.stream);
  of.vector(variables, 4, status, NVSHMEM_CMP_EQ, references, on.stream);
  on.wait();
  store({-1, 0, 0, 0});
  one(of.is_signed ? NVSHMEM_CMP_LT : NVSHMEM_CMP_GT, of.is_signed ? 0 : 100);
  on.wait();
  // What becomes true later, by a put of the host's.
  const std::vector<std::vector<long>> later = {{77, 0, 0, 0}, {70, 71, 72, 73}, {5, 6, 1, 8}};
  for (int form = 0; form < 3; ++form) {
    store({0, 0, 0, 0});
    nvshmem_sync_all();
    if (form == 0) one(NVSHMEM_CMP_EQ, 77);
    if (form == 1) of.all(variables, 4, nullptr, NVSHMEM_CMP_GT, values_of(of, {69}).data(), on.stream);
    if (form == 2) of.vector(variables, 4, status, NVSHMEM_CMP_EQ, references, on.stream);
    that(cudaStreamQuery(on.stream) == cudaErrorNotReady,
         std::string("a wait of ") + of.name + " waits, on " + on.name);
    nvshmem_sync_all();
    const auto data = values_of(of, later[static_cast<size_t>(form)]);
    nvshmem_putmem(variables, data.data(), data.size(), right);
    nvshmem_quiet();
    on.wait();
    std::memcpy(memory.box.model(kStart), data.data(), data.size());
    that(memory.box.holds(kStart, data.size()), std::string("what a wait of ") + of.name + " waited for");
    nvshmem_sync_all();
  }
  // Less than a wait takes that gives up.
  that(std::chrono::steady_clock::now() - started < std::chrono::seconds(10),
       std::string("waits of ") + of.name + " end");
  must(cudaFreeHost(references), "cudaFreeHost");
  must(cudaFreeHost(status), "cudaFreeHost");
}

// ---- order and synchronisation

void check_order(const Stream& on, gpu::Memory& memory) {
  constexpr size_t kBytes = 4u << 20;
  Area& pinned = memory.locals[2];
  uint64_t* const signal = memory.signal + 1;
  // The host's puts come before what follows quiet.
  for (uint64_t round = 1; round <= 5; ++round) {
    pinned.fill(kStart, bytes_of(++serial, me), kBytes);
    nvshmem_putmem_nbi(memory.box.at(kStart), pinned.at(kStart), kBytes, right);
    gpu::quiet(on.stream);
    gpu::signal_op(signal, round, NVSHMEM_SIGNAL_SET, right, on.stream);
    gpu::signal_wait_until(signal, NVSHMEM_CMP_EQ, round, on.stream);
    on.wait();
    std::memcpy(memory.box.model(kStart), bytes_of(serial, left), kBytes);
    that(memory.box.holds(kStart, kBytes), std::string("quiet on ") + on.name);
    nvshmem_barrier_all();
  }
  // What was flushed has read its source.
  Area& plain = memory.locals[1];
  plain.fill(kStart, bytes_of(++serial, me), kBytes);
  nvshmemx_putmem_nbi_on_stream(memory.box.at(kStart), plain.at(kStart), kBytes, right, on.stream);
  gpu::flush(on.stream);
  must(cudaMemsetAsync(plain.at(kStart), 0, kBytes, on.stream), "memset");
  gpu::barrier_all(on.stream);
  on.wait();
  std::memset(plain.model(kStart), 0, kBytes);
  std::memcpy(memory.box.model(kStart), bytes_of(serial, left), kBytes);
  that(memory.box.holds(kStart, kBytes) && plain.holds(kStart, kBytes), std::string("flush on ") + on.name);
  nvshmem_barrier_all();
  // Signals that add up, from both sides.
  for (int i = 0; i < 10; ++i) gpu::signal_op(signal, 2, NVSHMEM_SIGNAL_ADD, right, on.stream);
  gpu::signal_wait_until(signal, NVSHMEM_CMP_GE, 25, on.stream);
  on.wait();
  that(nvshmem_signal_fetch(signal) == 25, std::string("signals that add on ") + on.name);
  nvshmem_barrier_all();
  gpu::signal_op(signal, 0, NVSHMEM_SIGNAL_SET, me, on.stream);
  on.wait();
  // Every barrier: each value is there after one, and stays until the other.
  auto* const word = reinterpret_cast<long*>(memory.box.at(kStart));
  for (const auto* meet : {&gpu::barrier_all, &gpu::sync_all, &gpu::barrier_world, &gpu::sync_world}) {
    for (long i = 0; i < 25; ++i) {
      nvshmemx_long_p_on_stream(word, i, right, on.stream);
      (*meet)(on.stream);
      that(nvshmemx_long_g_on_stream(word, me, on.stream) == i, std::string((*meet).name) + " on " + on.name);
      (*meet)(on.stream);
    }
  }
  on.wait();
  memory.box.fill(kStart, bytes_of(++serial, me), 64);
  that(nvshmemx_barrier_on_stream(NVSHMEM_TEAM_MC_SHARED, on.stream) == 0, "barrier of one PE");
  that(nvshmemx_team_sync_on_stream(NVSHMEM_TEAM_INVALID, on.stream) != 0, "team_sync of no team");
  on.wait();
  nvshmem_barrier_all();
}

/// Strides beyond what copies of two dimensions take, which go piece by piece: in batches, on the legacy stream not.
void check_wide(const Stream& on, gpu::Memory& memory) {
  constexpr size_t kCount = 5, kStride = size_t{3} << 30;  // bytes
  void* const wide =
      mmap(nullptr, kCount * kStride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (!that(wide != MAP_FAILED, "15 GiB of addresses")) return;
  const auto at = [&](size_t i) { return static_cast<unsigned char*>(wide) + i * kStride; };
  for (const bool by_host : {false, true}) {
    const auto* const mine = bytes_of(++serial, me);
    for (size_t i = 0; i < kCount; ++i) std::memcpy(at(i), mine + 8 * i, 8);
    auto* const box = reinterpret_cast<uint64_t*>(memory.box.at(kStart));
    auto* const local = static_cast<uint64_t*>(wide);
    if (by_host) {
      nvshmem_uint64_iput(box, local, 2, kStride / 8, kCount, right);
      nvshmem_quiet();
    } else {
      nvshmemx_uint64_iput_on_stream(box, local, 2, kStride / 8, kCount, right, on.stream);
      for (size_t i = 0; i < kCount; ++i) std::memset(at(i), 0x33, 8);  // it was read
      gpu::barrier_all(on.stream);
    }
    on.wait();
    nvshmem_barrier_all();
    for (size_t i = 0; i < kCount; ++i)
      std::memcpy(memory.box.model(kStart + 16 * i), bytes_of(serial, left) + 8 * i, 8);
    that(memory.box.holds(kStart, 16 * kCount), std::string("iput with wide strides on ") + on.name);
    for (size_t i = 0; i < kCount; ++i) std::memset(at(i), 0, 8);
    if (by_host) {
      nvshmem_uint64_iget(local, box, kStride / 8, 2, kCount, right);
    } else {
      nvshmemx_uint64_iget_on_stream(local, box, kStride / 8, 2, kCount, right, on.stream);
      on.wait();
    }
    bool all = true;
    for (size_t i = 0; i < kCount; ++i) all &= std::memcmp(at(i), mine + 8 * i, 8) == 0;
    that(all, std::string("iget with wide strides on ") + on.name);
    nvshmem_sync_all();
  }
  munmap(wide, kCount * kStride);
}

/// Memory of another GPU of the process: copies reach it, kernels do not.
void check_other_gpu(const Stream& on, gpu::Memory& memory) {
  constexpr size_t kBytes = 20000;
  int own = 0, devices = 0;
  must(cudaGetDevice(&own), "cudaGetDevice");
  must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (devices < 2) {
    std::puts("memory of another GPU is not tried: there is one GPU only");
    return;
  }
  void* memory_there = nullptr;
  must(cudaSetDevice((own + 1) % devices), "cudaSetDevice");
  must(cudaMalloc(&memory_there, kBytes), "cudaMalloc");
  must(cudaSetDevice(own), "cudaSetDevice");
  {
    Area other("another GPU's", memory_there, kBytes, false);
    for (const size_t count : {size_t{1}, size_t{8}, size_t{1000}, size_t{9000}}) {
      for (const int nbi : {0, 1}) {
        check_put(on, gpu::all_transfers().back(), memory, other, nbi, count, 0, 0);
        check_get(on, gpu::all_transfers().back(), memory, other, nbi, count, 0, 1);
        check_put_signal(on, gpu::all_transfers().back(), memory, other, nbi, count, 1, 0);
      }
    }
    check_strided(on, gpu::all_transfers().front(), memory, other, 100, 2, 3);
  }
  must(cudaFree(memory_there), "cudaFree");
}

}  // namespace

int main(int argc, char** argv) {
  gpu::start();
  if (std::string(heddle_fabric_name()).find("peer") != 0) gpu::skip(std::string("fabric ") + heddle_fabric_name());
  cudaStream_t own = nullptr;
  must(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "cudaStreamCreate");
  {
    gpu::Memory memory(kRoom);
    nvshmem_barrier_all();
    for (const Stream& on : {Stream{"a stream that does not block", own}, Stream{"the legacy stream", nullptr},
                             Stream{"the thread's stream", cudaStreamPerThread}}) {
      for (const gpu::Transfers& of : gpu::all_transfers()) check_transfers(on, of, memory);
      for (const gpu::Waits& of : gpu::all_waits()) check_waits(on, of, memory);
      check_order(on, memory);
      check_wide(on, memory);
      check_other_gpu(on, memory);
    }
    if (argc > 1) gpu::check_all_called(argv[1]);
  }
  must(cudaStreamDestroy(own), "cudaStreamDestroy");
  return gpu::finish("streams");
}
