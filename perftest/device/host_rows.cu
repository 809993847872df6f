// Calls of the host on memory of GPUs, and what set-up costs; raw is the CUDA call that does the same.
#include <nvshmem.h>
#include <nvshmemx.h>

#include <type_traits>

#include "perftest/common/statistics.h"
#include "perftest/device/rows.h"

namespace perftest {
namespace {

constexpr size_t kBytes = 8;

[[maybe_unused]] __global__ void empty_kernel() {}

/// Does the library have calls on streams? They are found, or not, where these templates are used.
template <class Stream, class = void>
struct HasStreamCalls : std::false_type {};
template <class Stream>
struct HasStreamCalls<Stream, std::void_t<decltype(nvshmemx_putmem_on_stream(nullptr, nullptr, 0, 0, Stream())),
                                          decltype(nvshmemx_barrier_all_on_stream(Stream()))>> : std::true_type {};

/// Medians of batches of a host call, ours and raw in turns; on the active PE, or on both where `both`. Collective.
bool measure_calls(Session& session, Row* row, bool both, const std::function<void()>& ours,
                   const std::function<void()>& raw) {
  row->figure = Figure::kLatency;
  const int batch = std::max(1, 200 / session.options().divide);
  std::vector<double> our_us, raw_us;
  bool good = true;
  const auto sample = [&](const std::function<void()>& call, std::vector<double>* samples) {
    if (both) session.barrier();
    const double start = now_us();
    for (int i = 0; i < batch; ++i) call();
    good = session.finish() && good;
    samples->push_back((now_us() - start) / batch);
  };
  for (int i = -1; i < session.options().samples && (both || session.active()); ++i) {
    if (i == 0) {  // the first round warmed up
      our_us.clear();
      raw_us.clear();
    }
    sample(ours, &our_us);
    if (raw) sample(raw, &raw_us);
  }
  if (!our_us.empty()) {
    row->us = percentile(our_us, 0.5);
    row->us_p99 = percentile(our_us, 0.99);
    if (raw) row->raw = percentile(raw_us, 0.5);
  }
  return session.all_true(good);
}

bool measure_put(Session& session, Row* row) {
  row->scope = "host";
  row->bytes = kBytes;
  const auto put = [&] {
    nvshmem_putmem(session.target(), session.source(), kBytes, session.peer());
    nvshmem_quiet();
  };
  Transfer transfer;
  transfer.bytes = kBytes;
  transfer.one_place = true;
  if (!session.check(transfer, [&](int) { put(); })) return false;
  return measure_calls(session, row, false, put, [&] {
    must(cudaMemcpyAsync(session.peer_target(), session.source(), kBytes, cudaMemcpyDeviceToDevice, session.stream()),
         "cudaMemcpyAsync to the peer");
    must(cudaStreamSynchronize(session.stream()), "cudaStreamSynchronize");
  });
}

/// A kernel, a put of what it made, and the end of both: the whole time, as a program sees it.
template <class Stream>
bool measure_put_on_stream(Session& session, Row* row) {
  const Stream stream = session.stream();
  row->scope = "stream";
  row->bytes = kBytes;
  const auto kernel_then = [&](const auto& copy) {
    empty_kernel<<<1, 1, 0, session.stream()>>>();
    copy();
    must(cudaStreamSynchronize(session.stream()), "cudaStreamSynchronize");
  };
  const auto put = [&] {
    kernel_then([&] { nvshmemx_putmem_on_stream(session.target(), session.source(), kBytes, session.peer(), stream); });
  };
  Transfer transfer;
  transfer.bytes = kBytes;
  transfer.one_place = true;
  if (!session.check(transfer, [&](int) { put(); })) return false;
  return measure_calls(session, row, false, put, [&] {
    kernel_then([&] {
      must(cudaMemcpyAsync(session.peer_target(), session.source(), kBytes, cudaMemcpyDeviceToDevice, session.stream()),
           "cudaMemcpyAsync to the peer");
    });
  });
}

bool measure_barrier(Session& session, Row* row) {
  row->scope = "host";
  return measure_calls(session, row, true, [] { nvshmem_barrier_all(); }, {});
}

/// Enqueued back to back, so that the GPUs meet without the host.
template <class Stream>
bool measure_barrier_on_stream(Session& session, Row* row) {
  const Stream stream = session.stream();
  row->scope = "stream";
  return measure_calls(session, row, true, [stream] { nvshmemx_barrier_all_on_stream(stream); }, {});
}

bool measure_init(Session& session, Row* row) {
  row->scope = "host";
  row->figure = Figure::kLatency;
  row->us = session.init_us();
  row->raw = session.context_us();
  return true;
}

bool measure_memory(Session& session, Row* row) {
  row->scope = "host";
  row->figure = Figure::kLatency;
  row->bytes = session.library_bytes();
  return true;
}

}  // namespace

std::vector<RowEntry> host_rows() {
  std::vector<RowEntry> rows = {
      {"init", measure_init, true},
      {"gpu_memory", measure_memory, true},
      {"host_put_8", measure_put},
      {"barrier_all_host", measure_barrier},
  };
  if constexpr (HasStreamCalls<cudaStream_t>::value) {
    rows.push_back({"put_on_stream_8", measure_put_on_stream<cudaStream_t>});
    rows.push_back({"barrier_all_on_stream", measure_barrier_on_stream<cudaStream_t>});
  }
  return rows;
}

}  // namespace perftest
