// What kernels are given, and what they give back: the state at every change, modules, failures that they record.
#include <cstdint>
#include <cstring>
#include <thread>

#include "runtime/device_state.h"
#include "runtime/gpu.h"
#include "runtime/log.h"
#include "unit/gpu_world.h"

using namespace heddle;        // NOLINT
using namespace heddle::test;  // NOLINT

namespace {

std::vector<device::DeviceState> received;
int receiver_code = 0;

int receive(const void* state, unsigned long bytes) {
  if (bytes != sizeof(device::DeviceState)) return 1;
  if (receiver_code != 0) return receiver_code;
  CUcontext context = nullptr;
  (void)FakeCuda::the().table().CtxGetCurrent(&context);
  if (context == nullptr) return 201;  // the program's runtime would choose another context
  device::DeviceState copy{};
  std::memcpy(static_cast<void*>(&copy), state, sizeof copy);
  received.push_back(copy);
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
    const heddle_state_receiver other = [](const void*, unsigned long) { return 0; };
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
      device::store_release(&record.complete, 1U);
      const Deadline deadline = Deadline::in(20);
      while (device::load_acquire(&record.claimed) != 0 && !deadline.passed()) std::this_thread::yield();
      HEDDLE_RETURN_IF_ERROR(expect(record.claimed == 0, "looked at"));
    }
    const Status last = last_error();
    (void)world;
    return expect(
        last.text().find("nvshmem_int_p (block 0,0,0, thread 0,0,0): [0x1234, +8 bytes)") != std::string::npos, "text");
  });
  heddle_unregister_state(&receive);
}
