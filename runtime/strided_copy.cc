#include "runtime/strided_copy.h"

#include <algorithm>
#include <cinttypes>
#include <vector>

namespace heddle {
namespace {

/// Pieces that are given to the driver by one call, which bounds the memory that their list takes.
constexpr uint64_t kPiecesAtOnce = 1024;

struct Pieces {
  std::vector<CUdeviceptr> to, from;
  std::vector<size_t> bytes;
};

/// True when the stream has the pieces of `pieces` as one batch; false where it cannot, and then nothing was enqueued
/// that may not be enqueued again.
bool enqueue_batch(const cuda::Driver& driver, CUstream stream, Pieces& pieces, bool source_is_pageable) {
#if CUDA_VERSION >= 13000
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  // The legacy stream takes no batches, and a capture would be lost by a call that it forbids.
  if (driver.MemcpyBatchAsync == nullptr || stream == nullptr || stream == CU_STREAM_LEGACY || pieces.to.size() < 2 ||
      driver.StreamIsCapturing(stream, &capture) != CUDA_SUCCESS || capture != CU_STREAM_CAPTURE_STATUS_NONE) {
    return false;
  }
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder =
      source_is_pageable ? CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL : CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  size_t first = 0;
  return driver.MemcpyBatchAsync(pieces.to.data(), pieces.from.data(), pieces.bytes.data(), pieces.to.size(),
                                 &attributes, &first, 1, stream) == CUDA_SUCCESS;
#else
  return (void)driver, (void)stream, (void)pieces, (void)source_is_pageable, false;
#endif
}

Status copy_pieces(const Gpu& gpu, CUstream stream, const StridedTask& task, bool source_is_pageable) {
  const cuda::Driver& driver = gpu.driver();
  const auto place = [&](const void* base, int64_t stride, uint64_t i) {
    return cuda::device_pointer(base) + i * static_cast<uint64_t>(stride) * task.element;
  };
  for (uint64_t first = 0; first < task.count; first += kPiecesAtOnce) {
    Pieces pieces;
    for (uint64_t i = first; i < std::min(task.count, first + kPiecesAtOnce); ++i) {
      pieces.to.push_back(place(task.destination, task.destination_stride, i));
      pieces.from.push_back(place(task.source, task.source_stride, i));
      pieces.bytes.push_back(task.element);
    }
    if (enqueue_batch(driver, stream, pieces, source_is_pageable)) continue;
    for (size_t i = 0; i < pieces.to.size(); ++i) {
      const CUresult result = driver.MemcpyAsync(pieces.to[i], pieces.from[i], pieces.bytes[i], stream);
      if (result == CUDA_SUCCESS) continue;
      return cuda_error(driver, result, "cuMemcpyAsync", "element %" PRIu64 " of %" PRIu64 ", %u bytes from %p to %p",
                        first + i, task.count, task.element, reinterpret_cast<void*>(pieces.from[i]),
                        reinterpret_cast<void*>(pieces.to[i]));
    }
  }
  return Status::ok();
}

}  // namespace

Status copy_strided(const Gpu& gpu, CUstream stream, const StridedTask& task, LocalMemory local) {
  const bool is_get = task.is_get != 0;
  const auto most = static_cast<uint64_t>(gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH));
  if (static_cast<uint64_t>(std::max(task.destination_stride, task.source_stride)) > most / task.element) {
    return copy_pieces(gpu, stream, task, !is_get && local == LocalMemory::kPageable);
  }
  const auto pitch = [&](int64_t stride) { return static_cast<size_t>(stride) * task.element; };
  const CUmemorytype mapped = local == LocalMemory::kPageable ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED;
  const CUmemorytype own = local == LocalMemory::kPageable ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_UNIFIED;
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = is_get ? mapped : own;
  copy.srcHost = task.source;
  copy.srcDevice = cuda::device_pointer(task.source);
  copy.srcPitch = pitch(task.source_stride);
  copy.dstMemoryType = is_get ? own : mapped;
  copy.dstHost = task.destination;
  copy.dstDevice = cuda::device_pointer(task.destination);
  copy.dstPitch = pitch(task.destination_stride);
  copy.WidthInBytes = task.element;
  copy.Height = task.count;
  const CUresult result = gpu.driver().Memcpy2DAsync(&copy, stream);
  if (result == CUDA_SUCCESS) return Status::ok();
  return cuda_error(gpu.driver(), result, "cuMemcpy2DAsync",
                    "%" PRIu64 " elements of %u bytes from %p, pitch %zu, to %p, pitch %zu", task.count, task.element,
                    task.source, copy.srcPitch, task.destination, copy.dstPitch);
}

}  // namespace heddle
