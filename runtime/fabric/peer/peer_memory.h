// Memory of one GPU by CUDA virtual memory management: allocations that travel as file descriptors or fabric handles
// and are mapped by other processes' GPUs.
#pragma once

#include <memory>

#include "runtime/fabric/mapped/memory_provider.h"
#include "runtime/gpu.h"

namespace heddle::peer {

class PeerMemory final : public mapped::MemoryProvider {
 public:
  /// Asks the driver for the granularity. With `fabric_handles` allocations travel as such; try_fabric_handles says
  /// whether that can work.
  static Status open(std::shared_ptr<Gpu> gpu, bool fabric_handles, std::unique_ptr<PeerMemory>* memory);

  uint64_t granularity() const override { return granularity_; }
  const char* granularity_name() const override { return "granularity of GPU memory,"; }
  Status reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) override;
  void release_addresses(std::byte* base, uint64_t bytes) override;
  Status allocate(uint64_t bytes, Handle* handle) override;
  Status adopt(const void* address, uint64_t bytes, Handle* handle, uint64_t* taken) override;
  void release(Handle handle) override;
  Status export_memory(Handle handle, mapped::Ticket* ticket) override;
  Status map(std::byte** address, uint64_t bytes, Handle handle, uint64_t memory_offset) override;
  Status map_imported(std::byte** address, uint64_t bytes, const mapped::Ticket& ticket,
                      uint64_t memory_offset) override;
  Status unmap(std::byte* address, uint64_t bytes) override;

 private:
  PeerMemory(std::shared_ptr<Gpu> gpu, bool fabric_handles);
  Status check_adopted(const void* address, Handle handle, uint64_t* mapped);

  const std::shared_ptr<Gpu> gpu_;
  const cuda::Driver& driver_;
  CUmemAllocationProp properties_{};
  uint64_t granularity_ = 0;
};

/// Whether memory of this GPU can be made, exported and imported by a fabric handle, found out by doing so once with
/// the least amount. kNotSupported with the call that failed, its error and what is needed.
Status try_fabric_handles(const Gpu& gpu);
/// Whether there is what the driver needs for them: without it a trial is a failing call, which tools would show.
Status find_imex_channel();

/// kOutOfMemory for `call` that was asked for `bytes`, with what the GPU has left and `remedy`. Its context is current.
Status out_of_memory(const Gpu& gpu, const char* call, uint64_t bytes, const char* remedy);

}  // namespace heddle::peer
