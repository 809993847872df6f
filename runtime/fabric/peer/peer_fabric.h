// The peer fabric: endpoints in the memory of GPUs of one host that can map each other's. Data operations of the host
// API (peer_data.cc) go by one stream of the library's own, in order: copies by the copy engines, atomics by kernels.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/fabric/mapped/mapped_fabric.h"
#include "runtime/gpu.h"
#include "runtime/kernels.h"

namespace heddle::peer {

class PeerFabric final : public mapped::MappedFabric {
 public:
  static Status make(const Settings& settings, const FabricRequest& request, std::unique_ptr<Courier> courier,
                     std::unique_ptr<Fabric>* fabric);
  ~PeerFabric() override;

  FabricCapabilities capabilities() const override;
  Gpu* gpu() const override { return gpu_.get(); }
  Kernels* kernels() const override { return kernels_.get(); }
  std::vector<std::string> remarks() const override;
  void describe(PeerIdentity* self) const override;
  Reach reach(const PeerIdentity& self, const PeerIdentity& peer) const override;
  Status reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) override;
  Status allocate(uint64_t bytes, MemoryId* memory) override;

  Status put(EndpointId id, uint64_t offset, const void* source, size_t bytes) override;
  Status put_nbi(EndpointId id, uint64_t offset, const void* source, size_t bytes) override;
  Status put_word(EndpointId id, uint64_t offset, uint64_t word, size_t bytes) override;
  Status get_word(EndpointId id, uint64_t offset, uint64_t* word, size_t bytes) override;
  Status get(EndpointId id, uint64_t offset, void* destination, size_t bytes) override;
  Status get_nbi(EndpointId id, uint64_t offset, void* destination, size_t bytes) override;
  Status put_strided(EndpointId id, uint64_t offset, const void* source, int64_t destination_stride,
                     int64_t source_stride, size_t count, size_t element) override;
  Status get_strided(EndpointId id, uint64_t offset, void* destination, int64_t destination_stride,
                     int64_t source_stride, size_t count, size_t element) override;
  Status atomic(AtomicOp op, AtomicType type, EndpointId id, uint64_t offset, uint64_t operand, uint64_t compare,
                uint64_t* result) override;
  Status put_signal(EndpointId id, uint64_t offset, const void* source, size_t bytes, uint64_t signal_offset,
                    uint64_t value, SignalOp op) override;
  Status signal(EndpointId id, uint64_t offset, uint64_t value, SignalOp op) override;
  Status put_counted(EndpointId id, uint64_t offset, const void* source, size_t bytes,
                     uint64_t counter_offset) override;
  Status clear(EndpointId id, uint64_t offset, uint64_t bytes) override;
  /// The stream keeps the order of everything but of its own writes without fence.
  Status fence() override;
  Status quiet() override;
  LocalMemory local_memory(const void* address) const override;
  Status join(CUstream_st* stream) override;

 private:
  /// Kind of memory, and why it is that one.
  struct Plan {
    GpuMemory memory = GpuMemory::kDescriptors;
    bool keeps_to_itself = false;      ///< NVSHMEM_DISABLE_P2P
    std::vector<std::string> remarks;  ///< for heddle-info and the log
  };
  static Status choose_memory(const Settings& settings, const Gpu& gpu, Plan* plan);
  PeerFabric(std::unique_ptr<Courier> courier, std::unique_ptr<mapped::MemoryProvider> provider,
             std::shared_ptr<Gpu> gpu, const Plan& plan);
  Status open();

  bool is_reserved(const void* address) const;
  void note_reserved(std::byte* begin, uint64_t bytes);
  Status copy(void* to, const void* from, uint64_t bytes, const char* call);
  bool write_word(std::byte* at, uint64_t word, size_t bytes);
  Status get_by_mailbox(const std::byte* from, void* destination, size_t bytes, const char* call);
  Status move_strided(const StridedTask& task, const void* local, const char* call);
  Status update_signal(std::byte* at, uint64_t value, SignalOp op);
  Status wait(const char* call);
  /// Notes that the stream has more to do.
  void note_issued() { issued_.fetch_add(1, std::memory_order_release); }  // after it was enqueued, for quiet()

  const std::shared_ptr<Gpu> gpu_;
  const cuda::Driver& driver_;
  const Plan plan_;
  std::unique_ptr<Kernels> kernels_;
  CUstream stream_ = nullptr;
  CUevent event_ = nullptr;
  uint64_t memory_bytes_ = 0;           // of the GPU
  std::atomic<uint64_t> issued_{0};     // operations enqueued
  std::atomic<uint64_t> completed_{0};  // of these, known to be complete
  std::atomic<std::byte*> reserved_begin_{nullptr}, reserved_end_{nullptr};

  std::mutex mailbox_mutex_;  // guards the mailbox
  std::byte* mailbox_ = nullptr;
};

}  // namespace heddle::peer
