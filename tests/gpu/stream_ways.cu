// Which way a transfer of an on_stream call is quickest: microseconds of each way that the driver offers, in a stream
// that is idle and in one where a kernel ran before, beside the library's own calls. A measurement, not a test; two
// PEs.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "device/copy.h"
#include "device/signal.h"
#include "tests/gpu/gpu.cuh"

namespace {

namespace device = heddle::device;
using gpu::must;

// ---- kernels, like those of the library

struct Task {
  char* to;
  const char* from;
  uint32_t bytes, unit;
  uint64_t* signal;
};

__device__ void copy_unit(char* to, const char* from, uint32_t unit) {
  if (unit == 16) {
    device::ToPeer::store(reinterpret_cast<device::Vector*>(to),
                          device::ToPeer::load(reinterpret_cast<const device::Vector*>(from)));
  } else {
    device::store_unit<device::ToPeer>(to, device::load_unit<device::ToPeer>(from, unit), unit);
  }
}

__global__ void copy_units(Task task) {
  cudaGridDependencySynchronize();  // nothing where the launch is a plain one
  const uint32_t at = threadIdx.x * task.unit;
  if (at < task.bytes) copy_unit(task.to + at, task.from + at, task.unit);
  if (task.signal == nullptr) return;
  __syncthreads();
  if (threadIdx.x == 0) device::signal_release(task.signal, 5, device::kSignalSet);
}

__global__ void copy_blocks(Task task) {
  cudaGridDependencySynchronize();
  [[maybe_unused]] const uint32_t share = task.bytes / gridDim.x;  // sizes here are multiples
#if defined(__CUDA_ARCH__)                                         // scopes of kernels are not there for the host
  device::copy<device::ToPeer>(device::BlockScope(), task.to + share * blockIdx.x, task.from + share * blockIdx.x,
                               share);
#endif
  if (task.signal == nullptr) return;
  __syncthreads();
  if (threadIdx.x == 0) device::signal_release(task.signal, 5, device::kSignalSet);
}

template <int kBytes>
struct Values {
  char* to;
  uint32_t bytes, unit;
  alignas(16) char values[kBytes];
};
template <int kBytes>
__global__ void put_values(const __grid_constant__ Values<kBytes> task) {
  const uint32_t at = threadIdx.x * task.unit;
  if (at < task.bytes) copy_unit(task.to + at, task.values + at, task.unit);
}

__global__ void before(uint64_t* word) { *word += 1; }

// ---- the driver

template <class Function>
void find(const char* name, Function** function, unsigned version = 12000) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found;
  must(cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found), name);
  *function = reinterpret_cast<Function*>(address);
}

decltype(::cuMemcpyAsync)* memcpy_async;
decltype(::cuMemcpyDtoDAsync)* memcpy_dtod;
decltype(::cuMemcpy2DAsync)* memcpy_2d;
decltype(::cuStreamWriteValue64)* write_value;
decltype(::cuStreamQuery)* stream_query;
decltype(::cuLaunchKernel)* launch_kernel;
decltype(::cuLaunchKernelEx)* launch_kernel_ex;
#if CUDA_VERSION >= 13000
decltype(::cuMemcpyBatchAsync)* memcpy_batch;
#endif

void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "PE %d: FAILED: %s: CUDA error %d\n", gpu::me, what, static_cast<int>(result));
  std::_Exit(1);
}
CUdeviceptr address(const void* at) { return reinterpret_cast<CUdeviceptr>(at); }

cudaStream_t stream;
uint64_t* counter;  // what the kernel before works on

enum class Launch { kPlain, kEx, kProgrammatic, kRuntime };

template <class Argument>
void launch(Launch how, void (*kernel)(Argument), unsigned blocks, unsigned threads, const Argument& argument) {
  if (how == Launch::kRuntime) {
    kernel<<<blocks, threads, 0, stream>>>(argument);
    return must(cudaGetLastError(), "<<<>>>");
  }
  static CUfunction function = nullptr;  // one for each kind of argument
  static void (*of)(Argument) = nullptr;
  if (of != kernel) {
    cudaFunction_t found;
    must(cudaGetFuncBySymbol(&found, reinterpret_cast<const void*>(kernel)), "cudaGetFuncBySymbol");
    function = found;
    of = kernel;
  }
  void* arguments[] = {const_cast<Argument*>(&argument)};
  if (how == Launch::kPlain) {
    return check(launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr), "cuLaunchKernel");
  }
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = blocks;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = threads;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = how == Launch::kProgrammatic ? 1 : 0;
  check(launch_kernel_ex(&config, function, arguments, nullptr), "cuLaunchKernelEx");
}

void copy_by_kernel(Launch how, char* to, const char* from, size_t bytes, uint64_t* signal = nullptr) {
  Task task{to, from, static_cast<uint32_t>(bytes), bytes < 16 ? static_cast<uint32_t>(bytes) : 16, signal};
  const uint32_t units = task.bytes / task.unit;
  if (units <= 256) return launch(how, copy_units, 1, (units + 31) / 32 * 32, task);
  const unsigned blocks = signal != nullptr ? 1 : static_cast<unsigned>(std::clamp<size_t>(bytes >> 14, 1, 32));
  launch(how, copy_blocks, blocks, 256, task);
}

template <int kBytes>
void put_by_value(char* to, const char* from, size_t bytes) {
  Values<kBytes> task{};
  task.to = to;
  task.bytes = static_cast<uint32_t>(bytes);
  task.unit = bytes < 16 ? static_cast<uint32_t>(bytes) : 16;
  std::memcpy(task.values, from, bytes);
  launch(Launch::kPlain, put_values<kBytes>, 1, (task.bytes / task.unit + 31) / 32 * 32, task);
}

// ---- measuring

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
void sync() { must(cudaStreamSynchronize(stream), "sync"); }

/// Median time of call and synchronisation, or of the call alone, microseconds.
double time_of(const std::function<void()>& call, bool kernel_before, bool with_sync) {
  std::vector<double> samples;
  for (int sample = -20; sample < 200; ++sample) {
    sync();
    double start = now_us();
    if (kernel_before) before<<<1, 1, 0, stream>>>(counter);
    if (!with_sync) start = now_us();
    call();
    if (with_sync) sync();
    const double taken = now_us() - start;
    if (sample >= 0) samples.push_back(taken);
  }
  sync();
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

void row(const char* what, size_t bytes, const char* way, const std::function<void()>& call) {
  if (gpu::me != 0) return;
  const double idle = time_of(call, false, true), after = time_of(call, true, true);
  const double idle_call = time_of(call, false, false), after_call = time_of(call, true, false);
  std::printf("%-14s %7zu  %-38s %8.2f %8.2f   %8.2f %8.2f\n", what, bytes, way, idle, idle_call, after, after_call);
}

void meet(const char* title) {
  std::fflush(stdout);
  nvshmem_barrier_all();
  if (gpu::me != 0) return;
  std::printf("\n%s, microseconds             idle stream          after a kernel\n", title);
  std::printf("%-14s %7s  %-38s %8s %8s   %8s %8s\n", "", "bytes", "way", "+ sync", "call", "+ sync", "call");
}

constexpr size_t kSizes[] = {8, 64, 512, 1024, 4096, 8192, 32768, 65536, 262144};

void measure_puts(char* box, char* there, char* mine, char* pinned, char* pageable) {
  meet("put from GPU memory");
  for (const size_t bytes : kSizes) {
    row("put", bytes, "cuMemcpyAsync",
        [&] { check(memcpy_async(address(there), address(mine), bytes, stream), "copy"); });
    row("put", bytes, "cuMemcpyDtoDAsync",
        [&] { check(memcpy_dtod(address(there), address(mine), bytes, stream), "copy"); });
    row("put", bytes, "kernel, cuLaunchKernel", [&] { copy_by_kernel(Launch::kPlain, there, mine, bytes); });
    row("put", bytes, "kernel, cuLaunchKernelEx", [&] { copy_by_kernel(Launch::kEx, there, mine, bytes); });
    row("put", bytes, "kernel, programmatic launch",
        [&] { copy_by_kernel(Launch::kProgrammatic, there, mine, bytes); });
    row("put", bytes, "kernel, <<<>>>", [&] { copy_by_kernel(Launch::kRuntime, there, mine, bytes); });
    row("put", bytes, "nvshmemx_putmem_on_stream",
        [&] { nvshmemx_putmem_on_stream(box, mine, bytes, gpu::right, stream); });
  }
  meet("put from pinned and from pageable memory");
  for (const size_t bytes : kSizes) {
    row("put pinned", bytes, "cuMemcpyAsync",
        [&] { check(memcpy_async(address(there), address(pinned), bytes, stream), "copy"); });
    row("put pinned", bytes, "kernel, cuLaunchKernel", [&] { copy_by_kernel(Launch::kPlain, there, pinned, bytes); });
    row("put pinned", bytes, "nvshmemx_putmem_on_stream",
        [&] { nvshmemx_putmem_on_stream(box, pinned, bytes, gpu::right, stream); });
    row("put pageable", bytes, "cuMemcpyAsync",
        [&] { check(memcpy_async(address(there), address(pageable), bytes, stream), "copy"); });
    if (bytes == 8) {
      row("put pageable", bytes, "cuStreamWriteValue64",
          [&] { check(write_value(stream, address(there), 5, 0), "write"); });
      row("put pageable", bytes, "cuStreamWriteValue64, no fence",
          [&] { check(write_value(stream, address(there), 5, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER), "write"); });
    }
    if (bytes <= 64)
      row("put pageable", bytes, "kernel with 64 bytes", [&] { put_by_value<64>(there, pageable, bytes); });
    if (bytes <= 1024) {
      row("put pageable", bytes, "kernel with 1024 bytes", [&] { put_by_value<1024>(there, pageable, bytes); });
    }
    row("put pageable", bytes, "nvshmemx_putmem_on_stream",
        [&] { nvshmemx_putmem_on_stream(box, pageable, bytes, gpu::right, stream); });
  }
}

void measure_gets(char* box, char* there, char* mine) {
  meet("get into GPU memory");
  for (const size_t bytes : kSizes) {
    row("get", bytes, "cuMemcpyAsync",
        [&] { check(memcpy_async(address(mine), address(there), bytes, stream), "copy"); });
    row("get", bytes, "kernel, cuLaunchKernel", [&] { copy_by_kernel(Launch::kPlain, mine, there, bytes); });
    row("get", bytes, "nvshmemx_getmem_on_stream",
        [&] { nvshmemx_getmem_on_stream(mine, box, bytes, gpu::right, stream); });
  }
}

void measure_signals(char* box, char* there, char* mine) {
  auto* const signal = reinterpret_cast<uint64_t*>(box) + (1u << 16);  // behind the largest size
  auto* const at = reinterpret_cast<uint64_t*>(there) + (1u << 16);
  meet("put with signal, from GPU memory");
  for (const size_t bytes : kSizes) {
    row("put_signal", bytes, "cuMemcpyAsync, cuStreamWriteValue64", [&] {
      check(memcpy_async(address(there), address(mine), bytes, stream), "copy");
      check(write_value(stream, address(at), 5, 0), "write");
    });
    row("put_signal", bytes, "kernel, cuStreamWriteValue64", [&] {
      copy_by_kernel(Launch::kPlain, there, mine, bytes);
      check(write_value(stream, address(at), 5, 0), "write");
    });
    row("put_signal", bytes, "kernel for both", [&] { copy_by_kernel(Launch::kPlain, there, mine, bytes, at); });
    row("put_signal", bytes, "nvshmemx_putmem_signal_on_stream",
        [&] { nvshmemx_putmem_signal_on_stream(box, mine, bytes, signal, 5, NVSHMEM_SIGNAL_SET, gpu::right, stream); });
  }
}

void measure_strided(char* box, char* there, char* pageable) {
  meet("iput of 8-byte elements from pageable memory, stride 2");
  for (const size_t count : {size_t{4}, size_t{64}, size_t{1024}}) {
    row("iput", 8 * count, "cuMemcpy2DAsync", [&] {
      CUDA_MEMCPY2D copy{};
      copy.srcMemoryType = CU_MEMORYTYPE_HOST;
      copy.srcHost = pageable;
      copy.srcPitch = copy.dstPitch = 16;
      copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      copy.dstDevice = address(there);
      copy.WidthInBytes = 8;
      copy.Height = count;
      check(memcpy_2d(&copy, stream), "cuMemcpy2DAsync");
    });
#if CUDA_VERSION >= 13000
    std::vector<CUdeviceptr> to, from;
    std::vector<size_t> sizes(count, 8);
    for (size_t i = 0; i < count; ++i)
      to.push_back(address(there + 16 * i)), from.push_back(address(pageable + 16 * i));
    if (memcpy_batch != nullptr) {
      row("iput", 8 * count, "cuMemcpyBatchAsync", [&] {
        CUmemcpyAttributes attributes{};
        attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
        size_t first = 0;
        check(memcpy_batch(to.data(), from.data(), sizes.data(), count, &attributes, &first, 1, stream), "batch");
      });
    }
#endif
    row("iput", 8 * count, "cuMemcpyAsync in a loop", [&] {
      for (size_t i = 0; i < count; ++i) {
        check(memcpy_async(address(there + 16 * i), address(pageable + 16 * i), 8, stream), "copy");
      }
    });
    row("iput", 8 * count, "nvshmemx_uint64_iput_on_stream", [&] {
      nvshmemx_uint64_iput_on_stream(reinterpret_cast<uint64_t*>(box), reinterpret_cast<uint64_t*>(pageable), 2, 2,
                                     count, gpu::right, stream);
    });
  }
}

}  // namespace

int main() {
  gpu::start();
  constexpr size_t kBytes = 1u << 20;
  auto* const box = gpu::allocate<char>(kBytes);
  auto* const mine = gpu::allocate<char>(kBytes);
  auto* const there = static_cast<char*>(nvshmem_ptr(box, gpu::right));
  if (there == nullptr) gpu::skip("the peer's memory is not mapped");
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  must(cudaMalloc(&counter, 8), "cudaMalloc");
  std::vector<char> pageable(kBytes, 3);
  char* pinned = nullptr;
  must(cudaMallocHost(&pinned, kBytes), "pinned");
  find("cuMemcpyAsync", &memcpy_async);
  find("cuMemcpyDtoDAsync", &memcpy_dtod);
  find("cuMemcpy2DAsync", &memcpy_2d);
  find("cuStreamWriteValue64", &write_value);
  find("cuStreamQuery", &stream_query);
  find("cuLaunchKernel", &launch_kernel);
  find("cuLaunchKernelEx", &launch_kernel_ex);
#if CUDA_VERSION >= 13000
  int version = 0;
  must(cudaDriverGetVersion(&version), "version");
  if (version >= 13000) find("cuMemcpyBatchAsync", &memcpy_batch, 13000);
#endif
  meet("floor");
  row("nothing", 0, "", [] {});
  row("query", 0, "cuStreamQuery", [] { (void)stream_query(stream); });
  row("kernel", 0, "<<<1, 1>>>", [] { before<<<1, 1, 0, stream>>>(counter); });
  measure_puts(box, there, mine, pinned, pageable.data());
  measure_gets(box, there, mine);
  measure_signals(box, there, mine);
  measure_strided(box, there, pageable.data());
  nvshmem_barrier_all();
  must(cudaFreeHost(pinned), "cudaFreeHost");
  must(cudaFree(counter), "cudaFree");
  must(cudaStreamDestroy(stream), "stream");
  nvshmem_free(mine);
  nvshmem_free(box);
  gpu::that(true, "measured");
  return gpu::finish("stream_ways");
}
