// Which GPU, which fabric, and the words when it cannot be: decided by pure functions, or on the driver in host memory.
#include "catch.h"
#include "runtime/device_side.h"
#include "runtime/gpu.h"
#include "unit/fake_driver.h"

using namespace heddle;        // NOLINT
using namespace heddle::test;  // NOLINT

namespace {

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

int chosen(int asked, int current, int local_rank, int visible) {
  GpuChoice choice;
  const Status status = choose_gpu(asked, current, local_rank, visible, &choice);
  INFO(status.text());
  CHECK(status.is_ok());
  CHECK(!choice.reason.empty());
  return choice.ordinal;
}

Settings settings_of(const std::vector<std::string>& list) {
  Settings settings;
  std::vector<std::string> warnings;
  REQUIRE(Settings::from_list(list, &settings, &warnings).is_ok());
  return settings;
}

PeerIdentity on_gpu(unsigned char gpu) {
  PeerIdentity identity{};
  identity.gpu_capability = gpu == 0 ? 0 : 90;
  identity.gpu_uuid[0] = gpu;
  return identity;
}

}  // namespace

TEST_CASE("the GPU is the one asked for, else the current one, else dealt out by local rank") {
  CHECK(chosen(1, 0, 3, 4) == 1);
  CHECK(chosen(-1, 2, 3, 4) == 2);
  CHECK(chosen(-1, -1, 3, 4) == 3);
  CHECK(chosen(-1, -1, 5, 4) == 1);
  CHECK(chosen(0, -1, 5, 1) == 0);
  GpuChoice choice;
  const Status refused = choose_gpu(4, -1, 0, 4, &choice);
  CHECK(refused.code() == Code::kInvalidValue);
  CHECK(has(refused.text(), "cuda_device_id 4"));
  CHECK(has(refused.text(), "GPUs 0 to 3"));
  CHECK(choose_gpu(-1, -1, 0, 0, &choice).code() == Code::kNotSupported);
}

TEST_CASE("all PEs use one fabric, or every PE names the same two that differ") {
  const std::vector<PeerIdentity> both = {on_gpu(1), on_gpu(2)};
  CHECK(judge_choices({"peer", "peer"}, both).is_ok());
  CHECK(judge_choices({"host"}, {on_gpu(0)}).is_ok());
  const Status second = judge_choices({"peer", "host"}, {on_gpu(1), on_gpu(0)});
  CHECK(second.code() == Code::kNotSupported);
  CHECK(has(second.text(), "PE 1 uses no GPU"));
  CHECK(has(second.text(), "PE 0 uses one"));
  CHECK(has(second.text(), "HEDDLE_FABRIC=host"));
  const Status first = judge_choices({"host", "host", "peer"}, {on_gpu(0), on_gpu(0), on_gpu(1)});
  CHECK(has(first.text(), "PE 0 uses no GPU"));
  CHECK(has(first.text(), "PE 2 uses one"));
  CHECK(has(judge_choices({"peer", "peer+fault"}, both).text(), "HEDDLE_FAULT"));
}

TEST_CASE("GPUs are known by their UUID") {
  unsigned char uuid[16];
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(i);
  CHECK(uuid_text(uuid, false) == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
  CHECK(uuid_text(uuid, true) == "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f");

  const FakeCuda::Use driver;
  std::shared_ptr<Gpu> gpu, other;
  REQUIRE(Gpu::open({0, 0}, &gpu).is_ok());
  REQUIRE(Gpu::open({1, 0}, &other).is_ok());
  PeerIdentity mine{}, its{}, nobody{};
  gpu->describe(&mine);
  other->describe(&its);
  CHECK(mine.gpu_capability == 90);
  CHECK(gpu->reach(mine).reached);
  CHECK(gpu->reach(its).reached);
  CHECK(has(gpu->reach(nobody).reason, "no GPU"));
  PeerIdentity hidden = its;
  hidden.gpu_uuid[5] ^= 1;
  CHECK(!gpu->reach(hidden).reached);
  CHECK(has(gpu->reach(hidden).reason, "is not visible to this process"));
  CHECK(has(gpu->reach(hidden).reason, "CUDA_VISIBLE_DEVICES"));
  CHECK(gpu->has_native_atomics(its));
  FakeCuda::the().traits.native_atomics = false;
  CHECK(gpu->has_native_atomics(mine));
  CHECK(!gpu->has_native_atomics(its));
}

TEST_CASE("the current context names the GPU, and only for the library's own calls is ours current") {
  const FakeCuda::Use driver;
  const cuda::Driver& table = FakeCuda::the().table();
  CUcontext second = nullptr, current = nullptr;
  REQUIRE(table.DevicePrimaryCtxRetain(&second, 1) == CUDA_SUCCESS);
  REQUIRE(table.CtxPushCurrent(second) == CUDA_SUCCESS);
  {
    std::shared_ptr<Gpu> gpu, first;
    REQUIRE(Gpu::open({-1, 0}, &gpu).is_ok());
    CHECK(gpu->device() == 1);
    REQUIRE(Gpu::open({0, 0}, &first).is_ok());
    {
      const ContextScope scope(*first);
      (void)table.CtxGetCurrent(&current);
      CHECK(current == first->context());
    }
    (void)table.CtxGetCurrent(&current);
    CHECK(current == second);
  }
  (void)table.CtxPopCurrent(&current);
  (void)table.DevicePrimaryCtxRelease(1);
  CHECK(FakeCuda::the().leaks() == "");
}

TEST_CASE("a machine without a driver has no peer fabric and says why; a GPU without VMM has another one") {
  const cuda::Driver* none = nullptr;
  const Status status = cuda::get_driver(&none);
  if (!status.is_ok()) {  // as on most machines that run this test
    CHECK(status.code() == Code::kNotSupported);
    CHECK(none == nullptr);
    CHECK(has(status.text(), "NVIDIA driver"));
    CHECK(cuda::get_driver(&none).text() == status.text());
    CHECK(peer_choice(settings_of({})).reason == status.text());
    std::unique_ptr<Fabric> fabric;
    Settings settings = settings_of({"HEDDLE_FABRIC=peer"});
    const Status refused = make_fabric(settings, nullptr, &fabric);
    CHECK(refused.code() == Code::kNotSupported);
    CHECK(has(refused.text(), status.text()));
    settings = settings_of({});
    REQUIRE(make_fabric(settings, nullptr, &fabric).is_ok());
    CHECK(std::string(fabric->name()) == "host");
  }
  const FakeCuda::Use driver;
  CHECK(has(peer_choice(settings_of({})).reason, "with CUDA virtual memory management"));
  const FabricChoice classic = peer_choice(settings_of({"NVSHMEM_DISABLE_CUDA_VMM=1"}));
  CHECK(classic.usable);
  CHECK(has(classic.reason, "by cudaMalloc (NVSHMEM_DISABLE_CUDA_VMM is set)"));
  FakeCuda::the().traits.vmm = false;
  CHECK(peer_choice(settings_of({})).usable);
  CHECK(has(peer_choice(settings_of({})).reason, "by cudaMalloc: GPU 0 has no virtual memory management (CUDA VMM)"));
}

TEST_CASE("automatic choice takes GPUs where there are some, and the settings can forbid it") {
  const FakeCuda::Use driver;
  std::unique_ptr<Fabric> fabric;
  const auto name = [&](std::vector<std::string> more) {
    more.push_back("NVSHMEM_CUMEM_GRANULARITY=2M");
    const Status status = make_fabric(settings_of(more), nullptr, &fabric);
    INFO(status.text());
    REQUIRE(status.is_ok());
    return std::string(fabric->name());
  };
  CHECK(name({}) == "peer");
  CHECK(fabric->capabilities().device_memory);
  CHECK(fabric->capabilities().granularity == FakeCuda::kGranularity);
  CHECK(name({"HEDDLE_FABRIC=host"}) == "host");
  CHECK(!fabric->capabilities().whole_endpoints);
  CHECK(name({"NVSHMEM_DISABLE_CUDA_VMM=1"}) == "peer");
  CHECK(fabric->capabilities().whole_endpoints);
  CHECK(name({"HEDDLE_FABRIC=peer", "HEDDLE_FAULT=fail=1000"}) == "peer+fault");
  CHECK(fabric->gpu() != nullptr);
}

TEST_CASE("NVSHMEM_DISABLE_P2P keeps other processes' GPUs out, with the reason") {
  const FakeCuda::Use driver;
  std::unique_ptr<Fabric> fabric;
  REQUIRE(make_fabric(settings_of({"NVSHMEM_DISABLE_P2P=1"}), nullptr, &fabric).is_ok());
  PeerIdentity self{}, peer{};
  fabric->describe(&self);
  fabric->describe(&peer);
  self.pid = 1;
  peer.pid = 2;
  CHECK(fabric->reach(self, self).reached);
  CHECK(!fabric->reach(self, peer).reached);
  CHECK(has(fabric->reach(self, peer).reason, "NVSHMEM_DISABLE_P2P"));
}

TEST_CASE("what kernels record becomes a sentence") {
  device::DeviceErrorRecord record{};
  std::strcpy(record.call, "nvshmem_barrier_all");
  record.pe = 3;
  record.address = 0xabc0;
  record.block[0] = 7;
  record.grid = 12;
  record.blocks[0] = 8;
  record.threads[0] = 32;
  for (int i = 1; i < 3; ++i) record.blocks[i] = record.threads[i] = 1;
  record.error = static_cast<uint32_t>(device::DeviceError::kPeerLost);
  CHECK(device_failure(record).code() == Code::kPeerLost);
  CHECK(has(device_failure(record).text(), "nvshmem_barrier_all (block 7,0,0, thread 0,0,0 of grid 12, "));
  CHECK(has(device_failure(record).text(), "8x1x1 blocks of 32x1x1 threads): PE 3 was lost"));
  record.error = static_cast<uint32_t>(device::DeviceError::kTimeout);
  CHECK(has(device_failure(record).text(), "HEDDLE_WAIT_TIMEOUT"));
  CHECK(has(device_failure(record).text(), "for PE 3"));
  record.error = static_cast<uint32_t>(device::DeviceError::kBadPe);
  CHECK(device_failure(record).code() == Code::kInvalidValue);
  record.error = 77;
  CHECK(has(device_failure(record).text(), "failure 77"));
}
