// Memory of one GPU by CUDA virtual memory management: allocations that travel as file descriptors and are mapped by
// other processes' GPUs.
#pragma once

#include <memory>

#include "runtime/fabric/mapped/memory_provider.h"
#include "runtime/gpu.h"

namespace heddle::peer {

class PeerMemory final : public mapped::MemoryProvider {
 public:
  /// Asks the driver for the granularity.
  static Status open(std::shared_ptr<Gpu> gpu, std::unique_ptr<PeerMemory>* memory);

  uint64_t granularity() const override { return granularity_; }
  const char* granularity_name() const override { return "granularity of GPU memory,"; }
  Status reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) override;
  void release_addresses(std::byte* base, uint64_t bytes) override;
  Status allocate(uint64_t bytes, Handle* handle) override;
  void release(Handle handle) override;
  Status export_memory(Handle handle, OwnedFd* fd) override;
  Status map(std::byte* address, uint64_t bytes, Handle handle, uint64_t memory_offset) override;
  Status map_imported(std::byte* address, uint64_t bytes, const OwnedFd& fd, uint64_t memory_offset) override;
  Status unmap(std::byte* address, uint64_t bytes) override;

 private:
  explicit PeerMemory(std::shared_ptr<Gpu> gpu);

  const std::shared_ptr<Gpu> gpu_;
  const cuda::Driver& driver_;
  CUmemAllocationProp properties_{};
  uint64_t granularity_ = 0;
};

}  // namespace heddle::peer
