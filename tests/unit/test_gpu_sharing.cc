// Who shares whose GPU: what follows from the records of all PEs, the words about it, the teams, and which GPUs reach
// each other. On records made by hand, and on the driver in host memory.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>

#include "device/teams.h"
#include "runtime/gpu.h"
#include "runtime/gpu_sharing.h"
#include "tests/catch.h"
#include "tests/unit/fake_driver.h"

using namespace heddle;        // NOLINT
using namespace heddle::test;  // NOLINT

namespace {

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

struct Sharer {
  unsigned char gpu;  // 0: none
  bool has_mps = false;
  int percentage = 0;
};

GpuSharing sharing_of(const std::vector<Sharer>& sharers) {
  std::vector<PeerIdentity> identities;
  for (const Sharer& sharer : sharers) {
    PeerIdentity identity{};
    identity.gpu_capability = sharer.gpu == 0 ? 0 : 90;
    identity.gpu_uuid[15] = sharer.gpu;
    identity.gpu_has_mps = sharer.has_mps ? 1 : 0;
    identity.gpu_mps_percentage = static_cast<uint16_t>(sharer.percentage);
    identities.push_back(identity);
  }
  return GpuSharing(identities);
}

/// An environment variable, for as long as this lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* const former = getenv(name);
    if (former != nullptr) former_ = former;
    had_ = former != nullptr;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Variable() { had_ ? setenv(name_, former_.c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string former_;
  bool had_ = false;
};

}  // namespace

TEST_CASE("PEs share a GPU by its UUID, wherever they stand") {
  const GpuSharing sharing = sharing_of({{1}, {2}, {1}, {0}, {0}, {1}, {2}});
  CHECK(sharing.sharers_of(0) == std::vector<int>{0, 2, 5});
  CHECK(sharing.sharers_of(5) == std::vector<int>{0, 2, 5});
  CHECK(sharing.sharers_of(6) == std::vector<int>{1, 6});
  CHECK(sharing.sharers_of(3) == std::vector<int>{3});  // PEs without a GPU share none
  CHECK(sharing.leaders() == std::vector<int>{0, 1, 3, 4});
  CHECK(sharing.is_shared(2));
  CHECK(!sharing.is_shared(4));
  CHECK(sharing.mode() == SharingMode::kTimeSliced);
  CHECK(sharing_of({{1}, {2}}).mode() == SharingMode::kNone);
  CHECK(sharing_of({{0}, {0}}).mode() == SharingMode::kNone);
}

TEST_CASE("MPS counts where it serves all PEs of a GPU") {
  CHECK(sharing_of({{1, true}, {1, true}, {2}}).mode() == SharingMode::kMps);
  CHECK(sharing_of({{1, true}, {1, false}}).mode() == SharingMode::kTimeSliced);
  CHECK(!sharing_of({{1, true}, {1, false}}).has_mps(0));
  CHECK(sharing_of({{1, true}, {1, true}, {2}, {2}}).mode() == SharingMode::kTimeSliced);
  CHECK(sharing_of({{1, true}, {2, true}}).mode() == SharingMode::kNone);
}

TEST_CASE("the largest grid is what all sharers can have at once") {
  CHECK(sharing_of({{1}, {2}}).resident_blocks(0, 264) == 264);
  CHECK(sharing_of({{1}, {1}}).resident_blocks(0, 264) == 264);  // in its turn, a kernel has all of the GPU
  CHECK(sharing_of({{1, true}, {2, true}}).resident_blocks(0, 264) == 264);
  const GpuSharing two = sharing_of({{1, true}, {1, true}});
  CHECK(two.resident_blocks(0, 264) == 132);
  CHECK(two.resident_blocks(1, 265) == 132);
  CHECK(sharing_of({{1, true}, {1, true}, {1, true}}).resident_blocks(2, 2) == 0);
  // Percentages that leave room for all: the driver has counted for them.
  CHECK(sharing_of({{1, true, 50}, {1, true, 50}}).resident_blocks(0, 132) == 132);
  CHECK(sharing_of({{1, true, 75}, {1, true, 25}}).resident_blocks(0, 198) == 198);
  // Those that do not: a fair part of the whole GPU, and never more than the own percentage.
  CHECK(sharing_of({{1, true, 75}, {1, true, 50}}).resident_blocks(0, 198) == 132);
  CHECK(sharing_of({{1, true, 75}, {1, true, 50}}).resident_blocks(1, 132) == 132);
  CHECK(sharing_of({{1, true, 25}, {1, true}}).resident_blocks(0, 66) == 66);
  CHECK(sharing_of({{1, true, 25}, {1, true}}).resident_blocks(1, 264) == 132);
}

TEST_CASE("the words about a shared GPU name all PEs, what it means, and what to do") {
  CHECK(sharing_of({{1}, {2}}).text(0) == "");
  CHECK(sharing_of({{1}, {1}}).text(0) == ", as it shares the GPU with PE 1 without CUDA MPS");
  CHECK(sharing_of({{1, true}, {1, true}, {1, true}}).text(1) ==
        ", as it shares the GPU with PE 0 and PE 2 under CUDA MPS");
  const std::string alone = sharing_text({0, 2, 5}, false, "GPU 0 (H)", {});
  CHECK(has(alone, "PE 0, PE 2 and PE 5 share GPU 0 (H) without CUDA MPS"));
  CHECK(has(alone, "turns of some milliseconds"));
  CHECK(has(alone, "nvidia-cuda-mps-control -d"));
  CHECK(!has(alone, "no PE uses"));
  const std::string by_accident = sharing_text({0, 1}, false, "GPU 0 (H)", {"GPU 1 (GPU-1)", "GPU 2 (GPU-2)"});
  CHECK(has(by_accident, "no PE uses GPU 1 (GPU-1), GPU 2 (GPU-2)"));
  CHECK(has(by_accident, "cudaSetDevice before init"));
  CHECK(has(by_accident, "cuda_device_id"));
  CHECK(has(sharing_text({0, 1}, false, "GPU 0", std::vector<std::string>(11, "GPU")), "and 3 more"));
  const std::string mps = sharing_text({0, 1}, true, "GPU 0 (H)", {"GPU 1 (GPU-1)"});
  CHECK(has(mps, "PE 0 and PE 1 share GPU 0 (H) under CUDA MPS"));
  CHECK(!has(mps, "turns"));
}

TEST_CASE("kernels see the teams of GPUs as the host does, in any layout") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int n = std::uniform_int_distribution<int>(1, 9)(random);
    std::vector<Sharer> sharers;
    for (int pe = 0; pe < n; ++pe) {
      sharers.push_back({static_cast<unsigned char>(std::uniform_int_distribution<int>(1, 4)(random))});
    }
    const GpuSharing sharing = sharing_of(sharers);
    const int me = std::uniform_int_distribution<int>(0, n - 1)(random);
    const std::vector<int> same = sharing.sharers_of(me), leaders = sharing.leaders();
    const bool leads = sharing.leader_of(me) == me;
    std::vector<int32_t> list(same.begin(), same.end());
    list.insert(list.end(), leaders.begin(), leaders.end());
    device::DeviceState state{};
    state.view.my_pe = me;
    state.view.n_pes = n;
    state.node_n_pes = 1;
    if (sharing.mode() != SharingMode::kNone) {
      state.gpu_teams = list.data();
      state.same_gpu_n_pes = static_cast<uint32_t>(same.size());
      state.gpu_leaders_n_pes = leads ? static_cast<uint32_t>(leaders.size()) : 0;
    }
    const auto agrees = [&](int team, const std::vector<int>& members) {
      const device::TeamView view = device::team_view(state, team);
      REQUIRE(view.size == static_cast<int>(members.size()));
      for (int place = 0; place < view.size; ++place) CHECK(view.pe_at(place) == members[static_cast<size_t>(place)]);
      for (int pe = -1; pe <= n; ++pe) {
        const auto found = std::find(members.begin(), members.end(), pe);
        CHECK(view.index_of(pe) == (found == members.end() ? -1 : static_cast<int>(found - members.begin())));
      }
    };
    agrees(4, same);
    agrees(5, leads ? leaders : std::vector<int>());
    agrees(6, {me});
    agrees(7, {});
  }
}

TEST_CASE("without a state there are no teams") {
  const device::DeviceState none{};
  for (int team = -1; team < 9; ++team) CHECK(device::team_view(none, team).size == 0);
}

TEST_CASE("MPS is what the driver says, else what a daemon's pipe shows") {
  const FakeCuda::Use driver;
  const auto has_mps = [] {
    std::shared_ptr<Gpu> gpu;
    REQUIRE(Gpu::open({0, 0}, &gpu).is_ok());
    PeerIdentity identity{};
    gpu->describe(&identity);
    CHECK((identity.gpu_has_mps != 0) == gpu->has_mps());
    return gpu->has_mps();
  };
  char folder[] = "/tmp/heddle-test-mps-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string pipe = std::string(folder) + "/control";
  const Variable named("CUDA_MPS_PIPE_DIRECTORY", folder);
  CHECK(!has_mps());
  FakeCuda::the().traits.knows_mps = false;
  CHECK(!has_mps());  // a folder that a daemon has left behind
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(has_mps());
  FakeCuda::the().traits.knows_mps = true;
  CHECK(!has_mps());  // a daemon that serves others
  FakeCuda::the().traits.mps = true;
  CHECK(has_mps());
  CHECK(unlink(pipe.c_str()) == 0);
  CHECK(has_mps());
  CHECK(rmdir(folder) == 0);
  const std::pair<const char*, int> percentages[] = {{nullptr, 0}, {"", 0},   {"50", 50}, {"33.7", 33}, {"100", 100},
                                                     {"0", 0},     {"-3", 0}, {"101", 0}, {"many", 0},  {"nan", 0}};
  for (const auto& [text, value] : percentages) {
    CAPTURE(text);
    const Variable set("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", text);
    CHECK(mps_percentage() == value);
  }
}

TEST_CASE("which GPUs reach each other, and why not") {
  const FakeCuda::Use driver;
  std::shared_ptr<Gpu> first, second, instance;
  REQUIRE(Gpu::open({0, 0}, &first).is_ok());
  REQUIRE(Gpu::open({1, 0}, &second).is_ok());
  FakeCuda::the().traits.name = "Fake A100 MIG 1g.5gb";
  REQUIRE(Gpu::open({0, 0}, &instance).is_ok());
  PeerIdentity one{}, other{}, its{}, another{};
  first->describe(&one);
  second->describe(&other);
  instance->describe(&its);
  another = its;
  another.gpu_uuid[3] ^= 1;
  CHECK(its.gpu_is_mig == 1);
  CHECK(one.gpu_is_mig == 0);

  // The same GPU, which is no peer of itself, and the same instance.
  FakeCuda::the().traits.peer_access = false;
  CHECK(first->reach(one).reached);
  CHECK(instance->reach(its).reached);
  CHECK(instance->has_native_atomics(its));
  // Another GPU.
  CHECK(has(first->reach(other).reason, "no peer access to GPU-"));
  CHECK(!first->reach(other).reached);
  FakeCuda::the().traits.peer_access = true;
  CHECK(first->reach(other).reached);
  FakeCuda::the().traits.failures["DeviceCanAccessPeer"] = CUDA_ERROR_INVALID_DEVICE;
  CHECK(!first->reach(other).reached);
  FakeCuda::the().traits.failures.clear();
  // Two instances, an instance and a GPU, a GPU and an instance.
  for (const Reach& reach : {instance->reach(another), instance->reach(other), second->reach(another)}) {
    CHECK(!reach.reached);
    CHECK(has(reach.reason, "a MIG instance has no peers"));
    CHECK(has(reach.reason, "give all PEs one instance"));
  }
  CHECK(has(instance->reach(another).reason, "MIG-"));
  CHECK(has(second->reach(another).reason, "GPU-"));
  // Not visible, and none.
  PeerIdentity hidden = other;
  hidden.gpu_uuid[0] ^= 1;
  CHECK(has(first->reach(hidden).reason, "not visible to this process"));
  CHECK(has(first->reach(PeerIdentity{}).reason, "PE has no GPU"));

  CHECK(first->unused_by({one, other}).empty());
  REQUIRE(first->unused_by({one}).size() == 1);
  CHECK(has(first->unused_by({one})[0], "GPU 1 (GPU-"));
}

TEST_CASE("work on another GPU than the heap's is refused with both named") {
  const FakeCuda::Use driver;
  const cuda::Driver& table = FakeCuda::the().table();
  std::shared_ptr<Gpu> gpu, other;
  REQUIRE(Gpu::open({0, 0}, &gpu).is_ok());
  REQUIRE(Gpu::open({1, 0}, &other).is_ok());
  CUstream ours = nullptr, theirs = nullptr;
  {
    const ContextScope scope(*gpu);
    REQUIRE(table.StreamCreate(&ours, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  }
  {
    const ContextScope scope(*other);
    REQUIRE(table.StreamCreate(&theirs, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  }
  CHECK(check_current(*gpu).is_ok());  // no context: the heap's is meant
  CHECK(check_stream(*gpu, ours).is_ok());
  const Status refused = check_stream(*gpu, theirs);
  CHECK(refused.code() == Code::kInvalidValue);
  CHECK(has(refused.text(), "is GPU 1"));
  CHECK(has(refused.text(), "on GPU 0 (Fake H200)"));
  CHECK(has(refused.text(), "cudaSetDevice(0)"));
  {
    const ContextScope scope(*other);
    for (const CUstream stream : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
      CHECK(has(check_stream(*gpu, stream).text(), "the current device of this thread is GPU 1"));
      CHECK(check_stream(*other, stream).is_ok());
    }
    CHECK(check_stream(*gpu, ours).is_ok());  // its own context counts
  }
  {
    const ContextScope scope(*gpu);
    CHECK(check_current(*gpu).is_ok());
    CHECK(!check_stream(*gpu, theirs).is_ok());
  }
  FakeCuda::the().traits.failures["StreamGetCtx"] = CUDA_ERROR_INVALID_HANDLE;
  CHECK(check_stream(*gpu, theirs).is_ok());  // the call that uses it says so
  FakeCuda::the().traits.failures.clear();
  for (const CUstream stream : {ours, theirs}) CHECK(table.StreamDestroy(stream) == CUDA_SUCCESS);
  gpu.reset();
  other.reset();
  CHECK(FakeCuda::the().leaks() == "");
}
