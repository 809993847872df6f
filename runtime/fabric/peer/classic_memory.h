// Memory of one GPU by cudaMalloc: whole allocations at addresses of their own, which other processes open by CUDA IPC.
// For GPUs without CUDA virtual memory management, and for programs whose other libraries cannot take such memory.
#pragma once

#include <memory>
#include <set>

#include "runtime/fabric/mapped/memory_provider.h"
#include "runtime/gpu.h"

namespace heddle::peer {

class ClassicMemory final : public mapped::MemoryProvider {
 public:
  explicit ClassicMemory(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)), driver_(gpu_->driver()) {}

  uint64_t granularity() const override { return uint64_t{2} << 20; }  // so that nobody else's memory is beside it
  const char* granularity_name() const override { return "granularity of GPU memory,"; }
  bool is_whole() const override { return true; }
  Status reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) override;
  void release_addresses(std::byte*, uint64_t) override {}  // none was ever reserved
  Status allocate(uint64_t bytes, Handle* handle) override;
  void release(Handle handle) override;
  std::byte* address(Handle handle) const override { return reinterpret_cast<std::byte*>(handle); }
  Status export_memory(Handle handle, mapped::Ticket* ticket) override;
  Status map(std::byte** address, uint64_t bytes, Handle handle, uint64_t memory_offset) override;
  Status map_imported(std::byte** address, uint64_t bytes, const mapped::Ticket& ticket,
                      uint64_t memory_offset) override;
  Status unmap(std::byte* address, uint64_t bytes) override;

 private:
  const std::shared_ptr<Gpu> gpu_;
  const cuda::Driver& driver_;
  std::set<std::byte*> opened_;  // of peers
};

}  // namespace heddle::peer
