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
  uint64_t offset = 0;  // of the block to free, the buffer to unregister, or where one is to be
  int32_t invalid = 0;  // this PE's arguments are wrong; its Code
  char text[484] = {};  // and why
};

constexpr const char* kChunkGoes = "release of an empty chunk of the heap";
constexpr const char* kBufferGoes = "release of a registered buffer";
constexpr uint64_t kAnywhere = UINT64_MAX;  // HeapCall::offset without a preferred address

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
  for (const auto& [offset, part] : memory_) (void)fabric_.release(part.memory);
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
  if (whole_) base_ = fabric_.address(memory_.at(0).memory);
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
    memory_[segment.offset] = {memory, segment.bytes};
    allocator_->add_segment(segment);
  }
  return await_ready(fabric_, own, 1, deadline, format("growth of the heap by %s", size_text(segment.bytes).c_str()),
                     shape_.poison);
}

/// Takes a segment away, with as much of its memory as was bound.
Status SymmetricHeap::shrink(Extent segment, const char* what, Deadline deadline) {
  const EndpointId own = ids_.base + static_cast<EndpointId>(shape_.my_pe);
  std::vector<MemoryId> released;
  uint64_t bound = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    allocator_->remove_segment(segment);
    const auto first = memory_.lower_bound(segment.offset);
    const auto last = memory_.lower_bound(segment.offset + segment.bytes);
    for (auto part = first; part != last; ++part) {
      released.push_back(part->second.memory);
      bound += part->second.bytes;
    }
    memory_.erase(first, last);
  }
  if (released.empty()) return Status::ok();
  HEDDLE_RETURN_IF_ERROR(fabric_.unbind(own, segment.offset, bound));
  // The peers' mappings keep the pages alive until they too have let go.
  const auto await = [&] { return await_ready(fabric_, own, 1, deadline, what, shape_.poison); };
  Status status = await();
  // Every PE that cannot map says so for each part. What is still to come belongs to what goes here, not to what
  // follows.
  const auto is_over = [](const Status& s) {
    return s.is_ok() || s.code() == Code::kTimeout || s.code() == Code::kPeerLost;
  };
  Status later = status;
  for (size_t most = released.size() * ids_.count; most > 0 && !is_over(later); --most) later = await();
  for (const MemoryId memory : released) {
    const Status gone = fabric_.release(memory);
    if (status.is_ok()) status = gone;
  }
  return status;
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
      if (memory_.count(plan.segment.offset) > 0) (void)shrink(plan.segment, kChunkGoes, deadline);
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
  const Status cleared = channel.agree(call, fabric_.clear(own, plan.offset, bytes), deadline);
  if (cleared.is_ok()) return cleared;
  *block = nullptr;  // on all PEs, so none keeps it
  std::lock_guard<std::mutex> lock(mutex_);
  (void)allocator_->give_back(plan.offset);  // taken above, so it is there
  return cleared;
}

Status SymmetricHeap::free(ControlChannel& channel, void* block, Deadline deadline) {
  HeapCall mine;
  mine.offset = device::heap_offset(view_, block);
  if (!device::in_heap(view_, block, 1)) {
    note(&mine, error(Code::kInvalidValue, "%p is outside the symmetric heap [%p, %p)", block,
                      static_cast<void*>(base() + view_.reserved), static_cast<void*>(base() + view_.extent)));
  } else if (allocator_->registered_at(mine.offset).bytes > 0) {
    note(&mine, error(Code::kInvalidValue,
                      "%p lies in a registered buffer, not in a block of nvshmem_malloc; give it back with "
                      "nvshmemx_buffer_unregister_symmetric",
                      block));
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
  for (const Extent& segment : empty) HEDDLE_RETURN_IF_ERROR(shrink(segment, kChunkGoes, deadline));
  if (!empty.empty()) {
    // Chunks that a PE still maps must not be bound again by the next growth: all have let go first.
    HEDDLE_RETURN_IF_ERROR(channel.agree("nvshmem_free", Status::ok(), deadline));
    std::lock_guard<std::mutex> lock(mutex_);
    refresh_view();
  }
  return Status::ok();
}

// ---- registered buffers

Status SymmetricHeap::check_adopts() const {
  if (fabric_.capabilities().adopts_memory) return Status::ok();
  return error(
      Code::kNotSupported,
      "only CUDA VMM memory (of cuMemCreate, with an exportable handle) can become symmetric, and only where the "
      "heaps are such memory too; this job's fabric is %s%s: copy into a block of nvshmem_malloc instead",
      fabric_.name(), whole_ ? ", with heaps by cudaMalloc (NVSHMEM_DISABLE_CUDA_VMM)" : "");
}

/// What is wrong with this PE's arguments, before the memory itself is looked at.
Status SymmetricHeap::check_buffer(const void* buffer, uint64_t bytes, const void* preferred) const {
  if (buffer == nullptr || bytes == 0) {
    return error(Code::kInvalidValue, "[%p, +%" PRIu64 " bytes) is empty; pass an address and a size of at least 1",
                 buffer, bytes);
  }
  HEDDLE_RETURN_IF_ERROR(check_adopts());
  const uint64_t unit = fabric_.capabilities().granularity;
  const auto begin = reinterpret_cast<uintptr_t>(buffer), heaps = reinterpret_cast<uintptr_t>(space_.window(0));
  if (bytes > UINTPTR_MAX - begin) {
    return error(Code::kInvalidValue, "[%p, +%" PRIu64 " bytes) runs past the last address", buffer, bytes);
  }
  if ((reinterpret_cast<uintptr_t>(buffer) | bytes) % unit != 0) {
    return error(Code::kInvalidValue,
                 "[%p, +%" PRIu64 " bytes): address and size must be multiples of %" PRIu64
                 ", the granularity of memory that PEs can map",
                 buffer, bytes, unit);
  }
  if (begin < heaps + space_.bytes() && heaps < begin + bytes) {
    return error(Code::kInvalidValue, "[%p, +%" PRIu64 " bytes) meets the symmetric heaps [%p, +%" PRIu64 " bytes)",
                 buffer, bytes, static_cast<const void*>(space_.window(0)), space_.bytes());
  }
  if (preferred == nullptr) return Status::ok();
  const uint64_t offset = device::heap_offset(view_, preferred);
  if (offset >= shape_.limit || bytes > shape_.limit - offset || offset % unit != 0) {
    return error(Code::kInvalidValue,
                 "the preferred address %p for %" PRIu64 " bytes must be a multiple of %" PRIu64
                 " in the addresses of this PE's heap, [%p, %p); raise NVSHMEM_SYMMETRIC_SIZE for more",
                 preferred, bytes, unit, static_cast<const void*>(base()),
                 static_cast<const void*>(base() + shape_.limit));
  }
  return Status::ok();
}

/// One part for each allocation that is mapped in the buffer. Those that were taken over are in `parts` in any case.
Status SymmetricHeap::adopt(const void* buffer, uint64_t bytes, std::vector<Part>* parts) {
  for (uint64_t done = 0; done < bytes;) {
    Part part;
    HEDDLE_RETURN_IF_ERROR(
        fabric_.adopt(static_cast<const std::byte*>(buffer) + done, bytes - done, &part.memory, &part.bytes));
    parts->push_back(part);
    done += part.bytes;
  }
  return Status::ok();
}

/// Where the buffer goes; all PEs come to the same.
Status SymmetricHeap::place_buffer(uint64_t bytes, const void* preferred, Extent* place) const {
  if (preferred != nullptr) {
    *place = {device::heap_offset(view_, preferred), bytes};
    if (allocator_->is_gap(*place)) return Status::ok();
    return error(Code::kInvalidValue,
                 "%" PRIu64 " bytes at the preferred address, heap offset %" PRIu64
                 ", meet memory of the heap or another registered buffer",
                 bytes, place->offset);
  }
  const std::optional<uint64_t> offset = allocator_->place_registered(bytes);
  if (!offset) {
    return error(Code::kOutOfMemory,
                 "no room for a buffer of %" PRIu64 " bytes in the addresses of the heap: the largest gap is %" PRIu64
                 " bytes (limit %" PRIu64 ", with memory %" PRIu64 "); raise NVSHMEM_SYMMETRIC_SIZE",
                 bytes, allocator_->largest_gap(), allocator_->limit(), allocator_->physical());
  }
  *place = {*offset, bytes};
  return Status::ok();
}

/// Binds all parts, which become the heap's as they are bound, and waits until every PE has mapped them.
Status SymmetricHeap::bind_buffer(Extent place, std::vector<Part>* parts, Deadline deadline) {
  const EndpointId own = ids_.base + static_cast<EndpointId>(shape_.my_pe);
  for (uint64_t offset = place.offset; !parts->empty(); parts->erase(parts->begin())) {
    const Part part = parts->front();
    HEDDLE_RETURN_IF_ERROR(fabric_.bind(own, offset, part.memory, 0, part.bytes));
    std::lock_guard<std::mutex> lock(mutex_);
    memory_[offset] = part;
    offset += part.bytes;
  }
  return await_ready(fabric_, own, 1, deadline, "the mapping of a registered buffer by the other PEs", shape_.poison);
}

Status SymmetricHeap::register_buffer(ControlChannel& channel, const char* call, const void* buffer, uint64_t bytes,
                                      const void* preferred, const Status& valid, Deadline deadline, void** alias) {
  *alias = nullptr;
  std::vector<Part> parts;  // adopted and not bound
  HeapCall mine;
  mine.bytes = bytes;
  mine.offset = preferred == nullptr ? kAnywhere : device::heap_offset(view_, preferred);
  Status usable = valid.is_ok() ? check_buffer(buffer, bytes, preferred) : valid;
  if (usable.is_ok()) usable = adopt(buffer, bytes, &parts);
  note(&mine, usable);
  const auto agree_on_place = [&](Extent* place) -> Status {
    std::vector<HeapCall> calls(static_cast<size_t>(shape_.n_pes));
    HEDDLE_RETURN_IF_ERROR(channel.allgather(call, &mine, sizeof mine, calls.data(), deadline));
    HEDDLE_RETURN_IF_ERROR(judge(calls, "size in bytes", &HeapCall::bytes));
    HEDDLE_RETURN_IF_ERROR(judge(calls, "heap offset of the preferred address", &HeapCall::offset));
    return place_buffer(bytes, preferred, place);
  };
  Extent place;
  Status status = agree_on_place(&place);
  if (status.is_ok()) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      allocator_->add_registered(place);
    }
    status = channel.agree(call, bind_buffer(place, &parts, deadline), deadline);
    if (!status.is_ok()) (void)shrink(place, kBufferGoes, deadline);  // the first failure is the one to tell
  }
  for (const Part& part : parts) (void)fabric_.release(part.memory);
  if (!status.is_ok()) return status;
  std::lock_guard<std::mutex> lock(mutex_);
  refresh_view();
  *alias = base() + place.offset;
  return Status::ok();
}

Status SymmetricHeap::unregister_buffer(ControlChannel& channel, const char* call, const void* alias, uint64_t bytes,
                                        const Status& valid, Deadline deadline) {
  HeapCall mine;
  mine.bytes = bytes;
  mine.offset = device::heap_offset(view_, alias);
  const Extent place = allocator_->registered_at(mine.offset);
  if (const Status usable = valid.is_ok() ? check_adopts() : valid; !usable.is_ok()) {
    note(&mine, usable);
  } else if (place.bytes == 0 || place.offset != mine.offset) {
    note(&mine, error(Code::kInvalidValue,
                      "%p is not what nvshmemx_buffer_register_symmetric returned for a buffer that is registered now",
                      alias));
  } else if (place.bytes != bytes) {
    note(&mine, error(Code::kInvalidValue, "the buffer at %p was registered with %" PRIu64 " bytes, not %" PRIu64,
                      alias, place.bytes, bytes));
  }
  std::vector<HeapCall> calls(static_cast<size_t>(shape_.n_pes));
  HEDDLE_RETURN_IF_ERROR(channel.allgather(call, &mine, sizeof mine, calls.data(), deadline));
  HEDDLE_RETURN_IF_ERROR(judge(calls, "heap offset of the buffer", &HeapCall::offset));
  const Status status = channel.agree(call, shrink(place, kBufferGoes, deadline), deadline);
  std::lock_guard<std::mutex> lock(mutex_);
  refresh_view();
  return status;
}

size_t SymmetricHeap::registered() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return allocator_->registered();
}

bool SymmetricHeap::has_memory(uint64_t offset, uint64_t bytes) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return allocator_->has_memory({offset, bytes});
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
