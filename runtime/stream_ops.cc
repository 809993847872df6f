#include "runtime/stream_ops.h"

#include <cinttypes>
#include <cstring>

#ifdef HEDDLE_HAVE_CUDA
#include <optional>

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

/// Up to here a kernel is quicker than a copy engine.
constexpr size_t kKernelBytes = 128u << 10;

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

CopyTask copy_task(void* to, const void* from, size_t bytes, bool is_get) {
  CopyTask task{};
  task.destination = to;
  task.source = from;
  task.bytes = bytes;
  task.is_get = is_get ? 1 : 0;
  return task;
}

}  // namespace

Way way_of(World& world) {
  const Fabric& fabric = world.fabric();
  if (fabric.gpu() != nullptr) return world.mapped_view().direct != 0 ? Way::kEnqueue : Way::kRefuse;
  const cuda::Driver* driver = nullptr;
  return cuda::get_driver(&driver).is_ok() ? Way::kRefuse : Way::kAtOnce;
}

Status put(World& world, void* destination, const void* source, size_t bytes, int pe, Stream stream) {
  if (bytes == 0) return Status::ok();
  void* const to = remote(world, destination, pe);
  if (bytes > kKernelBytes || !world.fabric().is_device_accessible(source)) {
    return copy(world, to, source, bytes, stream);
  }
  return world.fabric().kernels()->copy(stream, copy_task(to, source, bytes, false));
}

Status get(World& world, void* destination, const void* source, size_t bytes, int pe, Stream stream) {
  if (bytes == 0) return Status::ok();
  const void* const from = remote(world, source, pe);
  if (bytes > kKernelBytes || !world.fabric().is_device_accessible(destination)) {
    return copy(world, destination, from, bytes, stream);
  }
  return world.fabric().kernels()->copy(stream, copy_task(destination, from, bytes, true));
}

Status store(World& world, void* destination, const void* value, size_t bytes, int pe, Stream stream) {
  StoreTask task{};
  task.destination = remote(world, destination, pe);
  task.bytes = static_cast<uint32_t>(bytes);
  uint64_t words[2] = {};
  std::memcpy(words, value, bytes);
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
  CopyTask task = copy_task(remote(world, destination, pe), source, bytes, false);
  task.signal = remote(world, signal, pe);
  task.value = value;
  task.signal_op = op;
  if (bytes <= kKernelBytes && (bytes == 0 || world.fabric().is_device_accessible(source))) {
    return world.fabric().kernels()->copy(stream, task);
  }
  HEDDLE_RETURN_IF_ERROR(copy(world, task.destination, source, bytes, stream));
  return world.fabric().kernels()->signal(stream, task);
}

Status signal(World& world, uint64_t* signal, uint64_t value, int op, int pe, Stream stream) {
  CopyTask task{};
  task.signal = remote(world, signal, pe);
  task.value = value;
  task.signal_op = op;
  return world.fabric().kernels()->signal(stream, task);
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
