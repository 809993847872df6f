// What kernels are given, and what they give back: the state at every change, modules, failures that they record.
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

int receive(const void* state, unsigned long bytes, void* record) {
  if (bytes != sizeof(device::DeviceState)) return 1;
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

}  // namespace

TEST_CASE("translation units get the state at init, at growth and at the end") {
  const FakeCuda::Use driver;
  received.clear();
  receiver_code = 0;
  heddle_register_state(&receive);
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
    heddle_unregister_state(&receive);
    receiver_code = 209;
    heddle_register_state(&receive);
    HEDDLE_RETURN_IF_ERROR(expect(received.size() == 2, "refused"));
    receiver_code = 0;
    const heddle_state_receiver other = [](const void*, unsigned long, void*) { return 0; };
    heddle_register_state(other);  // a later registration tries the others again
    HEDDLE_RETURN_IF_ERROR(expect(received.size() == 3, "tried again"));
    heddle_unregister_state(other);
    HEDDLE_RETURN_IF_ERROR(world.free(large));
    return world.free(small);
  });
  REQUIRE(received.size() >= 4);
  CHECK(received.back().view.n_pes == 0);  // finalize
  CHECK(received.back().poison == nullptr);
  const size_t count = received.size();
  heddle_unregister_state(&receive);
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
    const Status missing = register_module(library);
    HEDDLE_RETURN_IF_ERROR(expect(missing.text().find("HEDDLE_MODULE") != std::string::npos, "a module without state"));
    (void)table.LibraryUnload(library);
    return world.free(block);
  });
}

TEST_CASE("what a kernel records is reported once, and a lost PE is told to kernels") {
  const FakeCuda::Use driver;
  received.clear();
  heddle_register_state(&receive);
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
    // A grid that has failed is forgotten in time, as graphs may use its number again.
    device::store_relaxed(&record.failed_grids[3], uint64_t{20});
    const Deadline deadline = Deadline::in(20);
    while (device::load_relaxed(&record.failed_grids[3]) != 0 && !deadline.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return expect(device::load_relaxed(&record.failed_grids[3]) == 0, "forgotten");
  });
  heddle_unregister_state(&receive);
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
  heddle_register_state(&receive);
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
  heddle_unregister_state(&receive);
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
      {DeviceError::kNullBuffer, -1, 64, "a buffer is NULL, but 64 bytes of it are asked for"},
  };
  for (const auto& one : all) {
    const std::string text = text_of(one.error, one.pe, one.value);
    INFO(text);
    CHECK(text.find(one.words) != std::string::npos);
    CHECK(text.find("a kernel's nvshmem_int_p (block 0,0,0, thread 0,0,0 of grid 0") == 0);
  }
}
