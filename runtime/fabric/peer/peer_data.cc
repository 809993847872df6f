// Data operations of the peer fabric, for host code: everything goes by the fabric's stream, which keeps the order.
//
// Copies are the copy engines' work, so they proceed while a kernel of the program holds all of the GPU. The driver has
// read pageable memory when a copy call returns; other sources are read in the stream's time, so blocking puts wait.
#include <cinttypes>
#include <cstring>

#include "device/signal.h"
#include "runtime/fabric/peer/peer_fabric.h"
#include "runtime/strided_copy.h"

namespace heddle::peer {
namespace {

constexpr size_t kMailboxBytes = 64u << 10;

/// Objects of atomics and signals are aligned to their size.
Status check_aligned(const char* call, uint64_t offset, uint64_t bytes) {
  if (offset % bytes == 0) return Status::ok();
  return error(Code::kInvalidValue,
               "%s: an object of %" PRIu64 " bytes at offset %" PRIu64 " is not aligned to its size", call, bytes,
               offset);
}

Status check_signal_op(const char* call, SignalOp op) {
  if (op == SignalOp::kSet || op == SignalOp::kAdd) return Status::ok();
  return error(Code::kInvalidValue,
               "%s: signal operation %d is neither NVSHMEM_SIGNAL_SET (9) nor NVSHMEM_SIGNAL_ADD (10)", call,
               static_cast<int>(op));
}

}  // namespace

Status PeerFabric::open() {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  CUresult result = driver_.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return cuda_error(driver_, result, "cuStreamCreate", "%s", gpu_->name().c_str());
  result = driver_.EventCreate(&event_, CU_EVENT_DISABLE_TIMING);
  if (result != CUDA_SUCCESS) return cuda_error(driver_, result, "cuEventCreate", "%s", gpu_->name().c_str());
  size_t free_bytes = 0, all_bytes = 0;
  result = driver_.MemGetInfo(&free_bytes, &all_bytes);
  if (result != CUDA_SUCCESS) return cuda_error(driver_, result, "cuMemGetInfo", "%s", gpu_->name().c_str());
  memory_bytes_ = all_bytes;
  void* mailbox = nullptr;
  result = driver_.MemHostAlloc(&mailbox, kMailboxBytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver_, result, "cuMemHostAlloc", "%zu bytes of pinned memory", kMailboxBytes);
  }
  mailbox_ = static_cast<std::byte*>(mailbox);
  return Kernels::load(gpu_, &kernels_);
}

bool PeerFabric::is_reserved(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  // relaxed: whoever has an address of the range came after it was set
  return at >= reserved_begin_.load(std::memory_order_relaxed) && at < reserved_end_.load(std::memory_order_relaxed);
}

LocalMemory PeerFabric::local_memory(const void* address) const {
  if (is_reserved(address)) return LocalMemory::kKernels;
  unsigned type = 0;
  int ordinal = -1;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&type, &ordinal};
  const CUresult result = driver_.PointerGetAttributes(2, attributes, values, cuda::device_pointer(address));
  if (result != CUDA_SUCCESS || type == 0) return LocalMemory::kPageable;
  // Whether the program lets this GPU map that of another is not asked: copies need no leave.
  return type == CU_MEMORYTYPE_DEVICE && ordinal != gpu_->device() ? LocalMemory::kCopies : LocalMemory::kKernels;
}

Status PeerFabric::wait(const char* call) {
  const uint64_t issued = issued_.load(std::memory_order_acquire);  // pairs with note_issued
  const RelaxedCapture relaxed(*gpu_);  // a capture of the program's, of whatever mode, is not spoilt
  const CUresult result = driver_.StreamSynchronize(stream_);
  if (result == CUDA_SUCCESS) {
    uint64_t seen = completed_.load(std::memory_order_relaxed);  // relaxed: only a start value
    // release: pairs with quiet(), so that what is complete for this thread is so for that one
    while (seen < issued &&
           !completed_.compare_exchange_weak(seen, issued, std::memory_order_release, std::memory_order_relaxed)) {
    }
    return Status::ok();
  }
  return cuda_error(driver_, result, "cuStreamSynchronize",
                    "the library's stream on %s, in %s; an error of an earlier kernel of the program shows here too",
                    gpu_->name().c_str(), call);
}

/// Enqueues a copy between any two addresses.
Status PeerFabric::copy(void* to, const void* from, uint64_t bytes, const char* call) {
  const CUresult result = driver_.MemcpyAsync(cuda::device_pointer(to), cuda::device_pointer(from), bytes, stream_);
  note_issued();
  if (result == CUDA_SUCCESS) return Status::ok();
  return cuda_error(driver_, result, "cuMemcpyAsync", "%" PRIu64 " bytes from %p to %p, in %s on %s", bytes, from, to,
                    call, gpu_->name().c_str());
}

// ---- put and get

Status PeerFabric::put(EndpointId id, uint64_t offset, const void* source, size_t bytes) {
  const bool pageable = local_memory(source) == LocalMemory::kPageable;
  if (pageable && (bytes == 4 || bytes == 8)) {
    uint64_t word = 0;
    std::memcpy(&word, source, bytes);
    return put_word(id, offset, word, bytes);
  }
  HEDDLE_RETURN_IF_ERROR(put_nbi(id, offset, source, bytes));
  if (pageable || bytes == 0) return Status::ok();
  const ContextScope scope(*gpu_);
  return wait("put");
}

Status PeerFabric::put_nbi(EndpointId id, uint64_t offset, const void* source, size_t bytes) {
  std::byte* const base = ready_window(id);
  if (base == nullptr) return no_window(id, "put");
  if (bytes == 0) return Status::ok();
  const ContextScope scope(*gpu_);
  return copy(base + offset, source, bytes, "put");
}

/// Lets the stream write one word of 4 or 8 bytes, after everything that came before it in the stream. False where the
/// stream cannot.
bool PeerFabric::write_word(std::byte* at, uint64_t word, size_t bytes) {
  const CUdeviceptr to = cuda::device_pointer(at);
  if (!gpu_->writes_words() || (bytes != 4 && bytes != 8) || to % bytes != 0) return false;
  const CUresult result =
      bytes == 8 ? driver_.StreamWriteValue64(stream_, to, word, CU_STREAM_WRITE_VALUE_DEFAULT)
                 : driver_.StreamWriteValue32(stream_, to, static_cast<uint32_t>(word), CU_STREAM_WRITE_VALUE_DEFAULT);
  if (result == CUDA_SUCCESS) note_issued();
  return result == CUDA_SUCCESS;
}

Status PeerFabric::put_word(EndpointId id, uint64_t offset, uint64_t word, size_t bytes) {
  std::byte* const base = ready_window(id);
  if (base == nullptr) return no_window(id, "put");
  const ContextScope scope(*gpu_);
  if (write_word(base + offset, word, bytes)) return Status::ok();
  return copy(base + offset, &word, bytes, "put");  // pageable, so it was read on return
}

/// By pinned memory: the driver would stage a copy to pageable memory with more ado.
Status PeerFabric::get_by_mailbox(const std::byte* from, void* destination, size_t bytes, const char* call) {
  const std::lock_guard<std::mutex> lock(mailbox_mutex_);
  HEDDLE_RETURN_IF_ERROR(copy(mailbox_, from, bytes, call));
  HEDDLE_RETURN_IF_ERROR(wait(call));
  std::memcpy(destination, mailbox_, bytes);
  return Status::ok();
}

Status PeerFabric::get_word(EndpointId id, uint64_t offset, uint64_t* word, size_t bytes) {
  const std::byte* const base = ready_window(id);
  if (base == nullptr) return no_window(id, "get");
  const ContextScope scope(*gpu_);
  return get_by_mailbox(base + offset, word, bytes, "get");
}

Status PeerFabric::get(EndpointId id, uint64_t offset, void* destination, size_t bytes) {
  const std::byte* const base = ready_window(id);
  if (base == nullptr) return no_window(id, "get");
  if (bytes == 0) return Status::ok();
  const ContextScope scope(*gpu_);
  if (bytes <= kMailboxBytes && local_memory(destination) == LocalMemory::kPageable) {
    return get_by_mailbox(base + offset, destination, bytes, "get");
  }
  HEDDLE_RETURN_IF_ERROR(copy(destination, base + offset, bytes, "get"));
  return wait("get");
}

Status PeerFabric::get_nbi(EndpointId id, uint64_t offset, void* destination, size_t bytes) {
  if (local_memory(destination) == LocalMemory::kPageable) return get(id, offset, destination, bytes);
  const std::byte* const base = ready_window(id);
  if (base == nullptr) return no_window(id, "get");
  if (bytes == 0) return Status::ok();
  const ContextScope scope(*gpu_);
  return copy(destination, base + offset, bytes, "get");
}

Status PeerFabric::move_strided(const StridedTask& task, const void* local, const char* call) {
  const ContextScope scope(*gpu_);
  const LocalMemory memory = local_memory(local);
  const Status enqueued = memory == LocalMemory::kKernels && is_aligned(task)
                              ? kernels_->strided(stream_, task)
                              : copy_strided(*gpu_, stream_, task, memory);
  note_issued();
  HEDDLE_RETURN_IF_ERROR(enqueued.in(call));
  return wait(call);
}

Status PeerFabric::put_strided(EndpointId id, uint64_t offset, const void* source, int64_t destination_stride,
                               int64_t source_stride, size_t count, size_t element) {
  std::byte* const base = ready_window(id);
  if (base == nullptr) return no_window(id, "iput");
  return move_strided(
      {base + offset, source, destination_stride, source_stride, count, static_cast<uint32_t>(element), 0}, source,
      "iput");
}

Status PeerFabric::get_strided(EndpointId id, uint64_t offset, void* destination, int64_t destination_stride,
                               int64_t source_stride, size_t count, size_t element) {
  std::byte* const base = ready_window(id);
  if (base == nullptr) return no_window(id, "iget");
  return move_strided(
      {destination, base + offset, destination_stride, source_stride, count, static_cast<uint32_t>(element), 1},
      destination, "iget");
}

// ---- atomics and signals

Status PeerFabric::atomic(AtomicOp op, AtomicType type, EndpointId id, uint64_t offset, uint64_t operand,
                          uint64_t compare, uint64_t* result) {
  std::byte* const base = ready_window(id);
  if (base == nullptr) return no_window(id, "atomic");
  const uint64_t bytes = type == AtomicType::kF16 ? 2 : type == AtomicType::kU32 || type == AtomicType::kF32 ? 4 : 8;
  HEDDLE_RETURN_IF_ERROR(check_aligned("atomic", offset, bytes));
  const bool is_integer = type == AtomicType::kU32 || type == AtomicType::kU64;
  const bool is_arithmetic =
      op == AtomicOp::kFetch || op == AtomicOp::kSet || op == AtomicOp::kSwap || op == AtomicOp::kAdd;
  if (type > AtomicType::kF64 || op > AtomicOp::kXor || (!is_integer && !is_arithmetic)) {
    return error(Code::kInvalidValue, "atomic: operation %u does not exist for type %u", static_cast<unsigned>(op),
                 static_cast<unsigned>(type));
  }
  const ContextScope scope(*gpu_);
  if (op == AtomicOp::kSet && result == nullptr && write_word(base + offset, operand, bytes)) return Status::ok();
  AtomicTask task{};
  task.object = base + offset;
  task.operand = operand;
  task.compare = compare;
  task.op = static_cast<uint32_t>(op);
  task.type = static_cast<uint32_t>(type);
  if (result == nullptr) {
    const Status launched = kernels_->atomic(stream_, task);
    note_issued();
    return launched.in("atomic");
  }
  const std::lock_guard<std::mutex> lock(mailbox_mutex_);
  task.result = reinterpret_cast<uint64_t*>(mailbox_);
  HEDDLE_RETURN_IF_ERROR(kernels_->atomic(stream_, task).in("atomic"));
  HEDDLE_RETURN_IF_ERROR(wait("atomic"));  // so there is nothing for quiet to do
  std::memcpy(result, mailbox_, sizeof *result);
  return Status::ok();
}

/// After everything that came before it in the stream.
Status PeerFabric::update_signal(std::byte* at, uint64_t value, SignalOp op) {
  if (op == SignalOp::kSet && write_word(at, value, sizeof value)) return Status::ok();
  CopyTask task{};
  task.signal = reinterpret_cast<uint64_t*>(at);
  task.value = value;
  task.signal_op = static_cast<int32_t>(op);
  const Status launched = kernels_->signal(stream_, task);
  note_issued();
  return launched.in("signal");
}

Status PeerFabric::put_signal(EndpointId id, uint64_t offset, const void* source, size_t bytes, uint64_t signal_offset,
                              uint64_t value, SignalOp op) {
  std::byte* const base = ready_window(id);
  if (base == nullptr) return no_window(id, "put_signal");
  HEDDLE_RETURN_IF_ERROR(check_aligned("put_signal", signal_offset, 8));
  HEDDLE_RETURN_IF_ERROR(check_signal_op("put_signal", op));
  const ContextScope scope(*gpu_);
  HEDDLE_RETURN_IF_ERROR(put_nbi(id, offset, source, bytes));
  HEDDLE_RETURN_IF_ERROR(update_signal(base + signal_offset, value, op));
  return bytes > 0 && local_memory(source) != LocalMemory::kPageable ? wait("put_signal") : Status::ok();
}

Status PeerFabric::signal(EndpointId id, uint64_t offset, uint64_t value, SignalOp op) {
  std::byte* const base = ready_window(id);
  if (base == nullptr) return no_window(id, "signal");
  HEDDLE_RETURN_IF_ERROR(check_aligned("signal", offset, 8));
  HEDDLE_RETURN_IF_ERROR(check_signal_op("signal", op));
  const ContextScope scope(*gpu_);
  return update_signal(base + offset, value, op);
}

Status PeerFabric::put_counted(EndpointId id, uint64_t offset, const void* source, size_t bytes,
                               uint64_t counter_offset) {
  return put_signal(id, offset, source, bytes, counter_offset, bytes, SignalOp::kAdd);
}

// ---- order

Status PeerFabric::clear(EndpointId id, uint64_t offset, uint64_t bytes) {
  std::byte* const base = ready_window(id);
  if (base == nullptr) return no_window(id, "clear");
  const ContextScope scope(*gpu_);
  const CUresult result = driver_.MemsetD8Async(cuda::device_pointer(base + offset), 0, bytes, stream_);
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver_, result, "cuMemsetD8Async", "%" PRIu64 " bytes at %p on %s", bytes,
                      static_cast<void*>(base + offset), gpu_->name().c_str());
  }
  return wait("clear");
}

/// The stream keeps the order of all that goes by it.
Status PeerFabric::fence() { return Status::ok(); }

Status PeerFabric::quiet() {
  const uint64_t issued = issued_.load(std::memory_order_acquire);  // pairs with note_issued
  // acquire: pairs with the release in wait(); what was complete for that thread is so for this one
  if (completed_.load(std::memory_order_acquire) >= issued) return Status::ok();
  const ContextScope scope(*gpu_);
  return wait("quiet");
}

Status PeerFabric::join(CUstream_st* stream) {
  const uint64_t issued = issued_.load(std::memory_order_acquire);  // pairs with note_issued
  if (completed_.load(std::memory_order_acquire) >= issued) return Status::ok();
  const ContextScope scope(*gpu_);
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  // A graph cannot depend on work outside it: host calls before a capture are completed before.
  if (driver_.StreamIsCapturing(stream, &capture) != CUDA_SUCCESS || capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    return quiet();
  }
  CUresult result = driver_.EventRecord(event_, stream_);
  if (result == CUDA_SUCCESS) result = driver_.StreamWaitEvent(stream, event_, CU_EVENT_WAIT_DEFAULT);
  if (result == CUDA_SUCCESS) return Status::ok();
  return cuda_error(driver_, result, "cuStreamWaitEvent", "stream %p for the library's stream on %s",
                    static_cast<void*>(stream), gpu_->name().c_str());
}

}  // namespace heddle::peer
