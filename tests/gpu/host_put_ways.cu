// Which way an 8-byte put of the host is quickest: microseconds of each way that the driver offers, of a put alone and
// of a put that is completed, beside the library's own calls. A measurement, not a test; two PEs.
#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "tests/gpu/gpu.cuh"

namespace {

using gpu::must;

__global__ void store(uint64_t* to, uint64_t value) { *to = value; }

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Median over samples of the time of one call, microseconds.
double time_of(const std::function<void()>& call, int batch) {
  std::vector<double> samples;
  for (int sample = 0; sample < 50; ++sample) {
    const double start = now_us();
    for (int i = 0; i < batch; ++i) call();
    samples.push_back((now_us() - start) / batch);
    must(cudaDeviceSynchronize(), "drain");
    nvshmem_quiet();
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

void report(const char* name, const std::function<void()>& put, const std::function<void()>& complete) {
  if (gpu::me == 0) {
    const double alone = time_of(put, 20), complete_us = time_of([&] { put(), complete(); }, 20);
    std::printf("%-44s put alone %7.2f us   put and completion %7.2f us\n", name, alone, complete_us);
  }
  nvshmem_barrier_all();
}

}  // namespace

int main() {
  gpu::start();
  auto* const word = gpu::allocate<uint64_t>(1);
  auto* const mine = gpu::allocate<uint64_t>(1);
  auto* const there = static_cast<uint64_t*>(nvshmem_ptr(word, gpu::right));
  if (there == nullptr) gpu::skip("the peer's memory is not mapped");
  cudaStream_t stream;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  uint64_t value = 5;
  uint64_t* pinned = nullptr;
  must(cudaMallocHost(&pinned, 4096), "pinned");
  using WriteValue = CUresult (*)(CUstream, CUdeviceptr, cuuint64_t, unsigned);
  void* write_value = nullptr;
  cudaDriverEntryPointQueryResult found;
  must(cudaGetDriverEntryPointByVersion("cuStreamWriteValue64", &write_value, 12000, cudaEnableDefault, &found),
       "entry");
  const auto write = reinterpret_cast<WriteValue>(write_value);
  const auto sync = [&] { must(cudaStreamSynchronize(stream), "sync"); };
  const auto at = reinterpret_cast<CUdeviceptr>(there);
  std::printf("PE %d: cuStreamWriteValue64 to the peer: %d\n", gpu::me, static_cast<int>(write(stream, at, 5, 0)));
  sync();
  nvshmem_barrier_all();

  report(
      "cudaMemcpyAsync from pageable memory",
      [&] { must(cudaMemcpyAsync(there, &value, 8, cudaMemcpyHostToDevice, stream), "copy"); }, sync);
  report(
      "cudaMemcpyAsync, direction left to the driver",
      [&] { must(cudaMemcpyAsync(there, &value, 8, cudaMemcpyDefault, stream), "copy"); }, sync);
  report(
      "cudaMemcpyAsync from pinned memory",
      [&] { must(cudaMemcpyAsync(there, pinned, 8, cudaMemcpyHostToDevice, stream), "copy"); }, sync);
  report(
      "cudaMemcpyAsync from GPU memory",
      [&] { must(cudaMemcpyAsync(there, mine, 8, cudaMemcpyDefault, stream), "copy"); }, sync);
  report(
      "cuStreamWriteValue64", [&] { (void)write(stream, at, 5, 0); }, sync);
  report(
      "a kernel of one thread", [&] { store<<<1, 1, 0, stream>>>(there, value); }, sync);
  report(
      "nvshmem_uint64_p", [&] { nvshmem_uint64_p(word, 5, gpu::right); }, nvshmem_quiet);
  report(
      "nvshmem_putmem from pageable memory", [&] { nvshmem_putmem(word, &value, 8, gpu::right); }, nvshmem_quiet);
  report(
      "nvshmem_putmem from GPU memory", [&] { nvshmem_putmem(word, mine, 8, gpu::right); }, nvshmem_quiet);
  report(
      "nvshmem_putmem_nbi from GPU memory", [&] { nvshmem_putmem_nbi(word, mine, 8, gpu::right); }, nvshmem_quiet);
  report(
      "nvshmemx_signal_op", [&] { nvshmemx_signal_op(word, 5, NVSHMEM_SIGNAL_SET, gpu::right); }, nvshmem_quiet);
  report(
      "nvshmem_uint64_g", [&] { (void)nvshmem_uint64_g(word, gpu::right); }, [] {});
  report(
      "nvshmem_uint64_atomic_fetch_add", [&] { (void)nvshmem_uint64_atomic_fetch_add(word, 1, gpu::right); }, [] {});
  report(
      "nvshmemx_uint64_p_on_stream", [&] { nvshmemx_uint64_p_on_stream(word, 5, gpu::right, stream); }, sync);
  report(
      "nvshmemx_uint64_put_on_stream", [&] { nvshmemx_uint64_put_on_stream(word, mine, 1, gpu::right, stream); }, sync);
  gpu::that(true, "measured");
  return gpu::finish("host_put_ways");
}
