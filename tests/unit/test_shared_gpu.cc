// Worlds whose PEs share GPUs, on the driver in host memory: host and on_stream calls, the teams, what kernels are
// given, and what collective launches and calls on another GPU are told.
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device/teams.h"
#include "include/nvshmem_host.h"
#include "include/nvshmemx_stream.h"
#include "runtime/device_state.h"
#include "runtime/global.h"
#include "runtime/gpu.h"
#include "runtime/stream_ops.h"
#include "unit/gpu_world.h"

extern "C" int heddle_admit_launch(const char* call, CUstream_st* stream, int needs_world, int* blocks, char* sharing,
                                   unsigned long size);

using namespace heddle;        // NOLINT
using namespace heddle::test;  // NOLINT

namespace {

void run_on(const std::vector<int>& gpus, const std::function<Status(World&)>& body) {
  require_all_ok(run_world(static_cast<int>(gpus.size()), gpu_settings(), body, gpus));
  CHECK(FakeCuda::the().leaks() == "");
}

/// Runs `body` on every PE in turn, with its world as that of the C API.
Status in_turn(World& world, const std::function<Status()>& body) {
  Status status;
  for (int pe = 0; pe < world.n_pes(); ++pe) {
    if (pe == world.my_pe()) {
      current_world.store(&world);
      status = body();
      current_world.store(nullptr);
    }
    HEDDLE_RETURN_IF_ERROR(world.sync_all());
  }
  return status;
}

/// The last state that a translation unit was given of every PE. Receivers run one at a time.
std::map<int, device::DeviceState> states;

/// What a kernel of the unit has recorded on the second GPU.
device::DeviceErrorRecord elsewhere{};

int receive(const void* state, unsigned long bytes, void* record, unsigned long) {
  device::DeviceState copy{};
  if (bytes != sizeof copy) return 1;
  std::memcpy(static_cast<void*>(&copy), state, bytes);
  CUdevice device = -1;
  if (FakeCuda::the().table().CtxGetDevice(&device) == CUDA_SUCCESS && device == 1 && record != nullptr) {
    std::memcpy(record, &elsewhere, sizeof elsewhere);
    elsewhere = {};
  }
  if (copy.view.n_pes > 0) states[copy.view.my_pe] = copy;
  return 0;
}
const heddle_unit unit = {device::kStateVersion, sizeof(device::DeviceState), sizeof(device::DeviceErrorRecord),
                          &receive};

}  // namespace

TEST_CASE("host and on_stream calls work between PEs on one GPU, with and without peer access and MPS") {
  const FakeCuda::Use driver;
  FakeCuda::the().traits.peer_access = GENERATE(false, true);  // a GPU is no peer of itself either way
  FakeCuda::the().traits.mps = GENERATE(false, true);
  run_on({0, 0, 0}, [](World& world) -> Status {
    const int me = world.my_pe(), n = world.n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
    HEDDLE_RETURN_IF_ERROR(expect(world.gpus().sharers_of(me).size() == 3, "sharers"));
    HEDDLE_RETURN_IF_ERROR(expect(
        world.gpus().mode() == (FakeCuda::the().traits.mps ? SharingMode::kMps : SharingMode::kTimeSliced), "mode"));
    constexpr size_t kCount = 20000;
    int *box = nullptr, *source = nullptr;
    uint64_t *signal = nullptr, *sum = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, kCount, &box));
    HEDDLE_RETURN_IF_ERROR(make_block(world, kCount, &source));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &signal));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &sum));
    const std::vector<int> mine(kCount, me + 1), expected(kCount, left + 1);
    std::vector<int> got(kCount);
    host::put(world, "put", box, mine.data(), kCount * sizeof(int), right);
    host::atomic<AtomicOp::kAdd, false>(world, "add", sum, uint64_t{1}, uint64_t{0}, 0);
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    host::get(world, "get", got.data(), box, kCount * sizeof(int), me);
    HEDDLE_RETURN_IF_ERROR(expect(got == expected, "put"));
    host::get(world, "get", got.data(), box, kCount * sizeof(int), right);
    HEDDLE_RETURN_IF_ERROR(expect(got == mine, "get"));
    HEDDLE_RETURN_IF_ERROR(expect(host::g(world, "g", sum, 0) == 3, "atomics"));
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());

    const ContextScope scope(*world.fabric().gpu());
    CUstream stream = nullptr;
    if (FakeCuda::the().table().StreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) std::abort();
    HEDDLE_RETURN_IF_ERROR(stream::check(world, stream));
    HEDDLE_RETURN_IF_ERROR(stream::put(world, source, mine.data(), kCount * sizeof(int), me, stream));
    HEDDLE_RETURN_IF_ERROR(
        stream::put_signal(world, box, source, kCount * sizeof(int), signal, 5, NVSHMEM_SIGNAL_SET, left, stream));
    WaitTask task{};
    task.variables = signal;
    task.count = 1;
    task.reference = 5;
    task.cmp = NVSHMEM_CMP_EQ;
    task.element = 8;
    HEDDLE_RETURN_IF_ERROR(stream::wait(world, task, stream));
    HEDDLE_RETURN_IF_ERROR(stream::get(world, got.data(), box, kCount * sizeof(int), me, stream));
    if (FakeCuda::the().table().StreamSynchronize(stream) != CUDA_SUCCESS) std::abort();
    HEDDLE_RETURN_IF_ERROR(expect(got == std::vector<int>(kCount, right + 1), "put_signal on a stream"));
    HEDDLE_RETURN_IF_ERROR(stream::barrier(world, true, stream));
    if (FakeCuda::the().table().StreamSynchronize(stream) != CUDA_SUCCESS) std::abort();
    (void)FakeCuda::the().table().StreamDestroy(stream);
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    HEDDLE_RETURN_IF_ERROR(world.free(sum));
    HEDDLE_RETURN_IF_ERROR(world.free(signal));
    HEDDLE_RETURN_IF_ERROR(world.free(source));
    return world.free(box);
  });
}

TEST_CASE("the teams of GPUs, on the host") {
  const FakeCuda::Use driver;
  run_on({0, 1, 0, 0, 1}, [](World& world) -> Status {  // GPU 0: PE 0, 2 and 3; GPU 1: PE 1 and 4
    return in_turn(world, [&]() -> Status {
      constexpr int kSame = NVSHMEMI_TEAM_SAME_GPU, kLeaders = NVSHMEMI_TEAM_GPU_LEADERS;
      const int me = world.my_pe();
      const int places[] = {0, 0, 1, 2, 1}, sizes[] = {3, 2, 3, 3, 2};
      HEDDLE_RETURN_IF_ERROR(expect(nvshmem_team_my_pe(kSame) == places[me], "place on the GPU"));
      HEDDLE_RETURN_IF_ERROR(expect(nvshmem_team_n_pes(kSame) == sizes[me], "PEs on the GPU"));
      HEDDLE_RETURN_IF_ERROR(
          expect(nvshmem_team_translate_pe(kSame, 1, NVSHMEM_TEAM_WORLD) == (sizes[me] == 3 ? 2 : 4), "to the world"));
      HEDDLE_RETURN_IF_ERROR(
          expect(nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, 3, kSame) == (sizes[me] == 3 ? 2 : -1), "and back"));
      const bool leads = me < 2;
      HEDDLE_RETURN_IF_ERROR(expect(nvshmem_team_my_pe(kLeaders) == (leads ? me : -1), "place among leaders"));
      HEDDLE_RETURN_IF_ERROR(expect(nvshmem_team_n_pes(kLeaders) == (leads ? 2 : -1), "leaders"));
      HEDDLE_RETURN_IF_ERROR(expect(nvshmem_team_translate_pe(kLeaders, 1, NVSHMEM_TEAM_WORLD) == (leads ? 1 : -1),
                                    "a leader in the world"));
      HEDDLE_RETURN_IF_ERROR(expect(nvshmem_barrier(kSame) == NVSHMEMX_ERROR_NOT_SUPPORTED, "barrier of a part"));
      HEDDLE_RETURN_IF_ERROR(
          expect(nvshmem_team_sync(kLeaders) == (leads ? NVSHMEMX_ERROR_NOT_SUPPORTED : NVSHMEMX_ERROR_INVALID_VALUE),
                 "sync of leaders"));
      if (!leads) {
        HEDDLE_RETURN_IF_ERROR(
            expect(last_error().text().find("is not in team 5") != std::string::npos, "why a PE cannot synchronise"));
        HEDDLE_RETURN_IF_ERROR(
            expect(nvshmemx_barrier_on_stream(kLeaders, nullptr) == NVSHMEMX_ERROR_INVALID_VALUE, "on a stream"));
      }
      return expect(init_status_of(world) == NVSHMEM_STATUS_LIMITED_MPG, "init_status");
    });
  });
  run_on({0, 1}, [](World& world) -> Status {
    HEDDLE_RETURN_IF_ERROR(in_turn(world, [&]() -> Status {
      HEDDLE_RETURN_IF_ERROR(expect(nvshmem_team_n_pes(NVSHMEMI_TEAM_SAME_GPU) == 1, "a GPU of its own"));
      HEDDLE_RETURN_IF_ERROR(expect(nvshmem_team_n_pes(NVSHMEMI_TEAM_GPU_LEADERS) == 2, "all lead"));
      return expect(init_status_of(world) == NVSHMEM_STATUS_IS_INITIALIZED, "init_status");
    }));
    return world.barrier_all();
  });
}

TEST_CASE("the teams of GPUs, as kernels are given them") {
  const FakeCuda::Use driver;
  states.clear();
  heddle_register_unit(&unit);
  run_on({0, 1, 0, 0, 1}, [](World& world) -> Status {
    HEDDLE_RETURN_IF_ERROR(world.sync_all());  // all have their states
    const int me = world.my_pe();
    const device::DeviceState& state = states.at(me);
    const auto agrees = [&](int team, const std::vector<int>& members) {
      const device::TeamView view = device::team_view(state, team);
      bool all = view.size == static_cast<int>(members.size());
      for (size_t place = 0; all && place < members.size(); ++place) {
        all = view.pe_at(static_cast<int>(place)) == members[place] &&
              view.index_of(members[place]) == static_cast<int>(place);
      }
      return all;
    };
    const bool second = me == 1 || me == 4;
    HEDDLE_RETURN_IF_ERROR(expect(
        agrees(NVSHMEMI_TEAM_SAME_GPU, second ? std::vector<int>{1, 4} : std::vector<int>{0, 2, 3}), "same GPU"));
    HEDDLE_RETURN_IF_ERROR(
        expect(agrees(NVSHMEMI_TEAM_GPU_LEADERS, me < 2 ? std::vector<int>{0, 1} : std::vector<int>{}), "leaders"));
    char* block = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 5 << 20, &block));  // a further state, with the same teams
    HEDDLE_RETURN_IF_ERROR(world.sync_all());
    HEDDLE_RETURN_IF_ERROR(expect(state.view.extent == world.mapped_view().extent, "state of the grown heap"));
    HEDDLE_RETURN_IF_ERROR(expect(device::team_view(state, NVSHMEMI_TEAM_SAME_GPU).size == (second ? 2 : 3), "size"));
    return world.free(block);
  });
  run_on({0, 1}, [](World& world) -> Status {
    HEDDLE_RETURN_IF_ERROR(world.sync_all());
    const device::DeviceState& state = states.at(world.my_pe());
    HEDDLE_RETURN_IF_ERROR(expect(state.gpu_teams == nullptr, "nothing to list"));
    HEDDLE_RETURN_IF_ERROR(expect(device::team_view(state, NVSHMEMI_TEAM_GPU_LEADERS).size == 2, "all lead"));
    return world.sync_all();
  });
  heddle_unregister_unit(&unit);
}

TEST_CASE("collective launches get the part of a shared GPU that MPS leaves them, and are refused elsewhere") {
  const FakeCuda::Use driver;
  FakeCuda::the().traits.mps = GENERATE(false, true);
  int blocks = 264;
  char text[200] = "x";
  CHECK(heddle_admit_launch("query", nullptr, 0, &blocks, text, sizeof text) == 0);
  CHECK((blocks == 264 && *text == '\0'));
  CHECK(heddle_admit_launch("launch", nullptr, 1, &blocks, text, sizeof text) == NVSHMEMX_ERROR_INTERNAL);
  CHECK(last_error().text().find("called before nvshmem_init") != std::string::npos);
  run_on({1, 1}, [](World& world) -> Status {
    return in_turn(world, [&]() -> Status {
      const bool mps = FakeCuda::the().traits.mps;
      HEDDLE_RETURN_IF_ERROR(
          expect(init_status_of(world) == (mps ? NVSHMEM_STATUS_FULL_MPG : NVSHMEM_STATUS_LIMITED_MPG), "init_status"));
      int most = 264;
      char sharing[200] = "";
      HEDDLE_RETURN_IF_ERROR(
          expect(heddle_admit_launch("launch", nullptr, 1, &most, sharing, sizeof sharing) == 0, "admitted"));
      HEDDLE_RETURN_IF_ERROR(expect(most == (mps ? 132 : 264), "blocks"));
      HEDDLE_RETURN_IF_ERROR(expect(std::strstr(sharing, world.my_pe() == 0 ? "PE 1" : "PE 0") != nullptr, "sharer"));
      HEDDLE_RETURN_IF_ERROR(
          expect(std::strstr(sharing, mps ? "under CUDA MPS" : "without CUDA MPS") != nullptr, "how"));

      // Another GPU is current.
      std::shared_ptr<Gpu> other;
      HEDDLE_RETURN_IF_ERROR(Gpu::open({0, 0}, &other));
      const ContextScope scope(*other);
      const auto refused = [&](const char* what) {
        const std::string said = last_error().text();
        const bool named = said.find("is GPU 0") != std::string::npos && said.find("on GPU 1") != std::string::npos;
        clear_last_error();
        return expect(named, what);
      };
      HEDDLE_RETURN_IF_ERROR(expect(
          heddle_admit_launch("launch", nullptr, 1, &most, sharing, sizeof sharing) == NVSHMEMX_ERROR_INVALID_VALUE,
          "another GPU"));
      HEDDLE_RETURN_IF_ERROR(refused("launch"));
      HEDDLE_RETURN_IF_ERROR(expect(
          heddle_admit_launch("query", nullptr, 0, &most, sharing, sizeof sharing) == NVSHMEMX_ERROR_INVALID_VALUE,
          "query"));
      HEDDLE_RETURN_IF_ERROR(refused("query"));
      auto* const box = world.view().my_heap + world.heap_figures().internal;
      nvshmemx_putmem_on_stream(box, box, 8, world.my_pe(), nullptr);
      HEDDLE_RETURN_IF_ERROR(refused("putmem_on_stream"));
      nvshmemx_quiet_on_stream(nullptr);
      HEDDLE_RETURN_IF_ERROR(refused("quiet_on_stream"));
      HEDDLE_RETURN_IF_ERROR(
          expect(nvshmemx_barrier_on_stream(NVSHMEM_TEAM_WORLD, nullptr) == NVSHMEMX_ERROR_INVALID_VALUE, "barrier"));
      HEDDLE_RETURN_IF_ERROR(refused("barrier_on_stream"));
      if (world.my_pe() == 0) return Status::ok();
      HEDDLE_RETURN_IF_ERROR(expect(nvshmemx_cumodule_init(nullptr) == NVSHMEMX_ERROR_INVALID_VALUE, "module"));
      return refused("cumodule_init");
    });
  });
}

TEST_CASE("what a kernel has recorded on another GPU than the heap's is reported at finalize") {
  const FakeCuda::Use driver;
  const cuda::Driver& table = FakeCuda::the().table();
  const bool uses_both = GENERATE(false, true);
  CUcontext second = nullptr;
  if (uses_both) REQUIRE(table.DevicePrimaryCtxRetain(&second, 1) == CUDA_SUCCESS);
  clear_last_error();
  elsewhere = {};
  elsewhere.complete = 1;
  elsewhere.error = static_cast<uint32_t>(device::DeviceError::kNotInitialized);
  elsewhere.thread[0] = 7;
  std::strcpy(elsewhere.call, "nvshmemx_barrier_all_block");
  heddle_register_unit(&unit);
  require_all_ok(run_world(1, gpu_settings(), [](World&) { return Status::ok(); }, {0}));
  heddle_unregister_unit(&unit);
  CHECK((elsewhere.complete == 0) == uses_both);  // GPUs that the program has not touched stay so
  const std::string text = last_error().text();
  INFO(text);
  CHECK((text.find("nvshmemx_barrier_all_block") != std::string::npos) == uses_both);
  CHECK((text.find("on another GPU than the symmetric heap's") != std::string::npos) == uses_both);
  CUcontext current = nullptr;
  CHECK((table.CtxGetCurrent(&current) == CUDA_SUCCESS && current == nullptr));
  if (uses_both) CHECK(table.DevicePrimaryCtxRelease(1) == CUDA_SUCCESS);
  CHECK(FakeCuda::the().leaks() == "");
}
