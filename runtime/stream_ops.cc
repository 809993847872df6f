#include "runtime/stream_ops.h"

#include <cinttypes>
#include <cstring>

#ifdef HEDDLE_HAVE_CUDA
#include <optional>

#include "device/signal.h"
#include "runtime/gpu.h"
#include "runtime/kernels.h"
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

/// Up to here one kernel for data and signal is quicker than a copy and a kernel.
constexpr size_t kKernelBytes = 32u << 10;

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

CopyTask copy_task(void* to, const void* from, size_t bytes, uint64_t* signal, uint64_t value, int op) {
  CopyTask task{};
  task.destination = to;
  task.source = from;
  task.bytes = bytes;
  task.signal = signal;
  task.value = value;
  task.signal_op = op;
  return task;
}

/// Whether the stream itself may write at `address`. Not while it is captured: graphs take such writes on few GPUs.
bool can_write(World& world, const void* address, Stream stream) {
  const Gpu& gpu = *world.fabric().gpu();
  const cuda::Driver& driver = gpu.driver();
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  return gpu.writes_words() && cuda::device_pointer(address) % 4 == 0 &&
         driver.StreamIsCapturing(stream, &capture) == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_NONE;
}

/// Lets the stream write 4 or 8 bytes after all of its earlier work, which takes a third of a kernel's time. False
/// where it cannot.
bool write_word(World& world, void* to, uint64_t word, size_t bytes, Stream stream) {
  if ((bytes != 4 && bytes != 8) || !can_write(world, to, stream)) return false;
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

}  // namespace

Way way_of(World& world) {
  const Fabric& fabric = world.fabric();
  if (fabric.gpu() != nullptr) return world.mapped_view().direct != 0 ? Way::kEnqueue : Way::kRefuse;
  const cuda::Driver* driver = nullptr;
  return cuda::get_driver(&driver).is_ok() ? Way::kRefuse : Way::kAtOnce;
}

Status put(World& world, void* destination, const void* source, size_t bytes, int pe, Stream stream) {
  return bytes == 0 ? Status::ok() : copy(world, remote(world, destination, pe), source, bytes, stream);
}

Status get(World& world, void* destination, const void* source, size_t bytes, int pe, Stream stream) {
  return bytes == 0 ? Status::ok() : copy(world, destination, remote(world, source, pe), bytes, stream);
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
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = gpu.driver().StreamIsCapturing(stream, &capture);
  if (result == CUDA_SUCCESS && capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    return error(Code::kInvalidValue, "stream %p is being captured, and a graph cannot return a value; use get",
                 static_cast<void*>(stream));
  }
  const void* const from = remote(world, source, pe);
  result = gpu.driver().MemcpyDtoHAsync(value, cuda::device_pointer(from), bytes, stream);
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
  if (!world.fabric().is_device_accessible(local)) {
    const Gpu& gpu = *world.fabric().gpu();
    const StreamScope scope(gpu);
    return copy_strided_pageable(gpu, stream, task);
  }
  return world.fabric().kernels()->strided(stream, task);
}

Status put_signal(World& world, void* destination, const void* source, size_t bytes, uint64_t* signal, uint64_t value,
                  int op, int pe, Stream stream) {
  void* const to = remote(world, destination, pe);
  uint64_t* const at = remote(world, signal, pe);
  CopyTask task = copy_task(to, source, bytes, at, value, op);
  const bool by_write = op == device::kSignalSet && can_write(world, at, stream);
  if (!by_write && bytes > 0 && bytes <= kKernelBytes && world.fabric().is_device_accessible(source)) {
    return world.fabric().kernels()->copy(stream, task);
  }
  if (bytes > 0) HEDDLE_RETURN_IF_ERROR(copy(world, to, source, bytes, stream));
  if (by_write && write_word(world, at, value, sizeof value, stream)) return Status::ok();
  return world.fabric().kernels()->signal(stream, task);
}

Status signal(World& world, uint64_t* signal, uint64_t value, int op, int pe, Stream stream) {
  uint64_t* const at = remote(world, signal, pe);
  if (op == device::kSignalSet && write_word(world, at, value, sizeof value, stream)) return Status::ok();
  return world.fabric().kernels()->signal(stream, copy_task(nullptr, nullptr, 0, at, value, op));
}

Status wait(World& world, const WaitTask& task, Stream stream) {
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
