// The whole runtime with threads as PEs, on the host fabric alone and behind the fault decorator.
#include <fcntl.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>

#include "catch.h"
#include "runtime/host_rma.h"
#include "runtime/log.h"
#include "unit/thread_world.h"

using namespace heddle;        // NOLINT
using namespace heddle::test;  // NOLINT

namespace {

// The same bodies run on every fabric: mapped, through data operations, and with these held back and reordered.
const char* const kFabrics[] = {"", "HEDDLE_FAULT=fail=1000000000", "HEDDLE_FAULT=reorder"};

Settings settings_for(const std::string& fabric) { return fabric.empty() ? test_settings() : test_settings({fabric}); }

void require_all_ok(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) {
    INFO(status.text());
    REQUIRE(status.is_ok());
  }
}

Status expect(bool condition, const char* what) {
  return condition ? Status::ok() : error(Code::kInternal, "expectation failed: %s", what);
}

template <class T>
Status make_block(World& world, size_t count, T** block) {
  void* memory = nullptr;
  HEDDLE_RETURN_IF_ERROR(world.allocate("test", count * sizeof(T), 256, true, Status::ok(), &memory));
  *block = static_cast<T*>(memory);
  return Status::ok();
}

}  // namespace

TEST_CASE("a ring of puts arrives at every neighbour") {
  const int n_pes = GENERATE(1, 2, 3, 5, 8);
  const std::string fabric = GENERATE(from_range(std::begin(kFabrics), std::end(kFabrics)));
  CAPTURE(n_pes, fabric);
  require_all_ok(run_world(n_pes, settings_for(fabric), [](World& world) -> Status {
    int* box = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1000, &box));
    std::vector<int> message(1000);
    std::iota(message.begin(), message.end(), world.my_pe() * 1000);
    const int right = (world.my_pe() + 1) % world.n_pes();
    host::put(world, "put", box, message.data(), 4000, right);
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    const int left = (world.my_pe() + world.n_pes() - 1) % world.n_pes();
    for (int i = 0; i < 1000; ++i) HEDDLE_RETURN_IF_ERROR(expect(box[i] == left * 1000 + i, "ring value"));
    return world.free(box);
  }));
}

TEST_CASE("atomics of all PEs on one word add up") {
  const int n_pes = GENERATE(2, 5);
  const std::string fabric = GENERATE(from_range(std::begin(kFabrics), std::end(kFabrics)));
  CAPTURE(n_pes, fabric);
  require_all_ok(run_world(n_pes, settings_for(fabric), [](World& world) -> Status {
    uint64_t* counter = nullptr;
    double* sum = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &counter));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &sum));
    for (int i = 0; i < 500; ++i) {
      host::atomic<AtomicOp::kAdd, false>(world, "add", counter, uint64_t{1}, uint64_t{0}, 0);
      host::atomic<AtomicOp::kAdd, true>(world, "fetch_add", counter, uint64_t{2}, uint64_t{0}, 0);
      host::atomic<AtomicOp::kAdd, false>(world, "add", sum, 0.5, 0.0, 0);
    }
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    HEDDLE_RETURN_IF_ERROR(
        expect(host::g(world, "g", counter, 0) == 1500U * static_cast<uint64_t>(world.n_pes()), "integer sum"));
    HEDDLE_RETURN_IF_ERROR(expect(host::g(world, "g", sum, 0) == 250.0 * world.n_pes(), "floating sum"));
    return world.barrier_all();
  }));
}

TEST_CASE("put_signal shows its data to whoever sees the signal") {
  const std::string fabric = GENERATE(from_range(std::begin(kFabrics), std::end(kFabrics)));
  CAPTURE(fabric);
  require_all_ok(run_world(2, settings_for(fabric), [](World& world) -> Status {
    constexpr size_t kWords = 64;
    uint64_t *data = nullptr, *signal = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, kWords, &data));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &signal));
    std::vector<uint64_t> message(kWords);
    const int peer = 1 - world.my_pe();
    for (uint64_t round = 1; round <= 300; ++round) {
      std::fill(message.begin(), message.end(), round);
      if (world.my_pe() == 0) {
        host::put_signal(world, "put_signal", data, message.data(), kWords * 8, signal, round, device::kSignalSet,
                         peer);
        HEDDLE_RETURN_IF_ERROR(world.quiet());
      }
      Waiter pause(world.wait_context());
      if (!device::wait_until(signal, 5, round, pause)) return error(pause.verdict(), "no signal");
      if (world.my_pe() == 1) {
        for (size_t i = 0; i < kWords; ++i) HEDDLE_RETURN_IF_ERROR(expect(data[i] == round, "data before signal"));
        host::signal_op(world, "signal", signal, round, device::kSignalSet, peer);
        HEDDLE_RETURN_IF_ERROR(world.quiet());
      }
    }
    return Status::ok();
  }));
}

TEST_CASE("counted puts raise the counter by the bytes delivered") {
  const std::string fabric = GENERATE(from_range(std::begin(kFabrics), std::end(kFabrics)));
  CAPTURE(fabric);
  require_all_ok(run_world(3, settings_for(fabric), [](World& world) -> Status {
    char* data = nullptr;
    uint64_t* counter = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 4096, &data));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &counter));
    alignas(16) char message[1024];
    std::fill(std::begin(message), std::end(message), static_cast<char>('a' + world.my_pe()));
    HEDDLE_RETURN_IF_ERROR(host::put_counted(world, data + world.my_pe() * 1024, message, sizeof message, counter, 0));
    HEDDLE_RETURN_IF_ERROR(world.quiet());
    if (world.my_pe() == 0) {
      Waiter pause(world.wait_context());
      while (!device::counter_reached(device::load_acquire(counter), 3072)) {
        if (!pause()) return error(pause.verdict(), "counter");
      }
      for (int i = 0; i < 3072; ++i) HEDDLE_RETURN_IF_ERROR(expect(data[i] == 'a' + i / 1024, "counted data"));
    }
    HEDDLE_RETURN_IF_ERROR(
        expect(host::put_counted(world, data + 8, message, 16, counter, 0).code() == Code::kInvalidValue, "alignment"));
    return world.barrier_all();
  }));
}

TEST_CASE("the heap grows and shrinks alike on all PEs, and says when it is full") {
  const int n_pes = GENERATE(1, 3);
  const std::string fabric = GENERATE(from_range(std::begin(kFabrics), std::end(kFabrics)));
  CAPTURE(n_pes, fabric);
  require_all_ok(run_world(n_pes, settings_for(fabric), [](World& world) -> Status {
    const uint64_t at_start = world.heap_figures().physical;
    for (int round = 0; round < 3; ++round) {
      char *large = nullptr, *small = nullptr;
      HEDDLE_RETURN_IF_ERROR(make_block(world, 5 << 20, &large));
      HEDDLE_RETURN_IF_ERROR(make_block(world, 100, &small));
      HEDDLE_RETURN_IF_ERROR(expect(world.heap_figures().physical >= at_start + (5 << 20), "grown"));
      const int right = (world.my_pe() + 1) % world.n_pes();
      host::p(world, "p", large + (5 << 20) - 1, static_cast<char>(round + 1), right);
      HEDDLE_RETURN_IF_ERROR(world.barrier_all());
      HEDDLE_RETURN_IF_ERROR(expect(large[(5 << 20) - 1] == round + 1, "last byte of the new chunk"));
      void* too_large = nullptr;
      const Status full = world.allocate("test", 17 << 20, 256, false, Status::ok(), &too_large);
      HEDDLE_RETURN_IF_ERROR(expect(full.code() == Code::kOutOfMemory && too_large == nullptr, "full"));
      HEDDLE_RETURN_IF_ERROR(expect(full.text().find("NVSHMEM_SYMMETRIC_SIZE") != std::string::npos, "remedy"));
      HEDDLE_RETURN_IF_ERROR(world.free(large));
      HEDDLE_RETURN_IF_ERROR(world.free(small));
    }
    HEDDLE_RETURN_IF_ERROR(expect(world.heap_figures().in_use == 0, "all returned"));
    return expect(world.heap_figures().physical <= at_start + (1 << 20), "empty chunks returned to the system");
  }));
}

TEST_CASE("different sizes on different PEs fail on all of them and name both") {
  require_all_ok(run_world(3, test_settings(), [](World& world) -> Status {
    void* block = nullptr;
    const Status status = world.allocate("test", world.my_pe() == 2 ? 200 : 100, 256, false, Status::ok(), &block);
    HEDDLE_RETURN_IF_ERROR(expect(status.code() == Code::kSymmetry && block == nullptr, "symmetry"));
    HEDDLE_RETURN_IF_ERROR(expect(status.text().find("100 on PE 0, 200 on PE 2") != std::string::npos, "names both"));
    HEDDLE_RETURN_IF_ERROR(world.allocate("test", 100, 256, false, Status::ok(), &block));
    return world.free(block);
  }));
}

TEST_CASE("a fault in any call of set-up fails every PE with one cause and leaves nothing behind") {
  bool reached_end = false;
  for (int call = 1; call < 200 && !reached_end; ++call) {
    const std::vector<Status> statuses =
        run_world(2, test_settings({format("HEDDLE_FAULT=fail=%d@pe=1", call)}), [](World&) { return Status::ok(); });
    CAPTURE(call, statuses[0].text(), statuses[1].text());
    CHECK(statuses[0].is_ok() == statuses[1].is_ok());
    reached_end = statuses[0].is_ok() && statuses[1].is_ok();
  }
  CHECK(reached_end);
}

TEST_CASE("a PE that goes away ends the others' barrier with its name") {
  // PE 1's world is destroyed without finalize, as a crash would close its sockets.
  ThreadJob job(3);
  std::vector<Status> statuses(3);
  std::vector<std::thread> threads;
  for (int pe = 0; pe < 3; ++pe) {
    threads.emplace_back([&, pe] {
      std::unique_ptr<World> world;
      Status& status = statuses[static_cast<size_t>(pe)];
      status = World::join(test_settings(), std::make_unique<ThreadBootstrap>(job, pe), &world);
      if (!status.is_ok() || pe == 1) return;
      status = world->barrier_all();
      (void)world->finalize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int pe : {0, 2}) {
    const Status& status = statuses[static_cast<size_t>(pe)];
    INFO(status.text());
    CHECK(status.code() == Code::kPeerLost);
    CHECK(status.text().find("PE 1") != std::string::npos);
  }
}

TEST_CASE("a survivor that finalizes early takes no memory away from those that still put to it") {
  ThreadJob job(3);
  std::vector<Status> statuses(3);
  std::atomic<bool> gone{false};
  std::vector<std::thread> threads;
  for (int pe = 0; pe < 3; ++pe) {
    threads.emplace_back([&, pe] {
      std::unique_ptr<World> world;
      Status& status = statuses[static_cast<size_t>(pe)];
      status = World::join(test_settings(), std::make_unique<ThreadBootstrap>(job, pe), &world);
      if (!status.is_ok() || pe == 1) return;
      char* box = reinterpret_cast<char*>(world->view().my_heap) + 64 * 1024;
      while (world->control().poison().load(std::memory_order_acquire) == 0) std::this_thread::yield();
      if (pe == 0) {
        (void)world->finalize();
        world.reset();
        gone.store(true, std::memory_order_release);  // release: after the heap is gone
      } else {
        while (!gone.load(std::memory_order_acquire)) std::this_thread::yield();
        host::p(*world, "p", box, 'x', 0);
        status = world->barrier_all();
        (void)world->finalize();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  INFO(statuses[2].text());
  CHECK(statuses[2].code() == Code::kPeerLost);
}

TEST_CASE("a barrier that waits long says for whom") {
  char name[] = "/tmp/heddle-test-log-XXXXXX";
  const OwnedFd file(mkstemp(name));
  REQUIRE(file.valid());
  REQUIRE(configure_log(test_settings({std::string("NVSHMEM_DEBUG_FILE=") + name}), -1).is_ok());
  require_all_ok(run_world(3, test_settings({"HEDDLE_WARN_AFTER=0.05"}), [](World& world) -> Status {
    if (world.my_pe() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return world.barrier_all();
  }));
  REQUIRE(configure_log(test_settings(), -1).is_ok());
  std::ifstream in(name);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  unlink(name);
  CAPTURE(text);
  size_t lines = 0;
  for (size_t at = 0; (at = text.find("s in a barrier for PE 1;", at)) != std::string::npos; ++at) ++lines;
  CHECK(lines == 2);
}

TEST_CASE("many init and finalize cycles leave no descriptors and no mappings") {
  const auto count_open = [] {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  };
  require_all_ok(run_world(2, test_settings(), [](World& world) { return world.barrier_all(); }));
  const int before = count_open();
  for (int cycle = 0; cycle < 50; ++cycle) {
    require_all_ok(run_world(2, test_settings(), [](World& world) { return world.barrier_all(); }));
  }
  CHECK(count_open() == before);
}
