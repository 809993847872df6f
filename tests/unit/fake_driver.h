// A CUDA driver in host memory, for tests of what lies above the driver on machines without a GPU: virtual memory
// management and CUDA IPC on memfd, streams that are threads, the library's kernels as host functions. Strict where the
// real one is:
// a current context, granularity, access rights before use, sizes of whole mappings.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/state.h"
#include "runtime/cuda_driver.h"
#include "runtime/kernel_tasks.h"

namespace heddle::test {

class FakeCuda {
 public:
  static constexpr uint64_t kGranularity = uint64_t{2} << 20;

  /// What tests change: reset() brings these back.
  struct Traits {
    int devices = 2;
    bool peer_access = true;
    bool native_atomics = true;
    bool vmm = true;
    std::set<CUdevice> without_vmm;  // these have none in any case
    bool fabric_attribute = false;   // fabric handles are offered; "MemCreate of fabric" and the like name failures
    bool ipc_in_one_process = true;  // unlike the real one: PEs are threads here
    bool stream_writes = true;
    bool batches = true;  // of copies
    int max_pitch = INT32_MAX;
    bool knows_mps = true;  // the attribute that tells of MPS
    bool mps = false;
    std::string name = "Fake H200";
    uint64_t free_bytes = uint64_t{1} << 30;
    std::map<std::string, CUresult> failures;  // by function, without "cu"; "Function on GPU 1" fails there alone
  };
  Traits traits;
  /// Imports find no memory; unlike traits, for changes while threads of worlds run.
  std::atomic<bool> imports_fail{false};

  static FakeCuda& the() {
    static FakeCuda* one = new FakeCuda;
    return *one;
  }

  /// Makes the library use this driver, with default traits, while it lives; all must be given back at the end.
  struct Use {
    Use() {
      the().traits = Traits();
      the().copies_left = -1;
      the().imports_fail = false;
      cuda::set_driver_for_tests(&the().table());
    }
    ~Use() { cuda::set_driver_for_tests(nullptr); }
  };

  const cuda::Driver& table() const { return driver_; }

  /// Everything that was made and not given back.
  std::string leaks() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::string text;
    auto add = [&](const char* what, size_t count) {
      if (count != 0) text += std::string(what) + " " + std::to_string(count) + "; ";
    };
    add("allocations", handles_.size());
    add("mappings", mappings_.size());
    add("reservations", reservations_.size());
    add("streams", streams_.size());
    add("pinned ranges", pinned_.size());
    add("device ranges", plain_.size());
    add("opened ranges", opened_.size());
    add("ranges freed while a peer had them open", freed_early_);
    add("libraries", libraries_);
    add("contexts", static_cast<size_t>(contexts_[0].retained + contexts_[1].retained));
    return text;
  }
  /// Writes of streams, and how many were refused.
  std::atomic<int> writes{0}, refused_writes{0};

  /// What a stream has captured: work that may be launched any number of times.
  using Graph = std::vector<std::function<void()>>;
  /// A captured stream does nothing of its work. Calls that cannot be captured fail, and invalidate the capture; so do
  /// calls of the same thread that could hang or allocate, whatever their stream, unless the thread's mode is relaxed.
  void begin_capture(CUstream stream) {
    Stream& s = of(stream);
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.captured = true;
    s.invalidated = false;
    s.graph.clear();
    own_capture() = &s;
  }
  /// False when the capture was invalidated.
  bool end_capture(CUstream stream, Graph* graph) {
    Stream& s = of(stream);
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.captured = false;
    own_capture() = nullptr;
    *graph = std::exchange(s.graph, {});
    return !s.invalidated;
  }
  static void launch(CUstream stream, const Graph& graph) {
    for (const auto& work : graph) of(stream).push(work);
  }

  /// Copies that came in batches, and that came alone.
  std::atomic<int> batched{0}, copied{0};
  /// So many lone copies more will succeed, then they fail as in a context that a kernel has broken; below 0: all will.
  std::atomic<int> copies_left{-1};

  int launches(const std::string& kernel) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return launches_[kernel];
  }

 private:
  /// Of VMM. Every copy has a descriptor of its own.
  struct Allocation {
    int fd = -1;
    CUmemAllocationProp properties{};
  };
  struct Context {
    int ordinal = 0;
    int retained = 0;
  };
  struct Stream {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    bool busy = false, stop = false;
    bool captured = false, invalidated = false;
    Graph graph;
    Context* context = nullptr;
    std::thread thread;

    Stream() {
      thread = std::thread([this] {
        std::unique_lock<std::mutex> lock(mutex);
        while (true) {
          changed.wait(lock, [this] { return stop || !queue.empty(); });
          if (queue.empty()) return;
          const auto work = std::move(queue.front());
          queue.pop_front();
          busy = true;
          lock.unlock();
          std::this_thread::sleep_for(std::chrono::microseconds(20));  // what is asynchronous shows
          work();
          lock.lock();
          busy = false;
          changed.notify_all();
        }
      });
    }
    ~Stream() {
      {
        const std::lock_guard<std::mutex> lock(mutex);
        stop = true;
      }
      changed.notify_all();
      thread.join();
    }
    void push(std::function<void()> work) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (captured) return graph.push_back(std::move(work));
      queue.push_back(std::move(work));
      changed.notify_all();
    }
    bool is_captured() {
      const std::lock_guard<std::mutex> lock(mutex);
      return captured;
    }
    /// Whether the stream is captured, which a call that cannot be captured ends.
    bool spoils_capture() {
      const std::lock_guard<std::mutex> lock(mutex);
      if (captured) invalidated = true;
      return captured;
    }
    void drain() {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [this] { return queue.empty() && !busy; });
    }
  };
  struct Library {
    device::DeviceState state{};
  };
  struct Kernel {
    std::string name;
    Library* image;
  };
  struct Event {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t recorded = 0, reached = 0;
  };

  FakeCuda();
  void add_memory();  // fake_driver_memory.cc

  /// The stream that this thread captures, and its mode.
  static Stream*& own_capture() {
    thread_local Stream* stream = nullptr;
    return stream;
  }
  static CUstreamCaptureMode& capture_mode() {
    thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return mode;
  }
  static bool spoils_own_capture() {
    return own_capture() != nullptr && capture_mode() != CU_STREAM_CAPTURE_MODE_RELAXED &&
           own_capture()->spoils_capture();
  }
  static std::vector<Context*>& stack() {
    thread_local std::vector<Context*> contexts;
    return contexts;
  }
  /// The same for a write of a stream.
  CUresult check_write(unsigned flags) {
    // The interface of drivers since 11.7 knows no flag that leaves out the fence.
    if (traits.stream_writes && flags == CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_SUCCESS;
    ++refused_writes;
    return traits.stream_writes ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  }
  /// CUDA_SUCCESS, or why a call that works in a context cannot.
  CUresult check(const char* name) {
    const auto failure = traits.failures.find(name);
    if (failure != traits.failures.end()) return failure->second;
    if (stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    const auto there = traits.failures.find(std::string(name) + " on GPU " + std::to_string(stack().back()->ordinal));
    return there != traits.failures.end() ? there->second : CUDA_SUCCESS;
  }
  CUresult check_free(const char* name) const {
    const auto failure = traits.failures.find(name);
    return failure != traits.failures.end() ? failure->second : CUDA_SUCCESS;
  }
  static bool inside(const std::map<uintptr_t, uint64_t>& ranges, uintptr_t at) {
    auto after = ranges.upper_bound(at);
    return after != ranges.begin() && at - std::prev(after)->first < std::prev(after)->second;
  }
  /// 2 device, 1 pinned, 0 pageable.
  int kind_of(uintptr_t at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (inside(mappings_, at) || inside(plain_, at) || inside(opened_, at)) return 2;
    return inside(pinned_, at) ? 1 : 0;
  }
  /// Start and bytes of the mapping that `at` lies in; zeroes without one.
  std::pair<uintptr_t, uint64_t> mapping_at(uintptr_t at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!inside(mappings_, at)) return {0, 0};
    return *std::prev(mappings_.upper_bound(at));
  }
  int ordinal_of(uintptr_t at) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto after = ordinals_.upper_bound(at);
    return inside(plain_, at) ? std::prev(after)->second : 0;
  }
  /// A handle for the same memory, or 0 without descriptors.
  CUmemGenericAllocationHandle add_handle(int fd, const CUmemAllocationProp& properties) {
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return 0;
    handles_[next_handle_] = {own, properties};
    return next_handle_++;
  }
  CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
  CUresult copy_2d(const CUDA_MEMCPY2D& shape, CUstream stream);
  CUresult launch(Kernel& kernel, CUstream stream, void** parameters);
  static void run(const std::string& name, const std::vector<char>& task, const device::DeviceState& state);
  static Stream& of(CUstream stream) { return *reinterpret_cast<Stream*>(stream); }

  cuda::Driver driver_;
  std::mutex mutex_;  // guards what follows
  Context contexts_[2] = {{0, 0}, {1, 0}};
  std::map<CUmemGenericAllocationHandle, Allocation> handles_;
  std::map<uintptr_t, Allocation> mapped_;  // by the start of a mapping, which keeps memory alive by itself
  std::map<uintptr_t, int> ordinals_;       // of plain_
  std::map<uintptr_t, uint64_t> mappings_, reservations_, pinned_, plain_, opened_;
  std::map<uintptr_t, int> shared_;        // of plain_, those that can be opened elsewhere -> descriptor
  std::map<uintptr_t, uintptr_t> owners_;  // of opened_ -> address in plain_
  size_t freed_early_ = 0;
  std::set<CUstream> streams_;
  size_t libraries_ = 0;
  std::map<std::string, int> launches_;
  CUmemGenericAllocationHandle next_handle_ = 1;
};

}  // namespace heddle::test
