#include "heap/symmetric_heap.h"

#include <cinttypes>
#include <cstring>

#include "runtime/settings.h"

namespace heddle {
namespace {

// What each PE says of one heap call; compared bytewise, so it has no padding.
struct HeapCall {
  uint64_t bytes = 0;
  uint64_t alignment = 0;
  uint64_t offset = 0;  // of the block to free
  int32_t invalid = 0;  // this PE's arguments are wrong; its Code
  char text[164] = {};  // and why
};

void note(HeapCall* call, const Status& status) {
  if (status.is_ok()) return;
  call->invalid = static_cast<int32_t>(status.code());
  std::strncpy(call->text, status.text().c_str(), sizeof call->text - 1);
}

// The failure that all PEs take from the calls of all, or ok.
Status judge(const std::vector<HeapCall>& calls, const char* what, uint64_t HeapCall::*member) {
  for (size_t pe = 0; pe < calls.size(); ++pe) {
    if (calls[pe].invalid != 0) {
      return error(static_cast<Code>(calls[pe].invalid), "PE %zu: %s", pe, calls[pe].text);
    }
  }
  for (size_t pe = 1; pe < calls.size(); ++pe) {
    if (calls[pe].*member == calls[0].*member) continue;
    return error(Code::kSymmetry, "%s differs: %" PRIu64 " on PE 0, %" PRIu64 " on PE %zu; every PE must pass the same",
                 what, calls[0].*member, calls[pe].*member, pe);
  }
  return Status::ok();
}

}  // namespace

SymmetricHeap::~SymmetricHeap() {
  // Statuses are dropped: this is teardown, and what was never made cannot be destroyed. Imports go first: owners may
  // be waiting for that (MappedFabric::destroy).
  const auto own = static_cast<size_t>(shape_.my_pe);
  for (size_t pe = 0; pe < made_.size(); ++pe) {
    if (made_[pe] && pe != own) (void)fabric_.destroy(ids_.base + static_cast<EndpointId>(pe));
  }
  if (own < made_.size() && made_[own]) (void)fabric_.destroy(ids_.base + static_cast<EndpointId>(own));
  for (const auto& [offset, memory] : memory_) (void)fabric_.release(memory);
  if (ids_.count > 0) (void)fabric_.release_ids(ids_);
}

Status SymmetricHeap::open(const Shape& shape, Deadline deadline, EndpointHandle* handle) {
  shape_ = shape;
  const auto count = static_cast<uint32_t>(shape.n_pes);
  EndpointProperties properties;
  properties.size = shape.limit;
  properties.flags = fabric_.capabilities().counted_puts ? kEndpointFlagCountedOps : kEndpointFlagNone;
  EndpointLimits limits;
  HEDDLE_RETURN_IF_ERROR(fabric_.limits(properties, &limits));
  if (shape.limit > limits.max_size) {
    return error(Code::kInvalidValue,
                 "a symmetric heap of %s is over the %s fabric's limit of %s; lower NVSHMEM_SYMMETRIC_SIZE",
                 size_text(shape.limit).c_str(), fabric_.name(), size_text(limits.max_size).c_str());
  }
  if (shape.chunk % limits.bind_alignment != 0) {
    return error(Code::kInvalidValue, "NVSHMEM_CUMEM_GRANULARITY=%s is no multiple of the %s fabric's alignment of %s",
                 size_text(shape.chunk).c_str(), fabric_.name(), size_text(limits.bind_alignment).c_str());
  }
  whole_ = fabric_.capabilities().whole_endpoints;
  if (whole_ && shape.n_pes > device::kMostByTable) {
    return error(Code::kNotSupported,
                 "a heap by cudaMalloc is for at most %d PEs, this job has %d; unset NVSHMEM_DISABLE_CUDA_VMM, or set "
                 "HEDDLE_FABRIC=host on all PEs",
                 device::kMostByTable, shape.n_pes);
  }
  if (!whole_) {
    constexpr uint64_t kHugePage = uint64_t{2} << 20;
    HEDDLE_RETURN_IF_ERROR(AddressSpace::reserve(fabric_, count, shape.limit, kHugePage, &space_));
    base_ = space_.window(static_cast<uint32_t>(shape.my_pe));
  }
  HEDDLE_RETURN_IF_ERROR(fabric_.reserve_ids(count, &ids_));
  made_.assign(count, false);
  for (uint32_t pe = 0; pe < count && !whole_; ++pe) {
    Status status = fabric_.set_window(ids_.base + pe, space_.window(pe), shape.limit);
    if (!status.is_ok() && status.code() != Code::kNotSupported) return status;
  }
  const EndpointId own = ids_.base + static_cast<EndpointId>(shape.my_pe);
  HEDDLE_RETURN_IF_ERROR(fabric_.create(own, properties));
  made_[static_cast<size_t>(shape.my_pe)] = true;
  HEDDLE_RETURN_IF_ERROR(await_ready(fabric_, own, 1, deadline, "the heap's own endpoint", shape_.poison));
  allocator_ = std::make_unique<Allocator>(shape.limit, shape.chunk);
  const Extent first{0, whole_ ? shape.limit : (shape.internal_bytes + shape.chunk - 1) / shape.chunk * shape.chunk};
  HEDDLE_RETURN_IF_ERROR(grow(first, deadline)
                             .in(format("the first %s of the symmetric heap (limit %s)", size_text(first.bytes).c_str(),
                                        size_text(shape.limit).c_str())));
  if (whole_) base_ = fabric_.address(memory_.at(0));
  allocator_->take(0, shape.internal_bytes);
  HEDDLE_RETURN_IF_ERROR(fabric_.clear(own, 0, shape.internal_bytes));
  refresh_view();
  return fabric_.export_handle(own, handle);
}

Status SymmetricHeap::import_peers(const std::vector<EndpointHandle>& handles, Deadline deadline) {
  for (size_t pe = 0; pe < handles.size(); ++pe) {
    if (made_[pe]) continue;
    HEDDLE_RETURN_IF_ERROR(fabric_.import_handle(ids_.base + static_cast<EndpointId>(pe), handles[pe])
                               .in(format("importing the heap of PE %zu", pe)));
    made_[pe] = true;
  }
  HEDDLE_RETURN_IF_ERROR(
      await_ready(fabric_, ids_.base, ids_.count, deadline, "the heaps of the other PEs", shape_.poison));
  for (uint32_t pe = 0; pe < ids_.count && whole_; ++pe) {
    const std::byte* const window = fabric_.window(ids_.base + pe);  // nullptr behind the fault decorator
    if (window == nullptr) continue;
    view_.distances[pe] = reinterpret_cast<intptr_t>(window) - reinterpret_cast<intptr_t>(base_);
  }
  refresh_view();
  return Status::ok();
}

void SymmetricHeap::refresh_view() {
  view_.my_heap = reinterpret_cast<char*>(base());
  view_.stride = static_cast<int64_t>(space_.stride());
  view_.extent = allocator_->extent();
  view_.reserved = shape_.internal_bytes;
  view_.my_pe = shape_.my_pe;
  view_.n_pes = shape_.n_pes;
  view_.id_base = ids_.base;
  view_.direct = whole_ ? device::kByTable : device::kByStride;
  for (uint32_t pe = 0; pe < ids_.count; ++pe) {
    if (fabric_.window(ids_.base + pe) == nullptr) view_.direct = device::kNotMapped;
  }
}

Status SymmetricHeap::grow(Extent segment, Deadline deadline) {
  const EndpointId own = ids_.base + static_cast<EndpointId>(shape_.my_pe);
  MemoryId memory = 0;
  HEDDLE_RETURN_IF_ERROR(fabric_.allocate(segment.bytes, &memory));
  Status status = fabric_.bind(own, segment.offset, memory, 0, segment.bytes);
  if (!status.is_ok()) {
    (void)fabric_.release(memory);
    return status;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    memory_[segment.offset] = memory;
    allocator_->add_segment(segment);
  }
  return await_ready(fabric_, own, 1, deadline, format("growth of the heap by %s", size_text(segment.bytes).c_str()),
                     shape_.poison);
}

Status SymmetricHeap::shrink(Extent segment, Deadline deadline) {
  const EndpointId own = ids_.base + static_cast<EndpointId>(shape_.my_pe);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    allocator_->remove_segment(segment);
  }
  const auto memory = memory_.find(segment.offset);
  if (memory == memory_.end()) return Status::ok();
  HEDDLE_RETURN_IF_ERROR(fabric_.unbind(own, segment.offset, segment.bytes));
  const MemoryId released = memory->second;
  memory_.erase(memory);
  // The peers' mappings keep the pages alive until they too have let go.
  HEDDLE_RETURN_IF_ERROR(
      await_ready(fabric_, own, 1, deadline, "release of an empty chunk of the heap", shape_.poison));
  return fabric_.release(released);
}

Status SymmetricHeap::allocate(ControlChannel& channel, const char* call, uint64_t bytes, uint64_t alignment,
                               bool zeroed, const Status& valid, Deadline deadline, void** block) {
  *block = nullptr;
  HeapCall mine;
  mine.bytes = bytes;
  mine.alignment = alignment;
  note(&mine, valid);
  std::vector<HeapCall> calls(static_cast<size_t>(shape_.n_pes));
  HEDDLE_RETURN_IF_ERROR(channel.allgather(call, &mine, sizeof mine, calls.data(), deadline));
  HEDDLE_RETURN_IF_ERROR(judge(calls, "size in bytes", &HeapCall::bytes));
  HEDDLE_RETURN_IF_ERROR(judge(calls, "alignment", &HeapCall::alignment));
  if (bytes == 0) return Status::ok();

  // From here on every PE decides alike: the allocators have seen the same calls.
  const Allocator::Plan plan = allocator_->plan(bytes, alignment);
  if (!plan.fits && !plan.can_grow) {
    const HeapFigures now = figures();
    return error(Code::kOutOfMemory,
                 "asked %" PRIu64 " bytes; the largest block that can be had is %" PRIu64 " (in use %" PRIu64
                 ", limit %" PRIu64 "); free something or raise NVSHMEM_SYMMETRIC_SIZE",
                 bytes, now.largest_free, now.in_use, now.limit);
  }
  if (plan.can_grow && !plan.fits) {
    Status grown = channel.agree(call, grow(plan.segment, deadline), deadline);
    if (!grown.is_ok()) {
      if (memory_.count(plan.segment.offset) > 0) (void)shrink(plan.segment, deadline);
      if (grown.code() != Code::kOutOfMemory) return grown;
      const HeapFigures now = figures();
      return error(Code::kOutOfMemory,
                   "%s (for a block of %" PRIu64 " bytes; heap: in use %" PRIu64 ", limit %" PRIu64 ")",
                   grown.text().c_str(), bytes, now.in_use, now.limit);
    }
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    allocator_->take(plan.offset, bytes);
    refresh_view();
  }
  *block = base() + plan.offset;
  if (!zeroed) return Status::ok();
  // Nobody may put into the block before its owner has zeroed it.
  const EndpointId own = ids_.base + static_cast<EndpointId>(shape_.my_pe);
  return channel.agree(call, fabric_.clear(own, plan.offset, bytes), deadline);
}

Status SymmetricHeap::free(ControlChannel& channel, void* block, Deadline deadline) {
  HeapCall mine;
  mine.offset = device::heap_offset(view_, block);
  if (!device::in_heap(view_, block, 1)) {
    note(&mine, error(Code::kInvalidValue, "%p is outside the symmetric heap [%p, %p)", block,
                      static_cast<void*>(base() + view_.reserved), static_cast<void*>(base() + view_.extent)));
  } else if (allocator_->block_bytes(mine.offset) == 0) {
    note(&mine, error(Code::kInvalidValue,
                      "%p is not the start of a live block: it was freed already or never given by "
                      "nvshmem_malloc",
                      block));
  }
  std::vector<HeapCall> calls(static_cast<size_t>(shape_.n_pes));
  HEDDLE_RETURN_IF_ERROR(channel.allgather("nvshmem_free", &mine, sizeof mine, calls.data(), deadline));
  HEDDLE_RETURN_IF_ERROR(judge(calls, "offset of the block", &HeapCall::offset));
  std::vector<Extent> empty;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    HEDDLE_RETURN_IF_ERROR(allocator_->give_back(mine.offset));
    empty = allocator_->removable_segments();
  }
  for (const Extent& segment : empty) HEDDLE_RETURN_IF_ERROR(shrink(segment, deadline));
  if (!empty.empty()) {
    // Chunks that a PE still maps must not be bound again by the next growth: all have let go first.
    HEDDLE_RETURN_IF_ERROR(channel.agree("nvshmem_free", Status::ok(), deadline));
    std::lock_guard<std::mutex> lock(mutex_);
    refresh_view();
  }
  return Status::ok();
}

HeapFigures SymmetricHeap::figures() const {
  std::lock_guard<std::mutex> lock(mutex_);
  HeapFigures figures;
  figures.limit = allocator_->limit();
  figures.internal = allocator_->block_bytes(0);
  figures.in_use = allocator_->in_use() - figures.internal;
  figures.largest_free = allocator_->largest_free();
  figures.physical = allocator_->physical();
  figures.blocks = allocator_->blocks() - 1;
  return figures;
}

}  // namespace heddle
