#include "runtime/stream_ops.h"

#include <cinttypes>
#include <cstring>

#ifdef HEDDLE_HAVE_CUDA
#include <optional>

#include "device/signal.h"
#include "runtime/gpu.h"
#include "runtime/kernels.h"
#include "runtime/strided_copy.h"
#endif

namespace heddle::stream {

Status refusal(World& world) {
  if (world.fabric().gpu() != nullptr) {
    return error(Code::kNotSupported, "the %s fabric does not map the other PEs' memory, as on_stream calls need",
                 world.fabric().name());
  }
  return error(Code::kNotSupported,
               "the symmetric heap is in host memory (fabric %s), and on_stream calls need it in GPU memory: unset "
               "HEDDLE_FABRIC, and let every PE see a GPU",
               world.fabric().name());
}

#ifdef HEDDLE_HAVE_CUDA
namespace {

/// Up to here puts and gets of a graph are kernels, which graphs join to other kernels without leaving the compute
/// engine. In a stream copies are quicker whatever the size: enqueued in 2 us where a launch takes 3.5, and behind a
/// kernel done 1.5 us earlier (docs/performance.md).
constexpr size_t kKernelBytes = 4u << 10;
/// Up to here one kernel for data and signal is quicker than a copy and a kernel for the signal.
constexpr size_t kSignalKernelBytes = 32u << 10;

/// Launches and copies go to the stream's context, mostly the current one. Where the thread has none, the heap's is
/// meant.
class StreamScope {
 public:
  explicit StreamScope(const Gpu& gpu) {
    CUcontext current = nullptr;
    if (gpu.driver().CtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr) scope_.emplace(gpu);
  }

 private:
  std::optional<ContextScope> scope_;
};

template <class T>
T* remote(World& world, T* address, int pe) {
  return device::translate(world.mapped_view(), address, pe);
}

Status copy(World& world, void* to, const void* from, size_t bytes, Stream stream) {
  const Gpu& gpu = *world.fabric().gpu();
  const StreamScope scope(gpu);
  const CUresult result = gpu.driver().MemcpyAsync(cuda::device_pointer(to), cuda::device_pointer(from), bytes, stream);
  if (result == CUDA_SUCCESS) return Status::ok();
  return cuda_error(gpu.driver(), result, "cuMemcpyAsync", "%zu bytes from %p to %p, stream %p", bytes, from, to,
                    static_cast<void*>(stream));
}

bool is_captured(World& world, Stream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return world.fabric().gpu()->driver().StreamIsCapturing(stream, &capture) != CUDA_SUCCESS ||
         capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

/// Whether the stream itself may write at `address`. Not while it is captured: graphs take such writes on few GPUs.
bool can_write(World& world, const void* address, Stream stream) {
  return world.fabric().gpu()->writes_words() && cuda::device_pointer(address) % 4 == 0 && !is_captured(world, stream);
}

/// What a stream can write by itself.
bool is_word(size_t bytes) { return bytes == 4 || bytes == 8; }

/// Lets the stream write 4 or 8 bytes after all of its earlier work, which takes a third of a kernel's time. False
/// where it cannot.
bool write_word(World& world, void* to, uint64_t word, size_t bytes, Stream stream) {
  if (!is_word(bytes) || !can_write(world, to, stream)) return false;
  const Gpu& gpu = *world.fabric().gpu();
  const StreamScope scope(gpu);
  const CUdeviceptr at = cuda::device_pointer(to);
  if (bytes == 4) {
    return gpu.driver().StreamWriteValue32(stream, at, static_cast<uint32_t>(word), CU_STREAM_WRITE_VALUE_DEFAULT) ==
           CUDA_SUCCESS;
  }
  return at % 8 == 0 &&
         gpu.driver().StreamWriteValue64(stream, at, word, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS;
}

/// What a call does to a signal of some PE; `at` nullptr: nothing.
struct Signal {
  uint64_t* at = nullptr;
  uint64_t value = 0;
  int op = device::kSignalSet;
};

Status check_signal(const uint64_t* signal) {
  if (cuda::device_pointer(signal) % sizeof *signal == 0) return Status::ok();
  return error(Code::kInvalidValue, "the signal at %p is not aligned to its 8 bytes", static_cast<const void*>(signal));
}

/// After all of the stream's earlier work.
Status update_signal(World& world, const Signal& signal, Stream stream) {
  if (signal.at == nullptr) return Status::ok();
  if (signal.op == device::kSignalSet && write_word(world, signal.at, signal.value, sizeof signal.value, stream)) {
    return Status::ok();
  }
  CopyTask task{};
  task.signal = signal.at;
  task.value = signal.value;
  task.signal_op = signal.op;
  return world.fabric().kernels()->signal(stream, task);
}

Status copy_by_kernel(World& world, void* to, const void* from, size_t bytes, bool is_get, const Signal& signal,
                      Stream stream) {
  CopyTask task{};
  task.destination = to;
  task.source = from;
  task.bytes = bytes;
  task.signal = signal.at;
  task.value = signal.value;
  task.signal_op = signal.op;
  task.is_get = is_get ? 1 : 0;
  return world.fabric().kernels()->copy(stream, task);
}

/// Puts from pageable memory, then updates the signal. The source was read on return, but in a capture: there a copy of
/// any size reads it at each launch of the graph, as CUDA's own copies do.
Status put_pageable(World& world, void* to, const void* source, size_t bytes, const Signal& signal, Stream stream) {
  uint64_t word = 0;
  if (is_word(bytes)) std::memcpy(&word, source, bytes);
  if (!write_word(world, to, word, bytes, stream)) {
    HEDDLE_RETURN_IF_ERROR(copy(world, to, source, bytes, stream));
  }
  return update_signal(world, signal, stream);
}

}  // namespace

Way way_of(World& world) {
  const Fabric& fabric = world.fabric();
  if (fabric.gpu() != nullptr) return world.mapped_view().direct != 0 ? Way::kEnqueue : Way::kRefuse;
  const cuda::Driver* driver = nullptr;
  return cuda::get_driver(&driver).is_ok() ? Way::kRefuse : Way::kAtOnce;
}

Status check(World& world, Stream stream) {
  const Gpu* const gpu = world.fabric().gpu();
  return gpu == nullptr ? Status::ok() : check_stream(*gpu, stream);
}

Status put(World& world, void* destination, const void* source, size_t bytes, int pe, Stream stream) {
  if (bytes == 0) return Status::ok();
  void* const to = remote(world, destination, pe);
  const bool by_kernel = bytes <= kKernelBytes && is_captured(world, stream);
  if (by_kernel || is_word(bytes)) {  // else what the source is makes no difference, and to ask costs a driver call
    const LocalMemory memory = world.fabric().local_memory(source);
    if (memory == LocalMemory::kPageable) return put_pageable(world, to, source, bytes, {}, stream);
    if (by_kernel && memory == LocalMemory::kKernels) {
      return copy_by_kernel(world, to, source, bytes, false, {}, stream);
    }
  }
  return copy(world, to, source, bytes, stream);
}

Status get(World& world, void* destination, const void* source, size_t bytes, int pe, Stream stream) {
  if (bytes == 0) return Status::ok();
  const void* const from = remote(world, source, pe);
  if (bytes <= kKernelBytes && is_captured(world, stream) && world.fabric().is_device_accessible(destination)) {
    return copy_by_kernel(world, destination, from, bytes, true, {}, stream);
  }
  return copy(world, destination, from, bytes, stream);
}

Status store(World& world, void* destination, const void* value, size_t bytes, int pe, Stream stream) {
  uint64_t words[2] = {};
  std::memcpy(words, value, bytes);
  void* const to = remote(world, destination, pe);
  if (write_word(world, to, words[0], bytes, stream)) return Status::ok();
  StoreTask task{};
  task.destination = to;
  task.bytes = static_cast<uint32_t>(bytes);
  task.low = words[0];
  task.high = words[1];
  return world.fabric().kernels()->store(stream, task);
}

Status load(World& world, void* value, const void* source, size_t bytes, int pe, Stream stream) {
  const Gpu& gpu = *world.fabric().gpu();
  const StreamScope scope(gpu);
  if (is_captured(world, stream)) {
    return error(Code::kInvalidValue, "stream %p is being captured, and a graph cannot return a value; use get",
                 static_cast<void*>(stream));
  }
  const RelaxedCapture relaxed(gpu);  // other streams may be captured
  const void* const from = remote(world, source, pe);
  CUresult result = gpu.driver().MemcpyDtoHAsync(value, cuda::device_pointer(from), bytes, stream);
  if (result == CUDA_SUCCESS) result = gpu.driver().StreamSynchronize(stream);
  if (result == CUDA_SUCCESS) return Status::ok();
  return cuda_error(gpu.driver(), result, "cuMemcpyDtoHAsync", "%zu bytes from %p, stream %p", bytes, from,
                    static_cast<void*>(stream));
}

Status strided(World& world, StridedTask task, int pe, Stream stream) {
  if (task.count == 0) return Status::ok();
  const void* const local = task.is_get != 0 ? task.destination : task.source;
  if (task.is_get != 0) {
    task.source = remote(world, task.source, pe);
  } else {
    task.destination = remote(world, task.destination, pe);
  }
  const LocalMemory memory = world.fabric().local_memory(local);
  if (memory == LocalMemory::kKernels && is_aligned(task)) return world.fabric().kernels()->strided(stream, task);
  const Gpu& gpu = *world.fabric().gpu();
  const StreamScope scope(gpu);
  return copy_strided(gpu, stream, task, memory);
}

Status put_signal(World& world, void* destination, const void* source, size_t bytes, uint64_t* signal, uint64_t value,
                  int op, int pe, Stream stream) {
  HEDDLE_RETURN_IF_ERROR(check_signal(signal));
  void* const to = remote(world, destination, pe);
  const Signal update{remote(world, signal, pe), value, op};
  if (bytes == 0) return update_signal(world, update, stream);
  const LocalMemory memory = world.fabric().local_memory(source);
  if (memory == LocalMemory::kPageable) return put_pageable(world, to, source, bytes, update, stream);
  const bool by_write = op == device::kSignalSet && can_write(world, update.at, stream);
  if (memory == LocalMemory::kKernels && !by_write && bytes <= kSignalKernelBytes) {
    return copy_by_kernel(world, to, source, bytes, false, update, stream);
  }
  HEDDLE_RETURN_IF_ERROR(copy(world, to, source, bytes, stream));
  return update_signal(world, update, stream);
}

Status signal(World& world, uint64_t* signal, uint64_t value, int op, int pe, Stream stream) {
  HEDDLE_RETURN_IF_ERROR(check_signal(signal));
  return update_signal(world, {remote(world, signal, pe), value, op}, stream);
}

Status wait(World& world, const WaitTask& task, Stream stream) {
  const struct {
    const char* name;
    const void* at;
    uint64_t bytes;  // of an object
  } arrays[] = {{"variable", task.variables, task.element},
                {"status array", task.status, sizeof *task.status},
                {"cmp_value array", task.references, task.element}};
  for (const auto& array : arrays) {  // NULL is aligned
    if (cuda::device_pointer(array.at) % array.bytes == 0) continue;
    return error(Code::kInvalidValue, "the %s at %p is not aligned to its %" PRIu64 " bytes", array.name, array.at,
                 array.bytes);
  }
  for (const void* array : {static_cast<const void*>(task.status), task.references}) {
    if (array != nullptr && !world.fabric().is_device_accessible(array)) {
      return error(Code::kInvalidValue,
                   "%s array at %p is in pageable host memory, which kernels cannot read; use GPU or pinned memory",
                   array == task.references ? "the cmp_value" : "the status", array);
    }
  }
  return task.count == 0 ? Status::ok() : world.fabric().kernels()->wait(stream, task);
}

Status quiet(World& world, Stream stream) { return world.fabric().join(stream); }

Status barrier(World& world, bool complete, Stream stream) {
  if (complete) HEDDLE_RETURN_IF_ERROR(quiet(world, stream));
  return world.n_pes() == 1 ? Status::ok() : world.fabric().kernels()->barrier(stream, world.n_pes());
}

#else

// Without CUDA there is no stream with work in it, and no fabric with a GPU: nothing below way_of is ever called.
Way way_of(World&) { return Way::kAtOnce; }
Status check(World&, Stream) { return Status::ok(); }
Status put(World& world, void*, const void*, size_t, int, Stream) { return refusal(world); }
Status get(World& world, void*, const void*, size_t, int, Stream) { return refusal(world); }
Status store(World& world, void*, const void*, size_t, int, Stream) { return refusal(world); }
Status load(World& world, void*, const void*, size_t, int, Stream) { return refusal(world); }
Status strided(World& world, StridedTask, int, Stream) { return refusal(world); }
Status put_signal(World& world, void*, const void*, size_t, uint64_t*, uint64_t, int, int, Stream) {
  return refusal(world);
}
Status signal(World& world, uint64_t*, uint64_t, int, int, Stream) { return refusal(world); }
Status wait(World& world, const WaitTask&, Stream) { return refusal(world); }
Status quiet(World& world, Stream) { return refusal(world); }
Status barrier(World& world, bool, Stream) { return refusal(world); }

#endif

}  // namespace heddle::stream
