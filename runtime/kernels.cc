#include "runtime/kernels.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "runtime/device_state.h"

#ifndef HEDDLE_KERNELS_IMAGE
#error "HEDDLE_KERNELS_IMAGE must name the fat binary that nvcc made from kernels.cu"
#endif

// The fat binary, in read-only data. Aligned as the driver wants it.
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".globl heddle_kernels_image\n"
    ".hidden heddle_kernels_image\n"
    "heddle_kernels_image:\n"
    ".incbin \"" HEDDLE_KERNELS_IMAGE
    "\"\n"
    ".popsection\n");
extern "C" const unsigned char heddle_kernels_image[];  // NOLINT(readability-identifier-naming): the assembler's name

namespace heddle {
namespace {

constexpr const char* kNames[] = {"heddle_store",   "heddle_copy_units", "heddle_copy", "heddle_signal",
                                  "heddle_strided", "heddle_atomic",     "heddle_wait", "heddle_barrier"};
constexpr unsigned kThreads = 256;
constexpr uint64_t kBytesPerBlock = 16u << 10;
constexpr uint64_t kMostBlocks = 32;

unsigned blocks_for(uint64_t work, uint64_t per_block) {
  return static_cast<unsigned>(std::clamp<uint64_t>((work + per_block - 1) / per_block, 1, kMostBlocks));
}

/// Whole warps, at most kThreads.
unsigned threads_for(uint64_t units) {
  return static_cast<unsigned>(std::clamp<uint64_t>((units + 31) / 32 * 32, 32, kThreads));
}

/// The largest unit, 1 to 16 bytes, that both addresses and the size are multiples of.
uint32_t unit_of(const void* to, const void* from, uint64_t bytes) {
  const auto bits =
      static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) | 16;
  return bits & (0 - bits);
}

}  // namespace

Status Kernels::load(const std::shared_ptr<Gpu>& gpu, std::unique_ptr<Kernels>* kernels) {
  std::unique_ptr<Kernels> fresh(new Kernels(gpu));
  HEDDLE_RETURN_IF_ERROR(fresh->load_all().in("loading the library's kernels into " + gpu->name()));
  *kernels = std::move(fresh);
  return Status::ok();
}

Status Kernels::load_all() {
  static_assert(std::size(kNames) == kCount);
  const cuda::Driver& driver = gpu_->driver();
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  CUresult result = driver.LibraryLoadData(&library_, heddle_kernels_image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  if (result != CUDA_SUCCESS) return cuda_error(driver, result, "cuLibraryLoadData", "the library's kernels");
  for (int i = 0; i < kCount; ++i) {
    result = driver.LibraryGetKernel(&kernels_[i], library_, kNames[i]);
    if (result != CUDA_SUCCESS) return cuda_error(driver, result, "cuLibraryGetKernel", "%s", kNames[i]);
    result = driver.KernelGetFunction(&functions_[i], kernels_[i]);
    if (result != CUDA_SUCCESS) return cuda_error(driver, result, "cuKernelGetFunction", "%s", kNames[i]);
    if (driver.FuncLoad == nullptr) continue;
    result = driver.FuncLoad(functions_[i]);
    if (result != CUDA_SUCCESS) return cuda_error(driver, result, "cuFuncLoad", "%s", kNames[i]);
  }
  size_t bytes = 0;
  result = driver.LibraryGetGlobal(&state_, &bytes, library_, "heddle_device_state_d");
  if (result != CUDA_SUCCESS) return cuda_error(driver, result, "cuLibraryGetGlobal", "heddle_device_state_d");
  uint32_t version = 0;
  HEDDLE_RETURN_IF_ERROR(read_state_version(*gpu_, state_, &version));
  return check_state_version("the library's own fat binary", version, bytes, 0);
}

Kernels::~Kernels() {
  if (library_ == nullptr) return;
  const ContextScope scope(*gpu_);
  (void)gpu_->driver().LibraryUnload(library_);  // nothing can be done about a failure
}

Status Kernels::set_state(CUstream stream, const device::DeviceState& state) const {
  return copy_to_device(*gpu_, stream, state_, &state, sizeof state, "the state of the library's kernels");
}

Status Kernels::launch(Which which, CUstream stream, unsigned blocks, unsigned threads, const void* task) const {
  const cuda::Driver& driver = gpu_->driver();
  // A stream belongs to a context, mostly the current one. Where the thread has none, ours is meant.
  CUcontext current = nullptr;
  std::optional<ContextScope> scope;
  if (driver.CtxGetCurrent(&current) != CUDA_SUCCESS || current == nullptr) {
    scope.emplace(*gpu_);
    current = gpu_->context();
  }
  void* parameters[] = {const_cast<void*>(task)};
  // The driver takes kernels of libraries wherever it takes functions; only they are good for any context.
  const auto function = current == gpu_->context() ? functions_[which] : reinterpret_cast<CUfunction>(kernels_[which]);
  const CUresult result = driver.LaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream,
                                              task == nullptr ? nullptr : parameters, nullptr);
  if (result == CUDA_SUCCESS) return Status::ok();
  return cuda_error(driver, result, "cuLaunchKernel", "%s, %u blocks of %u threads, stream %p, %s", kNames[which],
                    blocks, threads, static_cast<void*>(stream), gpu_->name().c_str());
}

Status Kernels::store(CUstream stream, const StoreTask& task) const {
  StoreTask by_units = task;
  by_units.unit = std::min(unit_of(task.destination, nullptr, task.bytes), 8u);
  return launch(kStore, stream, 1, 1, &by_units);
}

Status Kernels::copy(CUstream stream, const CopyTask& task) const {
  CopyTask by_units = task;
  by_units.unit = unit_of(task.destination, task.source, task.bytes);
  if (task.bytes / by_units.unit <= kThreads) {
    return launch(kCopyUnits, stream, 1, threads_for(task.bytes / by_units.unit), &by_units);
  }
  const unsigned blocks = task.signal != nullptr ? 1 : blocks_for(task.bytes, kBytesPerBlock);
  return launch(kCopy, stream, blocks, threads_for(task.bytes / 8), &task);
}

Status Kernels::signal(CUstream stream, const CopyTask& task) const { return launch(kSignal, stream, 1, 1, &task); }

Status Kernels::strided(CUstream stream, const StridedTask& task) const {
  constexpr uint64_t kElementsPerThread = 4;
  return launch(kStrided, stream, blocks_for(task.count, kElementsPerThread * kThreads), threads_for(task.count),
                &task);
}

Status Kernels::atomic(CUstream stream, const AtomicTask& task) const { return launch(kAtomic, stream, 1, 1, &task); }

Status Kernels::wait(CUstream stream, const WaitTask& task) const {
  return launch(kWait, stream, 1, task.count <= 1 ? 1 : threads_for(task.count), &task);
}

Status Kernels::barrier(CUstream stream, int n_pes) const {
  return launch(kBarrier, stream, 1, threads_for(static_cast<uint64_t>(n_pes)), nullptr);
}

Status copy_to_device(const Gpu& gpu, CUstream stream, CUdeviceptr to, const void* from, size_t bytes,
                      const char* what) {
  const cuda::Driver& driver = gpu.driver();
  const ContextScope scope(gpu);
  const RelaxedCapture relaxed(gpu);
  CUresult result = driver.MemcpyHtoDAsync(to, from, bytes, stream);
  if (result == CUDA_SUCCESS) result = driver.StreamSynchronize(stream);
  if (result == CUDA_SUCCESS) return Status::ok();
  return cuda_error(driver, result, "cuMemcpyHtoDAsync", "%zu bytes to %p on %s: %s", bytes,
                    reinterpret_cast<void*>(to), gpu.name().c_str(), what);
}

Status read_state_version(const Gpu& gpu, CUdeviceptr state, uint32_t* version) {
  static_assert(offsetof(device::DeviceState, version) == 0);
  const cuda::Driver& driver = gpu.driver();
  const ContextScope scope(gpu);
  const RelaxedCapture relaxed(gpu);
  CUstream stream = nullptr;
  CUresult result = driver.StreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (result != CUDA_SUCCESS) return cuda_error(driver, result, "cuStreamCreate", "%s", gpu.name().c_str());
  result = driver.MemcpyDtoHAsync(version, state, sizeof *version, stream);
  if (result == CUDA_SUCCESS) result = driver.StreamSynchronize(stream);
  (void)driver.StreamDestroy(stream);
  if (result == CUDA_SUCCESS) return Status::ok();
  return cuda_error(driver, result, "cuMemcpyDtoHAsync", "the version of a state of kernels at %p on %s",
                    reinterpret_cast<void*>(state), gpu.name().c_str());
}

}  // namespace heddle
