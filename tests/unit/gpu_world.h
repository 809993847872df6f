// Worlds on device heaps with threads as PEs, on the driver in host memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/gpu.h"
#include "runtime/host_rma.h"
#include "tests/catch.h"
#include "tests/unit/fake_driver.h"
#include "tests/unit/thread_world.h"

namespace heddle::test {

inline Settings gpu_settings(std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"HEDDLE_FABRIC=peer", "NVSHMEM_CUMEM_GRANULARITY=2M"});
  Settings settings = test_settings();
  std::vector<std::string> list = {"NVSHMEM_SYMMETRIC_SIZE=16M", "HEDDLE_TIMEOUT=60", "HEDDLE_WAIT_TIMEOUT=60"};
  list.insert(list.end(), more.begin(), more.end());
  std::vector<std::string> warnings;
  if (!Settings::from_list(list, &settings, &warnings).is_ok()) std::abort();
  return settings;
}

inline void require_all_ok(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) {
    INFO(status.text());
    REQUIRE(status.is_ok());
  }
}

inline Status expect(bool condition, const char* what) {
  return condition ? Status::ok() : error(Code::kInternal, "expectation failed: %s", what);
}

template <class T>
Status make_block(World& world, size_t count, T** block, bool zeroed = true) {
  void* memory = nullptr;
  HEDDLE_RETURN_IF_ERROR(world.allocate("test", count * sizeof(T), 256, zeroed, Status::ok(), &memory));
  *block = static_cast<T*>(memory);
  return Status::ok();
}

template <class T>
T own(World& world, const T* address) {
  return host::g(world, "g", address, world.my_pe());
}

/// Runs `body` on device heaps, and finds everything given back.
inline void run_on_gpus(int n_pes, const std::function<Status(World&)>& body,
                        const Settings& settings = gpu_settings()) {
  require_all_ok(run_world(n_pes, settings, body));
  CHECK(FakeCuda::the().leaks() == "");
}

/// A stream of the program's, on the world's GPU.
class TestStream {
 public:
  explicit TestStream(World& world) : scope_(*world.fabric().gpu()) {
    if (FakeCuda::the().table().StreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) std::abort();
  }
  ~TestStream() { (void)FakeCuda::the().table().StreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  CUstream get() const { return stream_; }
  void wait() const {
    if (FakeCuda::the().table().StreamSynchronize(stream_) != CUDA_SUCCESS) std::abort();
  }

 private:
  const ContextScope scope_;
  CUstream stream_ = nullptr;
};

/// The same on every kind of memory.
inline void run_on_all_memory(int n_pes, const std::function<Status(World&)>& body) {
  FakeCuda::the().traits.fabric_attribute = true;
  for (const char* kind :
       {"NVSHMEM_DISABLE_CUDA_VMM=0", "NVSHMEM_CUMEM_HANDLE_TYPE=FABRIC", "NVSHMEM_DISABLE_CUDA_VMM=1"}) {
    INFO(kind);
    run_on_gpus(n_pes, body, gpu_settings({kind}));
  }
}

}  // namespace heddle::test
