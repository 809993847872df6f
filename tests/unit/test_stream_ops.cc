// on_stream calls, on the driver in host memory: every way that a transfer can take does the same, in captures too.
#include <cstdint>
#include <numeric>

#include "include/nvshmem_types.h"
#include "runtime/stream_ops.h"
#include "runtime/strided_copy.h"
#include "unit/gpu_world.h"

using namespace heddle;        // NOLINT
using namespace heddle::test;  // NOLINT

namespace {

/// Memory of each kind that a program may pass.
class Buffers {
 public:
  Buffers(World& world, size_t bytes) : scope_(*world.fabric().gpu()), pageable_(bytes) {
    const cuda::Driver& driver = FakeCuda::the().table();
    void* pinned = nullptr;
    if (driver.MemAlloc(&own_, bytes) != CUDA_SUCCESS || driver.MemHostAlloc(&pinned, bytes, 0) != CUDA_SUCCESS) {
      std::abort();
    }
    pinned_ = static_cast<char*>(pinned);
    // Of the other GPU: its context is current while it is made.
    CUcontext context = nullptr;
    const CUdevice other = 1 - world.fabric().gpu()->device();
    if (driver.DevicePrimaryCtxRetain(&context, other) != CUDA_SUCCESS ||
        driver.CtxPushCurrent(context) != CUDA_SUCCESS || driver.MemAlloc(&others_, bytes) != CUDA_SUCCESS ||
        driver.CtxPopCurrent(&context) != CUDA_SUCCESS || driver.DevicePrimaryCtxRelease(other) != CUDA_SUCCESS) {
      std::abort();
    }
  }
  ~Buffers() {
    const cuda::Driver& driver = FakeCuda::the().table();
    (void)driver.MemFree(own_);
    (void)driver.MemFree(others_);
    (void)driver.MemFreeHost(pinned_);
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  char* pageable() { return pageable_.data(); }
  char* pinned() const { return pinned_; }
  char* own() const { return reinterpret_cast<char*>(own_); }
  char* others() const { return reinterpret_cast<char*>(others_); }  ///< of a GPU that kernels here cannot reach
  std::vector<char*> all() { return {pageable(), pinned(), own(), others()}; }

 private:
  const ContextScope scope_;
  std::vector<char> pageable_;
  char* pinned_ = nullptr;
  CUdeviceptr own_ = 0, others_ = 0;
};

void fill(char* at, size_t bytes, int seed) {
  for (size_t i = 0; i < bytes; ++i) at[i] = static_cast<char>(i * 31 + i / 256 + static_cast<size_t>(seed));
}

/// Whether `bytes` of symmetric memory at `at` are `expected`, and 8 bytes on each side are zero.
bool holds(World& world, const char* at, const char* expected, size_t bytes) {
  std::vector<char> got(bytes + 16), wanted(bytes + 16);
  host::get(world, "get", got.data(), at - 8, got.size(), world.my_pe());
  std::memcpy(wanted.data() + 8, expected, bytes);
  return got == wanted;
}

int kernels() {
  int sum = 0;
  for (const char* name : {"heddle_copy_units", "heddle_copy"}) sum += FakeCuda::the().launches(name);
  return sum;
}

constexpr size_t kRoom = 80000;
const std::vector<size_t> kSizes = {1, 2, 3, 4, 5, 8, 12, 16, 24, 40, 100, 1000, 1024, 1025, 4096, 4097, 33000, 70000};

}  // namespace

TEST_CASE("on_stream puts, gets and puts with signals of every size, alignment and kind of memory") {
  const FakeCuda::Use driver;
  FakeCuda::the().traits.stream_writes = GENERATE(true, false);
  run_on_gpus(1, [](World& world) -> Status {
    const TestStream stream(world);
    Buffers buffers(world, kRoom);
    char* box = nullptr;
    uint64_t* signal = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, kRoom + 64, &box));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &signal));
    const std::vector<char> zeroes(kRoom + 64);
    const auto clear = [&] {
      host::put(world, "put", box, zeroes.data(), zeroes.size(), 0);
      return world.quiet();  // other streams come next
    };
    uint64_t round = 0;
    for (const size_t bytes : kSizes) {
      for (const size_t to : {size_t{16}, size_t{17}, size_t{20}}) {
        for (char* const local : buffers.all()) {
          char* const source = local + (to == 20 ? 4 : to == 17 ? 3 : 0);
          std::vector<char> expected(bytes);
          fill(expected.data(), bytes, static_cast<int>(++round));
          const bool is_pageable = local == buffers.pageable();
          const auto same = [&](const char* what) -> Status {
            if (is_pageable) std::memset(source, 0x77, bytes);  // it was read
            stream.wait();
            const bool right = holds(world, box + to, expected.data(), bytes);
            HEDDLE_RETURN_IF_ERROR(clear());
            return right ? Status::ok() : error(Code::kInternal, "%s of %zu bytes to %zu", what, bytes, to);
          };
          std::memcpy(source, expected.data(), bytes);
          HEDDLE_RETURN_IF_ERROR(stream::put(world, box + to, source, bytes, 0, stream.get()));
          HEDDLE_RETURN_IF_ERROR(same("put"));
          for (const int op : {NVSHMEM_SIGNAL_SET, NVSHMEM_SIGNAL_ADD}) {
            std::memcpy(source, expected.data(), bytes);
            host::p(world, "p", signal, uint64_t{5}, 0);
            HEDDLE_RETURN_IF_ERROR(world.quiet());
            HEDDLE_RETURN_IF_ERROR(
                stream::put_signal(world, box + to, source, bytes, signal, round, op, 0, stream.get()));
            HEDDLE_RETURN_IF_ERROR(same("put_signal"));
            HEDDLE_RETURN_IF_ERROR(expect(own(world, signal) == round + (op == NVSHMEM_SIGNAL_ADD ? 5 : 0), "signal"));
          }
          host::put(world, "put", box + to, expected.data(), bytes, 0);
          HEDDLE_RETURN_IF_ERROR(world.quiet());
          std::memset(source, 0, bytes);
          HEDDLE_RETURN_IF_ERROR(stream::get(world, source, box + to, bytes, 0, stream.get()));
          stream.wait();
          HEDDLE_RETURN_IF_ERROR(expect(std::memcmp(source, expected.data(), bytes) == 0, "get"));
          HEDDLE_RETURN_IF_ERROR(clear());
        }
      }
    }
    HEDDLE_RETURN_IF_ERROR(world.free(signal));
    return world.free(box);
  });
}

TEST_CASE("small transfers of graphs are kernels where kernels reach the memory, and copies in streams") {
  const FakeCuda::Use driver;
  run_on_gpus(1, [](World& world) -> Status {
    FakeCuda& cuda = FakeCuda::the();
    const TestStream stream(world);
    Buffers buffers(world, kRoom);
    char* box = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, kRoom, &box));
    const auto kernels_of = [&](char* local, size_t bytes, bool is_get) {
      const int before = kernels();
      const Status status = is_get ? stream::get(world, local, box, bytes, 0, stream.get())
                                   : stream::put(world, box, local, bytes, 0, stream.get());
      if (!status.is_ok()) std::abort();
      return kernels() - before;
    };
    const auto by_kernel = [&](char* local, size_t bytes, bool is_get) {
      FakeCuda::Graph graph;
      cuda.begin_capture(stream.get());
      const int found = kernels_of(local, bytes, is_get);
      if (!cuda.end_capture(stream.get(), &graph)) std::abort();
      return found == 1;
    };
    for (const bool is_get : {false, true}) {
      HEDDLE_RETURN_IF_ERROR(expect(kernels_of(buffers.own(), 8, is_get) == 0, "not captured"));
      HEDDLE_RETURN_IF_ERROR(expect(by_kernel(buffers.own(), 8, is_get), "GPU memory"));
      HEDDLE_RETURN_IF_ERROR(expect(by_kernel(box + 8192, 8, is_get), "symmetric memory"));
      HEDDLE_RETURN_IF_ERROR(expect(by_kernel(buffers.pinned(), 100, is_get), "pinned memory"));
      HEDDLE_RETURN_IF_ERROR(expect(!by_kernel(buffers.others(), 8, is_get), "memory of another GPU"));
      HEDDLE_RETURN_IF_ERROR(expect(!by_kernel(buffers.own(), kRoom, is_get), "much"));
      HEDDLE_RETURN_IF_ERROR(expect(!by_kernel(buffers.pageable(), 100, is_get), "pageable memory"));
    }
    stream.wait();
    return world.free(box);
  });
}

TEST_CASE("host calls beside a capture of the same thread leave it valid") {
  const FakeCuda::Use driver;
  run_on_gpus(1, [](World& world) -> Status {
    FakeCuda& cuda = FakeCuda::the();
    const TestStream captured(world), other(world);
    uint64_t* box = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 8, &box));
    host::p(world, "p", box, uint64_t{5}, 0);  // not completed when the capture begins
    cuda.begin_capture(captured.get());
    HEDDLE_RETURN_IF_ERROR(stream::signal(world, box + 1, 4, NVSHMEM_SIGNAL_SET, 0, captured.get()));
    HEDDLE_RETURN_IF_ERROR(stream::quiet(world, captured.get()));
    HEDDLE_RETURN_IF_ERROR(expect(own(world, box) == 5, "g beside a capture"));
    host::p(world, "p", box, uint64_t{6}, 0);
    HEDDLE_RETURN_IF_ERROR(world.quiet());
    uint64_t value = 0;
    HEDDLE_RETURN_IF_ERROR(stream::load(world, &value, box, 8, 0, other.get()));
    HEDDLE_RETURN_IF_ERROR(expect(value == 6, "g on another stream"));
    uint64_t* late = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1u << 20, &late));  // grows the heap
    HEDDLE_RETURN_IF_ERROR(stream::put(world, late, box, 8, 0, captured.get()));
    FakeCuda::Graph graph;
    HEDDLE_RETURN_IF_ERROR(expect(cuda.end_capture(captured.get(), &graph), "the capture is valid"));
    FakeCuda::launch(captured.get(), graph);
    captured.wait();
    HEDDLE_RETURN_IF_ERROR(expect(own(world, late) == 6 && own(world, box + 1) == 4, "the graph"));
    HEDDLE_RETURN_IF_ERROR(world.free(late));
    return world.free(box);
  });
}

TEST_CASE("graphs keep values, and read local memory anew at each launch") {
  const FakeCuda::Use driver;
  run_on_gpus(1, [](World& world) -> Status {
    FakeCuda& cuda = FakeCuda::the();
    const TestStream stream(world);
    Buffers buffers(world, kRoom);
    uint64_t *box = nullptr, *signals = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, kRoom / 8, &box));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 4, &signals));
    const size_t count = GENERATE(size_t{1}, size_t{100}, size_t{9000});
    for (char* const local : buffers.all()) {
      auto* const memory = reinterpret_cast<uint64_t*>(local);
      cuda.begin_capture(stream.get());
      HEDDLE_RETURN_IF_ERROR(stream::put(world, box, memory, count * 8, 0, stream.get()));
      HEDDLE_RETURN_IF_ERROR(
          stream::put_signal(world, box, memory, count * 8, signals, 3, NVSHMEM_SIGNAL_SET, 0, stream.get()));
      HEDDLE_RETURN_IF_ERROR(
          stream::put_signal(world, box, memory, count * 8, signals + 1, 3, NVSHMEM_SIGNAL_ADD, 0, stream.get()));
      HEDDLE_RETURN_IF_ERROR(stream::signal(world, signals + 2, 4, NVSHMEM_SIGNAL_SET, 0, stream.get()));
      StridedTask shape{box, memory, 1, 1, count, 8, 0};
      HEDDLE_RETURN_IF_ERROR(stream::strided(world, shape, 0, stream.get()));
      uint64_t value = 11;
      HEDDLE_RETURN_IF_ERROR(stream::store(world, signals + 3, &value, 8, 0, stream.get()));
      const Status refused = stream::load(world, &value, box, 8, 0, stream.get());
      HEDDLE_RETURN_IF_ERROR(expect(refused.code() == Code::kInvalidValue && value == 11, "g in a capture"));
      HEDDLE_RETURN_IF_ERROR(expect(refused.text().find("is being captured") != std::string::npos, "text of g"));
      value = 12;
      HEDDLE_RETURN_IF_ERROR(stream::get(world, memory + count / 2, box, 8, 0, stream.get()));
      HEDDLE_RETURN_IF_ERROR(stream::barrier(world, true, stream.get()));
      FakeCuda::Graph graph;
      HEDDLE_RETURN_IF_ERROR(expect(cuda.end_capture(stream.get(), &graph), "the capture is valid"));
      HEDDLE_RETURN_IF_ERROR(expect(own(world, signals + 3) == 0, "nothing is done in a capture"));
      for (uint64_t launch = 1; launch <= 3; ++launch) {
        for (size_t i = 0; i < count; ++i) memory[i] = 1000 * launch + i;
        FakeCuda::launch(stream.get(), graph);
        stream.wait();
        HEDDLE_RETURN_IF_ERROR(expect(own(world, box + count - 1) == 1000 * launch + count - 1, "put"));
        HEDDLE_RETURN_IF_ERROR(expect(memory[count / 2] == 1000 * launch, "get"));
        HEDDLE_RETURN_IF_ERROR(expect(own(world, signals) == 3 && own(world, signals + 1) == 3 * launch, "put_signal"));
        HEDDLE_RETURN_IF_ERROR(expect(own(world, signals + 2) == 4 && own(world, signals + 3) == 11, "values"));
        for (const int i : {0, 2, 3}) host::p(world, "p", signals + i, uint64_t{0}, 0);
        HEDDLE_RETURN_IF_ERROR(world.quiet());
      }
      for (const int i : {1}) host::p(world, "p", signals + i, uint64_t{0}, 0);
      HEDDLE_RETURN_IF_ERROR(world.quiet());
    }
    HEDDLE_RETURN_IF_ERROR(world.free(signals));
    return world.free(box);
  });
}

TEST_CASE("strided transfers by one copy of two dimensions, by batches and by a loop are equal") {
  const FakeCuda::Use driver;
  FakeCuda& cuda = FakeCuda::the();
  enum Way { kPlane, kBatches, kRefused, kOlder, kCaptured };
  const Way way = GENERATE(kPlane, kBatches, kRefused, kOlder, kCaptured);
  if (way != kPlane) cuda.traits.max_pitch = 16;  // bytes
  cuda.traits.batches = way != kRefused;
  cuda::Driver older = cuda.table();
#if CUDA_VERSION >= 13000
  constexpr bool kKnown = true;
  older.MemcpyBatchAsync = nullptr;
#else
  constexpr bool kKnown = false;
#endif
  if (way == kOlder) cuda::set_driver_for_tests(&older);
  run_on_gpus(1, [&](World& world) -> Status {
    const TestStream stream(world);
    Buffers buffers(world, kRoom);
    char* box = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, kRoom, &box));
    for (const size_t element : {size_t{1}, size_t{2}, size_t{4}, size_t{8}, size_t{16}}) {
      for (const size_t count : {size_t{1}, size_t{2}, size_t{1100}}) {
        const int64_t to_stride = 4, from_stride = element == 1 ? 18 : 3;
        for (char* const local : {buffers.pageable(), buffers.others(), buffers.own() + 1}) {
          std::vector<char> expected(kRoom), got(kRoom);
          fill(local, kRoom - 1, static_cast<int>(element + count));
          for (size_t i = 0; i < count; ++i) {
            std::memcpy(expected.data() + 4 * i * element, local + static_cast<size_t>(from_stride) * i * element,
                        element);
          }
          host::put(world, "put", box, got.data(), kRoom, 0);
          HEDDLE_RETURN_IF_ERROR(world.quiet());
          const int batched = cuda.batched, copied = cuda.copied;
          const StridedTask shape{box, local, to_stride, from_stride, count, static_cast<uint32_t>(element), 0};
          if (way == kCaptured) cuda.begin_capture(stream.get());
          HEDDLE_RETURN_IF_ERROR(stream::strided(world, shape, 0, stream.get()));
          if (way == kCaptured) {
            FakeCuda::Graph graph;
            HEDDLE_RETURN_IF_ERROR(expect(cuda.end_capture(stream.get(), &graph), "the capture is valid"));
            FakeCuda::launch(stream.get(), graph);
          }
          stream.wait();
          const bool wide = way != kPlane && std::max(to_stride, from_stride) > 16 / static_cast<int64_t>(element);
          if (local != buffers.own() + 1 || element > 1) {  // else a kernel's
            const bool batch = wide && kKnown && way == kBatches && count > 1, loop = wide && !batch;
            HEDDLE_RETURN_IF_ERROR(expect(cuda.batched - batched == (batch ? static_cast<int>(count) : 0), "batch"));
            HEDDLE_RETURN_IF_ERROR(expect(cuda.copied - copied == (loop ? static_cast<int>(count) : 0), "loop"));
          }
          host::get(world, "get", got.data(), box, kRoom, 0);
          HEDDLE_RETURN_IF_ERROR(expect(got == expected, "iput"));
          // The host's call, and back again.
          const std::vector<char> zeroes(kRoom);
          host::put(world, "put", box, zeroes.data(), kRoom, 0);
          HEDDLE_RETURN_IF_ERROR(world.fabric().put_strided(device::make_handle(world.view(), box, 0).id,
                                                            device::make_handle(world.view(), box, 0).offset, local,
                                                            to_stride, from_stride, count, element));
          host::get(world, "get", got.data(), box, kRoom, 0);
          HEDDLE_RETURN_IF_ERROR(expect(got == expected, "iput of the host"));
          const std::vector<char> before(local, local + kRoom - 1);
          for (size_t i = 0; i < count; ++i) {
            std::memset(local + static_cast<size_t>(from_stride) * i * element, 0, element);
          }
          HEDDLE_RETURN_IF_ERROR(stream::strided(
              world, {local, box, from_stride, to_stride, count, static_cast<uint32_t>(element), 1}, 0, stream.get()));
          stream.wait();
          HEDDLE_RETURN_IF_ERROR(expect(std::memcmp(local, before.data(), before.size()) == 0, "iget"));
        }
      }
    }
    return world.free(box);
  });
}

TEST_CASE("on_stream calls on addresses of odd alignment are done or refused, never given to a kernel that faults") {
  const FakeCuda::Use driver;
  run_on_gpus(1, [](World& world) -> Status {
    const TestStream stream(world);
    char* box = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 64, &box));
    auto* const odd = reinterpret_cast<uint64_t*>(box + 4);
    const auto refused = [](const Status& status) {
      return status.code() == Code::kInvalidValue && status.text().find("not aligned") != std::string::npos;
    };
    HEDDLE_RETURN_IF_ERROR(
        expect(refused(stream::signal(world, odd, 1, NVSHMEM_SIGNAL_SET, 0, stream.get())), "signal"));
    HEDDLE_RETURN_IF_ERROR(
        expect(refused(stream::put_signal(world, box, box + 32, 8, odd, 1, NVSHMEM_SIGNAL_ADD, 0, stream.get())),
               "put_signal"));
    WaitTask task{};
    task.variables = odd;
    task.count = 1;
    task.element = 8;
    HEDDLE_RETURN_IF_ERROR(expect(refused(stream::wait(world, task, stream.get())), "wait"));
    const uint64_t value = 0x123456789abcdef0;
    HEDDLE_RETURN_IF_ERROR(stream::store(world, box + 3, &value, 8, 0, stream.get()));
    stream.wait();
    uint64_t got = 0;
    host::get(world, "get", &got, box + 3, 8, 0);
    HEDDLE_RETURN_IF_ERROR(expect(got == value, "p"));
    return world.free(box);
  });
}
