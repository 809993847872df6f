#include "runtime/device_side.h"

#include <cinttypes>
#include <cstring>

#include "runtime/log.h"

#ifdef HEDDLE_HAVE_CUDA
#include <strings.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>
#include <utility>

#include "device/access.h"
#include "device/internal_area.h"
#include "device/teams.h"
#include "runtime/device_state.h"
#include "runtime/gpu.h"
#include "runtime/kernels.h"
#endif

namespace heddle {

Status device_failure(const device::DeviceErrorRecord& record) {
  using device::DeviceError;
  const auto dimensions = [](const uint32_t(&of)[3]) { return format("%ux%ux%u", of[0], of[1], of[2]); };
  const std::string where =
      format("a kernel's %.*s (block %u,%u,%u, thread %u,%u,%u of grid %" PRIu64 ", %s blocks of %s threads)",
             static_cast<int>(strnlen(record.call, sizeof record.call)), record.call, record.block[0], record.block[1],
             record.block[2], record.thread[0], record.thread[1], record.thread[2], record.grid,
             dimensions(record.blocks).c_str(), dimensions(record.threads).c_str());
  const char* const call = where.c_str();
  switch (static_cast<DeviceError>(record.error)) {
    case DeviceError::kPeerLost:
      return error(Code::kPeerLost, "%s: PE %d was lost while it waited on address 0x%" PRIx64, call, record.pe,
                   record.address);
    case DeviceError::kTimeout:
      return error(Code::kTimeout, "%s: waited longer than HEDDLE_WAIT_TIMEOUT on address 0x%" PRIx64 "%s", call,
                   record.address, record.pe < 0 ? "" : format(" for PE %d", record.pe).c_str());
    case DeviceError::kBadPe:
      return error(Code::kInvalidValue, "%s: PE %d is out of range; the PEs are 0 to %" PRId64, call, record.pe,
                   static_cast<int64_t>(record.bytes) - 1);
    case DeviceError::kBadAddress:
      return error(Code::kInvalidValue,
                   "%s: [0x%" PRIx64 ", +%" PRIu64
                   " bytes) is not in the symmetric heap; pass an address of nvshmem_malloc of this PE",
                   call, record.address, record.bytes);
    case DeviceError::kBadAlignment:
      return error(Code::kInvalidValue, "%s: address 0x%" PRIx64 " is not aligned to %" PRIu64 " bytes", call,
                   record.address, record.bytes);
    case DeviceError::kNotInitialized:
      return error(Code::kNotInitialized,
                   "%s: called outside init and finalize, or on another GPU than the symmetric heap's (see "
                   "NVSHMEM_DEBUG=INFO, and call cudaSetDevice before launching)",
                   call);
    case DeviceError::kBadCompare:
      return error(Code::kInvalidValue, "%s: comparison %d is none of NVSHMEM_CMP_EQ (0) to NVSHMEM_CMP_GE (5)", call,
                   static_cast<int>(record.bytes));
    case DeviceError::kBadSignalOp:
      return error(Code::kInvalidValue,
                   "%s: signal operation %d is neither NVSHMEM_SIGNAL_SET (9) nor NVSHMEM_SIGNAL_ADD (10)", call,
                   static_cast<int>(record.bytes));
    case DeviceError::kBadStride:
      return error(Code::kInvalidValue, "%s: a stride is %" PRId64 "; strides are at least 1", call,
                   static_cast<int64_t>(record.bytes));
    case DeviceError::kOverlap:
      return error(Code::kInvalidValue,
                   "%s: the counter at 0x%" PRIx64 " lies within the %" PRIu64 " bytes of the destination", call,
                   record.address, record.bytes);
    case DeviceError::kNullBuffer:
      return error(Code::kInvalidValue, "%s: a buffer is NULL, but %" PRIu64 " bytes of it are asked for", call,
                   record.bytes);
    case DeviceError::kBadBlock:
      return error(Code::kInvalidValue,
                   "%s: warp groups need blocks of a multiple of 128 threads; this block has %" PRIu64, call,
                   record.bytes);
    case DeviceError::kGridFailed:
      return error(Code::kInternal,
                   "%s: a thread of this grid has failed before, so that it cannot go on; launches of a graph may have "
                   "the same number, until heddle_clear_error()",
                   call);
    case DeviceError::kBadArgument:
      return error(Code::kInvalidValue, "%s: an argument is not allowed (address 0x%" PRIx64 ", %" PRIu64 ")", call,
                   record.address, record.bytes);
    case DeviceError::kNone:
      break;
  }
  return error(Code::kInternal, "%s: failure %u, PE %d, address 0x%" PRIx64 ", %" PRIu64 " bytes", call, record.error,
               record.pe, record.address, record.bytes);
}

#ifdef HEDDLE_HAVE_CUDA
namespace {

constexpr auto kWatchInterval = std::chrono::milliseconds(20);
constexpr uint32_t kBlockSlots = 4096;  // as many blocks as NVSHMEM registers by default

/// Pinned memory, so that kernels load and store it.
struct SharedWords {
  alignas(64) uint32_t poison;
  alignas(64) device::DeviceErrorRecord errors;
};

class GpuSide final : public DeviceSide {
 public:
  GpuSide(Fabric& fabric, std::function<void(int)> on_exit)
      : gpu_(*fabric.gpu()), kernels_(*fabric.kernels()), driver_(gpu_.driver()), on_exit_(std::move(on_exit)) {}

  ~GpuSide() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (watch_.joinable()) watch_.join();
    if (published_) withdraw_state();
    const ContextScope scope(gpu_);
    const RelaxedCapture relaxed(gpu_);
    // Failures are dropped: this is teardown.
    if (stream_ != nullptr) (void)driver_.StreamDestroy(stream_);
    if (slots_ != 0) (void)driver_.MemFree(slots_);
    if (teams_ != 0) (void)driver_.MemFree(teams_);
    if (words_ != nullptr) (void)driver_.MemFreeHost(words_);
  }

  Status open(const Settings& settings) {
    const ContextScope scope(gpu_);
    const RelaxedCapture relaxed(gpu_);
    void* words = nullptr;
    CUresult result =
        driver_.MemHostAlloc(&words, sizeof(SharedWords), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (result != CUDA_SUCCESS) {
      return cuda_error(driver_, result, "cuMemHostAlloc", "%zu bytes for what kernels and host share",
                        sizeof(SharedWords));
    }
    words_ = static_cast<SharedWords*>(words);
    std::memset(static_cast<void*>(words_), 0, sizeof *words_);
    CUdeviceptr mapped = 0;
    result = driver_.MemHostGetDevicePointer(&mapped, words, 0);
    if (result != CUDA_SUCCESS) return cuda_error(driver_, result, "cuMemHostGetDevicePointer", "%p", words);
    result = driver_.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS) return cuda_error(driver_, result, "cuStreamCreate", "%s", gpu_.name().c_str());
    constexpr size_t kSlotBytes = kBlockSlots * sizeof(device::BlockSlot);
    constexpr size_t kBytes = kSlotBytes + device::kPredefinedTeams * device::kLine;
    result = driver_.MemAlloc(&slots_, kBytes);
    if (result == CUDA_SUCCESS) result = driver_.MemsetD8Async(slots_, 0, kBytes, stream_);
    if (result == CUDA_SUCCESS) result = driver_.StreamSynchronize(stream_);
    if (result != CUDA_SUCCESS) {
      return cuda_error(driver_, result, "cuMemAlloc", "%zu bytes for slots of blocks", kBytes);
    }
    state_.poison = reinterpret_cast<const uint32_t*>(mapped + offsetof(SharedWords, poison));
    state_.errors = reinterpret_cast<device::DeviceErrorRecord*>(mapped + offsetof(SharedWords, errors));
    state_.wait_timeout_ns = static_cast<uint64_t>(settings.wait_timeout * 1e9);
    const char* const policy = settings.tma_policy.c_str();
    state_.tma_policy = strcasecmp(policy, "FORCE") == 0 ? 2 : strcasecmp(policy, "ENABLE") == 0 ? 1 : 0;
    state_.block_slots = reinterpret_cast<device::BlockSlot*>(slots_);
    state_.slot_count = kBlockSlots;
    state_.meetings = reinterpret_cast<uint64_t*>(slots_ + kSlotBytes);
    // The program's signals are its own threads' business.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    watch_ = std::thread([this] { watch(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return Status::ok();
  }

  Status publish(const device::HeapView& view, const Place& place) override {
    state_.view = view;
    state_.node_my_pe = place.node_my_pe;
    state_.node_n_pes = place.node_n_pes;
    HEDDLE_RETURN_IF_ERROR(kernels_.set_state(stream_, state_));
    HEDDLE_RETURN_IF_ERROR(publish_state(gpu_, state_, this));
    published_ = true;
    return Status::ok();
  }

  void renew() override {
    if (published_) renew_state();
  }

  void poison(uint32_t word) override {
    device::store_release(&words_->poison, word);
  }  // kernels acquire nothing by it

  void warn_of(const std::vector<PeerIdentity>& identities, const GpuSharing& sharing, int my_pe) const override {
    const std::vector<int> sharers = sharing.sharers_of(my_pe);
    for (size_t pe = 0; pe < identities.size(); ++pe) {
      const bool shares = std::find(sharers.begin(), sharers.end(), static_cast<int>(pe)) != sharers.end();
      if (shares || gpu_.has_native_atomics(identities[pe])) continue;
      log(LogLevel::kWarn, "atomics on PE %zu's memory are not atomic against its own: %s has no native atomics there",
          pe, gpu_.name().c_str());
    }
    if (sharers.size() == 1 || sharers[0] != my_pe) return;
    const bool has_mps = sharing.has_mps(my_pe);
    log(has_mps ? LogLevel::kInfo : LogLevel::kWarn, "%s",
        sharing_text(sharers, has_mps, gpu_.name(), gpu_.unused_by(identities)).c_str());
  }

  Status learn_teams(const GpuSharing& sharing, int my_pe) override {
    if (sharing.mode() == SharingMode::kNone) return Status::ok();  // kernels know what follows
    std::vector<int32_t> pes;
    for (const int pe : sharing.sharers_of(my_pe)) pes.push_back(pe);
    state_.same_gpu_n_pes = static_cast<uint32_t>(pes.size());
    const std::vector<int> leaders = sharing.leaders();
    if (sharing.leader_of(my_pe) == my_pe) {
      pes.insert(pes.end(), leaders.begin(), leaders.end());
      state_.gpu_leaders_n_pes = static_cast<uint32_t>(leaders.size());
    }
    const ContextScope scope(gpu_);
    const RelaxedCapture relaxed(gpu_);
    const size_t bytes = pes.size() * sizeof pes[0];
    const CUresult result = driver_.MemAlloc(&teams_, bytes);
    if (result != CUDA_SUCCESS) return cuda_error(driver_, result, "cuMemAlloc", "%zu bytes for teams of GPUs", bytes);
    state_.gpu_teams = reinterpret_cast<const int32_t*>(teams_);
    return copy_to_device(gpu_, stream_, teams_, pes.data(), bytes, "the teams of GPUs");
  }

  void look() override {
    device::DeviceErrorRecord& shared = words_->errors;
    device::DeviceErrorRecord record{};
    bool is_new = false, is_first = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (device::load_acquire(&shared.complete) != 0) {  // acquire: the rest of the failure is there
        std::memcpy(static_cast<void*>(&record), static_cast<const void*>(&shared),
                    offsetof(device::DeviceErrorRecord, exit));
        device::store_relaxed(&shared.complete, 0u);
        device::store_release(&shared.claimed, 0u);  // after the line above: the next claimer finds an empty record
        // A grid that has failed ends in many places; the first cause stays the last error.
        const bool is_later = record.error == static_cast<uint32_t>(device::DeviceError::kGridFailed);
        is_first = !is_later || !told_;
        is_new = is_first || told_grid_ != record.grid + 1;
        if (is_later) told_grid_ = record.grid + 1;
        told_ = true;
      }
    }
    if (is_first) {
      (void)report("kernel", device_failure(record));
    } else if (is_new) {
      log(LogLevel::kError, "kernel: %s", device_failure(record).text().c_str());
    }
    // relaxed: the status is in the word
    const uint64_t exit = device::atomic_exchange(&shared.exit, uint64_t{0});
    if (exit != 0) on_exit_(static_cast<int>(static_cast<uint32_t>(exit)));
  }

  void forget() override {
    look();
    const std::lock_guard<std::mutex> lock(mutex_);
    device::forget_grids(words_->errors.failed_grids);
    told_ = false;
    told_grid_ = 0;
  }

 private:
  void watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop_) {
      changed_.wait_for(lock, kWatchInterval);
      lock.unlock();
      look();
      lock.lock();
    }
  }

  Gpu& gpu_;
  Kernels& kernels_;
  const cuda::Driver& driver_;
  const std::function<void(int)> on_exit_;
  SharedWords* words_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr slots_ = 0;  // of blocks, and the words of meetings
  CUdeviceptr teams_ = 0;  // members of the teams of GPUs, when any is shared
  device::DeviceState state_{};
  bool published_ = false;

  std::mutex mutex_;        // guards the record's reading and what follows
  bool told_ = false;       // of a failure, since forget()
  uint64_t told_grid_ = 0;  // of whose later ends the log has told, plus 1
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread watch_;
};

}  // namespace

Status DeviceSide::make(Fabric& fabric, const Settings& settings, std::function<void(int)> on_exit,
                        std::unique_ptr<DeviceSide>* side) {
  auto fresh = std::make_unique<GpuSide>(fabric, std::move(on_exit));
  HEDDLE_RETURN_IF_ERROR(fresh->open(settings));
  *side = std::move(fresh);
  return Status::ok();
}

#else

Status DeviceSide::make(Fabric&, const Settings&, std::function<void(int)>, std::unique_ptr<DeviceSide>*) {
  return error(Code::kNotSupported, "this library was built without a CUDA toolkit");
}

#endif

}  // namespace heddle
