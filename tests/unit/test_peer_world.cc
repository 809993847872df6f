// Worlds with heaps in GPU memory, on the driver in host memory: what host calls and on_stream calls do there.
#include <cstdint>
#include <numeric>

#include "include/nvshmem_types.h"
#include "runtime/stream_ops.h"
#include "unit/gpu_world.h"

using namespace heddle;        // NOLINT
using namespace heddle::test;  // NOLINT

TEST_CASE("puts and gets of all sizes reach device heaps") {
  const FakeCuda::Use driver;
  const int n_pes = GENERATE(1, 2, 3);
  run_on_all_memory(n_pes, [](World& world) -> Status {
    HEDDLE_RETURN_IF_ERROR(expect(std::string(world.fabric().name()) == "peer", "fabric"));
    HEDDLE_RETURN_IF_ERROR(expect(world.view().direct == 0 && world.mapped_view().direct != 0, "views"));
    const int me = world.my_pe(), n = world.n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    constexpr size_t kBytes = 300000;
    char* box = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, kBytes, &box));
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{8}, size_t{4096}, size_t{70000}, kBytes}) {
      std::vector<char> message(bytes, static_cast<char>(me + 1));
      host::put(world, "put", box, message.data(), bytes, right);
      std::fill(message.begin(), message.end(), 0);  // the source may be reused
      HEDDLE_RETURN_IF_ERROR(world.barrier_all());
      std::vector<char> got(bytes);
      host::get(world, "get", got.data(), box, bytes, me);
      HEDDLE_RETURN_IF_ERROR(expect(got == std::vector<char>(bytes, static_cast<char>(left + 1)), "what was put"));
      std::fill(got.begin(), got.end(), 0);
      host::get(world, "get_nbi", got.data(), box, bytes, right, true);
      HEDDLE_RETURN_IF_ERROR(world.quiet());
      HEDDLE_RETURN_IF_ERROR(expect(got == std::vector<char>(bytes, static_cast<char>(me + 1)), "what was got"));
      HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    }
    return world.free(box);
  });
}

TEST_CASE("a put from device memory has read its source when it returns") {
  const FakeCuda::Use driver;
  run_on_all_memory(2, [](World& world) -> Status {
    uint64_t *source = nullptr, *target = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &source));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &target));
    for (uint64_t i = 1; i < 20; ++i) {
      host::p(world, "p", source, i, world.my_pe());
      host::put(world, "put", target, source, 8, 1 - world.my_pe());
      host::p(world, "p", source, uint64_t{0}, world.my_pe());
      HEDDLE_RETURN_IF_ERROR(world.barrier_all());
      HEDDLE_RETURN_IF_ERROR(expect(own(world, target) == i, "value of the source then"));
      HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    }
    HEDDLE_RETURN_IF_ERROR(world.free(source));
    return world.free(target);
  });
}

TEST_CASE("atomics of all PEs on one word of a device heap add up") {
  const FakeCuda::Use driver;
  run_on_all_memory(3, [](World& world) -> Status {
    uint64_t* counter = nullptr;
    float* sum = nullptr;
    uint32_t* bits = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &counter));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &sum));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &bits));
    for (int i = 0; i < 50; ++i) {
      host::atomic<AtomicOp::kAdd, false>(world, "add", counter, uint64_t{1}, uint64_t{0}, 0);
      host::atomic<AtomicOp::kAdd, true>(world, "fetch_add", counter, uint64_t{2}, uint64_t{0}, 0);
      host::atomic<AtomicOp::kAdd, false>(world, "add", sum, 0.5F, 0.0F, 0);
    }
    host::atomic<AtomicOp::kOr, false>(world, "or", bits, 1U << world.my_pe(), 0U, 0);
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    HEDDLE_RETURN_IF_ERROR(expect(host::g(world, "g", counter, 0) == 450, "integer sum"));
    HEDDLE_RETURN_IF_ERROR(expect(host::g(world, "g", sum, 0) == 75.0F, "floating sum"));
    HEDDLE_RETURN_IF_ERROR(expect(host::g(world, "g", bits, 0) == 7, "bits"));
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    if (world.my_pe() == 1) {
      const uint64_t old =
          host::atomic<AtomicOp::kCompareSwap, true>(world, "cas", counter, uint64_t{7}, uint64_t{450}, 0);
      HEDDLE_RETURN_IF_ERROR(expect(old == 450 && host::g(world, "g", counter, 0) == 7, "compare and swap"));
    }
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    HEDDLE_RETURN_IF_ERROR(world.free(counter));
    HEDDLE_RETURN_IF_ERROR(world.free(sum));
    return world.free(bits);
  });
}

TEST_CASE("signals come after their data, by stream writes and by kernels") {
  const FakeCuda::Use driver;
  FakeCuda::the().traits.stream_writes = GENERATE(true, false);
  FakeCuda::the().refused_writes = 0;
  run_on_all_memory(2, [](World& world) -> Status {
    const int me = world.my_pe(), other = 1 - me;
    constexpr size_t kCount = 30000;
    int* box = nullptr;
    uint64_t *signal = nullptr, *word = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, kCount, &box));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &signal));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &word));
    for (uint64_t round = 1; round <= 10; ++round) {
      std::vector<int> message(kCount, static_cast<int>(round) * 10 + me);
      const bool add = round % 2 == 0;
      host::put_signal(world, "put_signal", box, message.data(), kCount * sizeof(int), signal, add ? 1 : round,
                       add ? NVSHMEM_SIGNAL_ADD : NVSHMEM_SIGNAL_SET, other);
      host::p(world, "p", word, round, other);
      Waiter pause(world.wait_context());
      while (own(world, signal) != round) {
        if (!pause()) return error(Code::kTimeout, "no signal in round %d", static_cast<int>(round));
      }
      std::vector<int> got(kCount);
      host::get(world, "get", got.data(), box, kCount * sizeof(int), me);
      HEDDLE_RETURN_IF_ERROR(
          expect(got == std::vector<int>(kCount, static_cast<int>(round) * 10 + other), "data before its signal"));
      HEDDLE_RETURN_IF_ERROR(world.barrier_all());
      HEDDLE_RETURN_IF_ERROR(expect(own(world, word) == round, "p"));
      HEDDLE_RETURN_IF_ERROR(world.sync_all());
    }
    HEDDLE_RETURN_IF_ERROR(world.free(word));
    HEDDLE_RETURN_IF_ERROR(world.free(box));
    return world.free(signal);
  });
  CHECK((FakeCuda::the().launches("heddle_signal") > 0));
  CHECK(FakeCuda::the().refused_writes == 0);  // what the driver cannot do is not asked for
}

TEST_CASE("small puts are writes of the stream") {
  const FakeCuda::Use driver;
  run_on_gpus(1, [](World& world) -> Status {
    FakeCuda& cuda = FakeCuda::the();
    uint64_t* words = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 4, &words));
    const auto writes_of = [&](const std::function<void()>& call) {
      const int before = cuda.writes;
      call();
      return cuda.writes - before;
    };
    const auto p = [&] { host::p(world, "p", words, uint64_t{1}, 0); };
    HEDDLE_RETURN_IF_ERROR(expect(writes_of(p) == 1, "p"));
    const auto signal = [&] { host::signal_op(world, "signal", words, 3, NVSHMEM_SIGNAL_SET, 0); };
    HEDDLE_RETURN_IF_ERROR(expect(writes_of(signal) == 1, "signal"));
    const uint64_t value = 7;
    const auto both = [&] {
      host::put_signal(world, "put_signal", words + 1, &value, 8, words, 4, NVSHMEM_SIGNAL_SET, 0);
    };
    HEDDLE_RETURN_IF_ERROR(expect(writes_of(both) >= 1, "put_signal"));
    const auto set = [&] { host::atomic<AtomicOp::kSet, false>(world, "set", words, uint64_t{5}, uint64_t{0}, 0); };
    HEDDLE_RETURN_IF_ERROR(expect(writes_of(set) == 1, "atomic_set"));
    const auto narrow = [&] { host::p(world, "p", reinterpret_cast<float*>(words + 2), 1.5F, 0); };
    HEDDLE_RETURN_IF_ERROR(expect(writes_of(narrow) == 1, "p of 4 bytes"));
    const auto byte = [&] { host::p(world, "p", reinterpret_cast<char*>(words + 3), 'x', 0); };
    HEDDLE_RETURN_IF_ERROR(expect(writes_of(byte) == 0, "p of a byte is a copy"));
    const auto odd = [&] { host::put(world, "put", reinterpret_cast<char*>(words + 3) + 1, &value, 4, 0); };
    HEDDLE_RETURN_IF_ERROR(expect(writes_of(odd) == 0, "an address that is not aligned is a copy"));
    HEDDLE_RETURN_IF_ERROR(world.quiet());
    HEDDLE_RETURN_IF_ERROR(expect(own(world, words) == 5 && own(world, words + 1) == 7, "values of 8 bytes"));
    HEDDLE_RETURN_IF_ERROR(expect(own(world, reinterpret_cast<float*>(words + 2)) == 1.5F, "value of 4 bytes"));
    HEDDLE_RETURN_IF_ERROR(expect(own(world, reinterpret_cast<char*>(words + 3)) == 'x', "value of a byte"));
    HEDDLE_RETURN_IF_ERROR(expect(own(world, reinterpret_cast<char*>(words + 3) + 1) == 7, "at an odd address"));
    return world.free(words);
  });
}

TEST_CASE("strided puts and gets, from host and from device memory") {
  const FakeCuda::Use driver;
  run_on_all_memory(2, [](World& world) -> Status {
    const int me = world.my_pe(), other = 1 - me;
    int *box = nullptr, *source = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 100, &box));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 100, &source));
    std::vector<int> values(100);
    std::iota(values.begin(), values.end(), 1000 * me);
    host::iput(world, "iput", box, values.data(), 3, 2, 30, other);
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    std::vector<int> got(100), expected(100);
    for (int i = 0; i < 30; ++i) expected[static_cast<size_t>(3 * i)] = 1000 * other + 2 * i;
    host::get(world, "get", got.data(), box, 400, me);
    HEDDLE_RETURN_IF_ERROR(expect(got == expected, "iput from host memory"));
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());

    host::put(world, "put", source, values.data(), 400, me);
    host::iput(world, "iput", box, source, 2, 3, 30, other);
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    for (int i = 0; i < 30; ++i) {
      HEDDLE_RETURN_IF_ERROR(expect(own(world, box + 2 * i) == 1000 * other + 3 * i, "iput from device memory"));
    }
    std::vector<int> back(60, -1);
    host::iget(world, "iget", back.data(), box, 2, 2, 30, other);
    for (int i = 0; i < 30; ++i) {
      HEDDLE_RETURN_IF_ERROR(expect(
          back[static_cast<size_t>(2 * i)] == 1000 * me + 3 * i && back[static_cast<size_t>(2 * i + 1)] == -1, "iget"));
    }
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    HEDDLE_RETURN_IF_ERROR(world.free(source));
    return world.free(box);
  });
}

TEST_CASE("a device heap grows, zeroes what is asked zeroed, and shrinks") {
  const FakeCuda::Use driver;
  run_on_gpus(2, [](World& world) -> Status {
    const uint64_t before = world.heap_figures().physical;
    char* block = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 5 << 20, &block));
    HEDDLE_RETURN_IF_ERROR(expect(world.heap_figures().physical > before, "growth"));
    std::vector<char> got(5 << 20, 1);
    host::get(world, "get", got.data(), block, got.size(), 1 - world.my_pe());
    HEDDLE_RETURN_IF_ERROR(expect(std::count(got.begin(), got.end(), 0) == 5 << 20, "zeroes"));
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    HEDDLE_RETURN_IF_ERROR(world.free(block));
    void* too_much = nullptr;
    const Status status = world.allocate("malloc", 100 << 20, 256, false, Status::ok(), &too_much);
    return expect(status.code() == Code::kOutOfMemory, "limit");
  });
}

TEST_CASE("memory that a GPU has not got fails on every PE, with asked and free bytes") {
  const FakeCuda::Use driver;
  run_on_gpus(2, [](World& world) -> Status {
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    if (world.my_pe() == 0) FakeCuda::the().traits.free_bytes = 1 << 20;
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    void* block = nullptr;
    const Status status = world.allocate("malloc", 5 << 20, 256, false, Status::ok(), &block);
    HEDDLE_RETURN_IF_ERROR(expect(status.code() == Code::kOutOfMemory && block == nullptr, "out of memory"));
    HEDDLE_RETURN_IF_ERROR(expect(status.text().find("free are 1048576") != std::string::npos, "free bytes"));
    HEDDLE_RETURN_IF_ERROR(expect(status.text().find("GPU ") != std::string::npos, "the GPU"));
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    if (world.my_pe() == 0) FakeCuda::the().traits.free_bytes = 1 << 30;
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    HEDDLE_RETURN_IF_ERROR(world.allocate("malloc", 5 << 20, 256, false, Status::ok(), &block));
    return world.free(block);
  });
}

TEST_CASE("a GPU that fails at init fails all PEs with the driver's words") {
  const FakeCuda::Use driver;
  const std::string function = GENERATE("DevicePrimaryCtxRetain", "MemCreate", "MemMap", "MemSetAccess", "MemHostAlloc",
                                        "StreamCreate", "MemAddressReserve", "MemExportToShareableHandle");
  CAPTURE(function);
  FakeCuda::the().traits.failures[function] = CUDA_ERROR_UNKNOWN;
  for (const Status& status : run_world(2, gpu_settings(), [](World&) { return Status::ok(); })) {
    INFO(status.text());
    CHECK(!status.is_ok());
    CHECK(status.text().find("cu" + function) != std::string::npos);
    CHECK(status.text().find("CUDA_ERROR_OTHER: a fake failure") != std::string::npos);
  }
  CHECK(FakeCuda::the().leaks() == "");
}

TEST_CASE("GPUs that cannot map each other's memory are refused with the reason") {
  const FakeCuda::Use driver;
  std::string part;
  Settings settings = gpu_settings();
  SECTION("no peer access") {
    FakeCuda::the().traits.peer_access = false;
    part = "no peer access to GPU-";
  }
  SECTION("MIG instances") {
    FakeCuda::the().traits.name = "Fake A100 MIG 1g.5gb";
    part = "MIG instance has no peers";
  }
  for (const Status& status : run_world(2, settings, [](World&) { return Status::ok(); })) {
    INFO(status.text());
    CHECK(status.code() == Code::kNotSupported);
    CHECK(status.text().find(part) != std::string::npos);
    CHECK(status.text().find("HEDDLE_FABRIC=host") != std::string::npos);
  }
  CHECK(FakeCuda::the().leaks() == "");
}

// ---- on_stream calls

TEST_CASE("on_stream puts, gets, signals, waits and barriers keep the stream's order") {
  const FakeCuda::Use driver;
  run_on_all_memory(3, [](World& world) -> Status {
    const TestStream stream(world);
    const int me = world.my_pe(), n = world.n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    constexpr size_t kCount = 100000;  // over what kernels copy
    int *source = nullptr, *box = nullptr;
    uint64_t* signal = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, kCount, &source));
    HEDDLE_RETURN_IF_ERROR(make_block(world, kCount, &box));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &signal));
    for (const size_t count : {size_t{0}, size_t{7}, kCount}) {
      const auto round = static_cast<uint64_t>(count + 1);
      const std::vector<int> mine(count, me + 1), expected(count, left + 1);
      std::vector<int> got(count);
      // All of one round is enqueued before any of it is waited for.
      HEDDLE_RETURN_IF_ERROR(stream::put(world, source, mine.data(), count * 4, me, stream.get()));
      HEDDLE_RETURN_IF_ERROR(
          stream::put_signal(world, box, source, count * 4, signal, round, NVSHMEM_SIGNAL_SET, right, stream.get()));
      WaitTask task{};
      task.variables = signal;
      task.count = 1;
      task.reference = round;
      task.cmp = NVSHMEM_CMP_EQ;
      task.element = 8;
      HEDDLE_RETURN_IF_ERROR(stream::wait(world, task, stream.get()));
      HEDDLE_RETURN_IF_ERROR(stream::get(world, got.data(), box, count * 4, me, stream.get()));
      stream.wait();
      HEDDLE_RETURN_IF_ERROR(expect(got == expected, "data after the signal"));
      HEDDLE_RETURN_IF_ERROR(stream::barrier(world, true, stream.get()));
    }
    for (int i = 0; i < 20; ++i) {
      HEDDLE_RETURN_IF_ERROR(stream::store(world, box, &i, sizeof i, right, stream.get()));
      HEDDLE_RETURN_IF_ERROR(stream::barrier(world, true, stream.get()));
      int seen = -1;
      HEDDLE_RETURN_IF_ERROR(stream::load(world, &seen, box, sizeof seen, me, stream.get()));
      HEDDLE_RETURN_IF_ERROR(expect(seen == i, "value after the barrier"));
      HEDDLE_RETURN_IF_ERROR(stream::barrier(world, false, stream.get()));
    }
    // 16 bytes by value, and signals that add.
    const uint64_t wide[2] = {11, 12};
    uint64_t back[2] = {};
    HEDDLE_RETURN_IF_ERROR(stream::store(world, box, wide, sizeof wide, right, stream.get()));
    HEDDLE_RETURN_IF_ERROR(stream::load(world, back, box, sizeof back, right, stream.get()));
    HEDDLE_RETURN_IF_ERROR(expect(back[0] == 11 && back[1] == 12, "16 bytes"));
    HEDDLE_RETURN_IF_ERROR(stream::barrier(world, true, stream.get()));
    HEDDLE_RETURN_IF_ERROR(stream::signal(world, signal, 5, NVSHMEM_SIGNAL_ADD, right, stream.get()));
    HEDDLE_RETURN_IF_ERROR(stream::barrier(world, true, stream.get()));
    stream.wait();
    HEDDLE_RETURN_IF_ERROR(expect(own(world, signal) == kCount + 6, "added"));
    // The stream comes after host calls that were made before.
    const std::vector<int> nines(kCount, 9);
    host::put(world, "put_nbi", box, nines.data(), kCount * 4, me, true);
    HEDDLE_RETURN_IF_ERROR(stream::quiet(world, stream.get()));
    std::vector<int> got(kCount);
    HEDDLE_RETURN_IF_ERROR(stream::get(world, got.data(), box, kCount * 4, me, stream.get()));
    stream.wait();
    HEDDLE_RETURN_IF_ERROR(expect(got == nines, "after the host's put"));
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    HEDDLE_RETURN_IF_ERROR(world.free(signal));
    HEDDLE_RETURN_IF_ERROR(world.free(box));
    return world.free(source);
  });
  CHECK(FakeCuda::the().launches("heddle_barrier") > 0);
}

TEST_CASE("on_stream waits on many values of every width, and strided copies") {
  const FakeCuda::Use driver;
  run_on_all_memory(2, [](World& world) -> Status {
    const TestStream stream(world);
    const int me = world.my_pe(), other = 1 - me;
    int16_t *values = nullptr, *references = nullptr;
    int* status = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 100, &values));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 100, &references));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 100, &status));
    host::p(world, "p", status + 3, 1, me);
    HEDDLE_RETURN_IF_ERROR(world.quiet());  // another stream reads it
    WaitTask task{};
    task.variables = values;
    task.count = 100;
    task.status = status;
    task.references = references;
    task.cmp = NVSHMEM_CMP_GT;  // than 0, as signed values
    task.element = 2;
    task.is_signed = 1;
    HEDDLE_RETURN_IF_ERROR(stream::wait(world, task, stream.get()));
    std::vector<int16_t> ones(100, 1);
    ones[3] = -1;  // does not count
    host::put(world, "put", values, ones.data(), 200, other);
    HEDDLE_RETURN_IF_ERROR(world.quiet());
    stream.wait();
    HEDDLE_RETURN_IF_ERROR(expect(own(world, values + 99) == 1, "seen"));
    const int pageable[2] = {};
    task.status = pageable;
    const Status refused = stream::wait(world, task, stream.get());
    HEDDLE_RETURN_IF_ERROR(expect(refused.text().find("pageable host memory") != std::string::npos, "pageable status"));
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());

    const std::vector<int16_t> local = {1, 2, 3, 4, 5, 6};
    StridedTask shape{values, local.data(), 3, 2, 3, 2, 0};
    HEDDLE_RETURN_IF_ERROR(stream::strided(world, shape, other, stream.get()));  // from pageable memory
    HEDDLE_RETURN_IF_ERROR(stream::barrier(world, true, stream.get()));
    shape = {references, values, 1, 3, 3, 2, 1};
    HEDDLE_RETURN_IF_ERROR(stream::strided(world, shape, other, stream.get()));  // into GPU memory
    stream.wait();
    for (int i = 0; i < 3; ++i) {
      HEDDLE_RETURN_IF_ERROR(expect(own(world, references + i) == 2 * i + 1, "strided"));
    }
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    HEDDLE_RETURN_IF_ERROR(world.free(status));
    HEDDLE_RETURN_IF_ERROR(world.free(references));
    return world.free(values);
  });
}

TEST_CASE("on_stream calls are refused where they cannot be made, with the reason") {
  const FakeCuda::Use driver;
  run_on_gpus(1, [](World& world) { return expect(stream::way_of(world) == stream::Way::kEnqueue, "device heap"); });
  run_on_gpus(
      1,
      [](World& world) -> Status {
        HEDDLE_RETURN_IF_ERROR(expect(stream::way_of(world) == stream::Way::kRefuse, "host heap beside a driver"));
        return expect(stream::refusal(world).text().find("host memory") != std::string::npos, "reason");
      },
      test_settings());
  run_on_gpus(
      1,
      [](World& world) -> Status {
        HEDDLE_RETURN_IF_ERROR(expect(stream::way_of(world) == stream::Way::kRefuse, "peers are not mapped"));
        return expect(stream::refusal(world).text().find("does not map") != std::string::npos, "reason");
      },
      gpu_settings({"HEDDLE_FAULT=fail=1000000"}));
}
