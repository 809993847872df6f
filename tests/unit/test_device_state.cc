// What kernels are given, and what they give back: the state at every change, modules, failures that they record.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "runtime/device_side.h"
#include "runtime/device_state.h"
#include "runtime/gpu.h"
#include "runtime/log.h"
#include "unit/gpu_world.h"

using namespace heddle;        // NOLINT
using namespace heddle::test;  // NOLINT

namespace {

std::vector<device::DeviceState> received;
int receiver_code = 0;

device::DeviceErrorRecord stray{};  // what kernels have recorded without a world

int receive(const void* state, unsigned long bytes, void* record, unsigned long record_bytes) {
  if (bytes != sizeof(device::DeviceState) || record_bytes != sizeof stray) return device::kOtherVersion;
  if (receiver_code != 0) return receiver_code;
  CUcontext context = nullptr;
  (void)FakeCuda::the().table().CtxGetCurrent(&context);
  if (context == nullptr) return 201;  // the program's runtime would choose another context
  device::DeviceState copy{};
  std::memcpy(static_cast<void*>(&copy), state, sizeof copy);
  received.push_back(copy);
  if (record != nullptr) {
    std::memcpy(record, static_cast<const void*>(&stray), sizeof stray);
    stray = {};
  }
  return 0;
}
const heddle_unit unit = {device::kStateVersion, sizeof(device::DeviceState), sizeof stray, &receive};

bool was_called = false;
int receive_of_another_version(const void*, unsigned long, void*, unsigned long) {
  was_called = true;
  return 0;
}

/// Waits until `there()`; whether it came.
template <class There>
bool comes(const There& there) {
  const Deadline deadline = Deadline::in(20);
  while (!there() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return there();
}

/// What a kernel's thread of `grid` leaves, as record_failure of device/failure.h does.
void record_failure(device::DeviceErrorRecord& record, device::DeviceError error, uint64_t grid, const char* call) {
  device::remember_grid(record.failed_grids, grid);
  record.claimed = 1;
  record.error = static_cast<uint32_t>(error);
  record.grid = grid;
  std::strcpy(record.call, call);
  device::store_release(&record.complete, 1U);
}
bool is_read(device::DeviceErrorRecord& record) {
  return comes([&] { return device::load_acquire(&record.claimed) == 0; });
}

}  // namespace

TEST_CASE("translation units get the state at init, at growth and at the end") {
  const FakeCuda::Use driver;
  received.clear();
  receiver_code = 0;
  heddle_register_unit(&unit);
  CHECK(received.empty());  // no world yet
  run_on_gpus(1, [](World& world) -> Status {
    HEDDLE_RETURN_IF_ERROR(expect(received.size() == 1, "one state at init"));
    const device::DeviceState first = received[0];
    HEDDLE_RETURN_IF_ERROR(expect(first.view.direct == 1 && first.view.n_pes == 1, "view"));
    HEDDLE_RETURN_IF_ERROR(expect(first.view.extent == world.mapped_view().extent, "extent"));
    HEDDLE_RETURN_IF_ERROR(expect(first.view.my_heap == world.mapped_view().my_heap, "heap"));
    HEDDLE_RETURN_IF_ERROR(expect(first.poison != nullptr && first.errors != nullptr, "shared words"));
    HEDDLE_RETURN_IF_ERROR(expect(first.wait_timeout_ns == 60'000'000'000, "time-out"));
    HEDDLE_RETURN_IF_ERROR(expect(first.version == device::kStateVersion && first.node_n_pes == 1, "node"));
    HEDDLE_RETURN_IF_ERROR(expect((first.slot_count & (first.slot_count - 1)) == 0 && first.slot_count > 0, "slots"));

    char* small = nullptr;
    char* large = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 16, &small));
    HEDDLE_RETURN_IF_ERROR(expect(received.size() == 1, "no state without growth"));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 5 << 20, &large));
    HEDDLE_RETURN_IF_ERROR(expect(received.size() == 2, "a state with growth"));
    HEDDLE_RETURN_IF_ERROR(expect(received[1].view.extent > first.view.extent, "larger extent"));

    // A unit that comes late, and one whose runtime is not ready when it comes.
    heddle_unregister_unit(&unit);
    receiver_code = 209;
    heddle_register_unit(&unit);
    HEDDLE_RETURN_IF_ERROR(expect(received.size() == 2, "refused"));
    receiver_code = 0;
    const heddle_unit other = {unit.version, unit.state_bytes, unit.record_bytes,
                               [](const void*, unsigned long, void*, unsigned long) { return 0; }};
    heddle_register_unit(&other);  // a later registration tries the others again
    HEDDLE_RETURN_IF_ERROR(expect(received.size() == 3, "tried again"));
    heddle_unregister_unit(&other);
    HEDDLE_RETURN_IF_ERROR(world.free(large));
    return world.free(small);
  });
  REQUIRE(received.size() >= 4);
  CHECK(received.back().view.n_pes == 0);  // finalize
  CHECK(received.back().poison == nullptr);
  const size_t count = received.size();
  heddle_unregister_unit(&unit);
  run_on_gpus(1, [](World&) { return Status::ok(); });
  CHECK(received.size() == count);
}

TEST_CASE("a module that was loaded by hand is found by the name of its state") {
  const FakeCuda::Use driver;
  CHECK(register_library(nullptr).code() == Code::kNotInitialized);
  run_on_gpus(1, [](World& world) -> Status {
    const cuda::Driver& table = FakeCuda::the().table();
    CUlibrary library = nullptr;
    const uint32_t magic = 0xba55ed50;
    if (table.LibraryLoadData(&library, &magic, nullptr, nullptr, 0, nullptr, nullptr, 0) != CUDA_SUCCESS) std::abort();
    CUdeviceptr address = 0;
    size_t bytes = 0;
    const ContextScope scope(*world.fabric().gpu());
    if (table.LibraryGetGlobal(&address, &bytes, library, "heddle_device_state_d") != CUDA_SUCCESS) std::abort();
    const auto* state = reinterpret_cast<const device::DeviceState*>(address);
    HEDDLE_RETURN_IF_ERROR(register_library(library));
    HEDDLE_RETURN_IF_ERROR(expect(state->view.n_pes == 1, "filled"));
    char* block = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 5 << 20, &block));
    HEDDLE_RETURN_IF_ERROR(expect(state->view.extent == world.mapped_view().extent, "filled at growth"));
    HEDDLE_RETURN_IF_ERROR(unregister_module(library));
    HEDDLE_RETURN_IF_ERROR(expect(state->view.n_pes == 0, "zeroed"));
    HEDDLE_RETURN_IF_ERROR(expect(unregister_module(library).code() == Code::kInvalidValue, "not registered"));
    auto* const other = reinterpret_cast<device::DeviceState*>(address);
    other->version = device::kStateVersion - 1;
    const Status old = register_library(library);
    other->version = device::kStateVersion;
    HEDDLE_RETURN_IF_ERROR(expect(old.code() == Code::kInvalidValue, "a module of another version"));
    HEDDLE_RETURN_IF_ERROR(
        expect(old.text().find(format("headers of version %u", device::kStateVersion - 1)) != std::string::npos,
               "its version"));
    const Status missing = register_module(library);
    HEDDLE_RETURN_IF_ERROR(expect(missing.text().find("HEDDLE_MODULE") != std::string::npos, "a module without state"));
    (void)table.LibraryUnload(library);
    return world.free(block);
  });
}

TEST_CASE("what a kernel records is reported once, and a lost PE is told to kernels") {
  const FakeCuda::Use driver;
  received.clear();
  heddle_register_unit(&unit);
  run_on_gpus(1, [](World& world) -> Status {
    device::DeviceErrorRecord& record = *received.back().errors;
    for (int round = 0; round < 2; ++round) {
      record.claimed = 1;
      record.error = static_cast<uint32_t>(device::DeviceError::kBadAddress);
      record.pe = 0;
      record.address = 0x1234;
      record.bytes = 8;
      std::strcpy(record.call, "nvshmem_int_p");
      record.thread[0] = 3;
      record.grid = 17;
      const uint32_t blocks[3] = {4, 1, 1}, threads[3] = {64, 2, 1};
      std::memcpy(record.blocks, blocks, sizeof blocks);
      std::memcpy(record.threads, threads, sizeof threads);
      device::store_release(&record.complete, 1U);
      const Deadline deadline = Deadline::in(20);
      while (device::load_acquire(&record.claimed) != 0 && !deadline.passed()) std::this_thread::yield();
      HEDDLE_RETURN_IF_ERROR(expect(record.claimed == 0, "looked at"));
    }
    const Status last = last_error();
    (void)world;
    HEDDLE_RETURN_IF_ERROR(
        expect(last.text().find("nvshmem_int_p (block 0,0,0, thread 3,0,0 of grid 17, 4x1x1 blocks of 64x2x1 threads): "
                                "[0x1234, +8 bytes)") != std::string::npos,
               "text"));
    return Status::ok();
  });
  heddle_unregister_unit(&unit);
}

TEST_CASE("a grid that has failed counts as failed until the program clears the error") {
  const FakeCuda::Use driver;
  received.clear();
  heddle_register_unit(&unit);
  run_on_gpus(1, [](World&) -> Status {
    using device::DeviceError;
    device::DeviceErrorRecord& record = *received.back().errors;
    clear_last_error();
    record_failure(record, DeviceError::kBadPe, 20, "nvshmem_int_p");
    HEDDLE_RETURN_IF_ERROR(expect(is_read(record), "the failure is read"));
    HEDDLE_RETURN_IF_ERROR(expect(comes([] { return !last_error().is_ok(); }), "the failure is told"));
    // Time does not make it forgotten: the watch has had many turns.
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    HEDDLE_RETURN_IF_ERROR(expect(device::is_remembered(record.failed_grids, 20), "remembered"));
    // What comes later is told in the log, and the first cause stays the last error.
    record_failure(record, DeviceError::kGridFailed, 20, "nvshmem_int_wait_until");
    HEDDLE_RETURN_IF_ERROR(expect(is_read(record), "the later end is read"));
    HEDDLE_RETURN_IF_ERROR(
        expect(last_error().text().find("nvshmem_int_p") != std::string::npos, "the first cause stays"));
    forget_failed_grids();
    clear_last_error();
    HEDDLE_RETURN_IF_ERROR(expect(!device::is_remembered(record.failed_grids, 20), "forgotten"));
    // Once forgotten, a later end is news, and forgetting itself reports what is left.
    record_failure(record, DeviceError::kGridFailed, 21, "nvshmem_int_wait_until");
    forget_failed_grids();
    HEDDLE_RETURN_IF_ERROR(
        expect(comes([] { return last_error().text().find("has failed before") != std::string::npos; }), "told"));
    return expect(!device::is_remembered(record.failed_grids, 21), "forgotten again");
  });
  heddle_unregister_unit(&unit);
  clear_last_error();
  forget_failed_grids();  // without a world: nothing
}

TEST_CASE("a kernel's wish to exit is carried out whatever else is recorded") {
  const FakeCuda::Use driver;
  received.clear();
  heddle_register_unit(&unit);
  run_on_gpus(1, [](World& world) -> Status {
    std::atomic<int> status{-1};
    std::atomic<int> calls{0};
    std::unique_ptr<DeviceSide> side;
    HEDDLE_RETURN_IF_ERROR(DeviceSide::make(
        world.fabric(), gpu_settings(),
        [&](int code) {
          status = code;
          ++calls;
        },
        &side));
    HEDDLE_RETURN_IF_ERROR(side->publish(world.mapped_view(), {}));
    device::DeviceErrorRecord& record = *received.back().errors;
    record.claimed = 1;  // by a thread that never completes it
    device::store_release(&record.exit, device::kExitAsked | 7);
    HEDDLE_RETURN_IF_ERROR(expect(comes([&] { return calls == 1; }) && status == 7, "exit beside a failure"));
    device::store_release(&record.exit, device::kExitAsked | static_cast<uint32_t>(-3));
    HEDDLE_RETURN_IF_ERROR(expect(comes([&] { return calls == 2; }) && status == -3, "a negative status"));
    device::store_release(&record.exit, device::kExitAsked | 0);
    HEDDLE_RETURN_IF_ERROR(expect(comes([&] { return calls == 3; }) && status == 0, "status 0"));
    return Status::ok();
  });
  heddle_unregister_unit(&unit);
}

TEST_CASE("device code of another version fails init, and comes later only with an error") {
  const FakeCuda::Use driver;
  const heddle_unit others[] = {
      {device::kStateVersion + 1, unit.state_bytes, unit.record_bytes, &receive_of_another_version},
      {device::kStateVersion, unit.state_bytes + 8, unit.record_bytes, &receive_of_another_version},
      {device::kStateVersion, unit.state_bytes, unit.record_bytes - 8, &receive_of_another_version}};
  was_called = false;
  for (const heddle_unit& other : others) {
    heddle_register_unit(&other);
    const std::vector<Status> statuses = run_world(1, gpu_settings(), [](World&) { return Status::ok(); });
    REQUIRE(statuses.size() == 1);
    INFO(statuses[0].text());
    CHECK(statuses[0].code() == Code::kInvalidValue);
    CHECK(statuses[0].text().find(format("headers of version %u (state %u bytes, record %u)", other.version,
                                         other.state_bytes, other.record_bytes)) != std::string::npos);
    CHECK(statuses[0].text().find(format("this library has version %u", device::kStateVersion)) != std::string::npos);
    CHECK(statuses[0].text().find("compile it anew") != std::string::npos);
    CHECK(FakeCuda::the().leaks() == "");
    heddle_unregister_unit(&other);

    run_on_gpus(1, [&](World& world) -> Status {
      clear_last_error();
      heddle_register_unit(&other);
      const bool is_told = last_error().text().find("compile it anew") != std::string::npos;
      char* block = nullptr;
      const Status grown = make_block(world, 5 << 20, &block);  // a new state, which the unit does not get
      heddle_unregister_unit(&other);
      HEDDLE_RETURN_IF_ERROR(grown);
      HEDDLE_RETURN_IF_ERROR(expect(is_told, "told at once"));
      return world.free(block);
    });
  }
  CHECK_FALSE(was_called);
  clear_last_error();
}

TEST_CASE("what kernels record without a world is reported when a unit gets its state") {
  const FakeCuda::Use driver;
  received.clear();
  receiver_code = 0;
  const auto leave_a_record = [] {
    stray.complete = 1;
    stray.error = static_cast<uint32_t>(device::DeviceError::kNotInitialized);
    std::strcpy(stray.call, "nvshmem_barrier_all");
  };
  const auto is_told = [] {
    const std::string text = last_error().text();
    clear_last_error();
    return stray.complete == 0 && text.find("nvshmem_barrier_all") != std::string::npos &&
           text.find("called outside init and finalize") != std::string::npos;
  };
  leave_a_record();
  heddle_register_unit(&unit);
  run_on_gpus(1, [&](World& world) -> Status {
    HEDDLE_RETURN_IF_ERROR(expect(is_told(), "told by init"));
    leave_a_record();
    char* large = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 5 << 20, &large));
    HEDDLE_RETURN_IF_ERROR(expect(stray.complete == 1, "not asked for while there is a world"));
    stray = {};
    return world.free(large);
  });
  leave_a_record();
  find_stray_failures();
  CHECK(stray.complete == 1);  // no context is current, so no kernel of this thread can have run
  run_on_gpus(1, [&](World&) { return expect(is_told(), "told by the next init"); });
  heddle_unregister_unit(&unit);
}

TEST_CASE("every failure of kernels has a sentence with its values") {
  device::DeviceErrorRecord record{};
  std::strcpy(record.call, "nvshmem_int_p");
  record.address = 0x1234;
  const auto text_of = [&](device::DeviceError error, int pe, uint64_t value) {
    record.error = static_cast<uint32_t>(error);
    record.pe = pe;
    record.bytes = value;
    return device_failure(record).text();
  };
  using device::DeviceError;
  const struct {
    DeviceError error;
    int pe;
    uint64_t value;
    const char* words;
  } all[] = {
      {DeviceError::kPeerLost, 3, 0, "PE 3 was lost"},
      {DeviceError::kTimeout, 2, 0, "HEDDLE_WAIT_TIMEOUT on address 0x1234 for PE 2"},
      {DeviceError::kBadPe, -1, 4, "PE -1 is out of range; the PEs are 0 to 3"},
      {DeviceError::kBadAddress, 0, 24, "[0x1234, +24 bytes) is not in the symmetric heap"},
      {DeviceError::kBadAlignment, 0, 8, "0x1234 is not aligned to 8 bytes"},
      {DeviceError::kNotInitialized, -1, 0, "called outside init and finalize"},
      {DeviceError::kBadCompare, -1, static_cast<uint64_t>(-2), "comparison -2 is none of"},
      {DeviceError::kBadSignalOp, 0, 3, "signal operation 3 is neither"},
      {DeviceError::kBadStride, 0, 0, "a stride is 0; strides are at least 1"},
      {DeviceError::kOverlap, 0, 64, "the counter at 0x1234 lies within the 64 bytes"},
      {DeviceError::kBadArgument, 0, 64, "an argument is not allowed"},
      {DeviceError::kBadBlock, -1, 96, "blocks of a multiple of 128 threads; this block has 96"},
      {DeviceError::kGridFailed, -1, 0, "a thread of this grid has failed before"},
      {DeviceError::kNullBuffer, -1, 64, "a buffer is NULL, but 64 bytes of it are asked for"},
  };
  for (const auto& one : all) {
    const std::string text = text_of(one.error, one.pe, one.value);
    INFO(text);
    CHECK(text.find(one.words) != std::string::npos);
    CHECK(text.find("a kernel's nvshmem_int_p (block 0,0,0, thread 0,0,0 of grid 0") == 0);
  }
}
