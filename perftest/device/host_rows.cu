// Calls of the host on memory of GPUs, and what set-up costs; raw is the CUDA call that does the same.
#include <nvshmem.h>
#include <nvshmemx.h>

#include <type_traits>

#include "perftest/common/statistics.h"
#include "perftest/device/rows.h"
#include "perftest/device/timing.cuh"

namespace perftest {
namespace {

constexpr size_t kBytes = 8;

[[maybe_unused]] __global__ void empty_kernel() {}

/// Does the library have calls on streams? They are found, or not, where these templates are used.
template <class Stream, class = void>
struct HasStreamCalls : std::false_type {};
template <class Stream>
struct HasStreamCalls<Stream, std::void_t<decltype(nvshmemx_putmem_on_stream(nullptr, nullptr, 0, 0, Stream())),
                                          decltype(nvshmemx_getmem_on_stream(nullptr, nullptr, 0, 0, Stream())),
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

void sync(Session& session) { must(cudaStreamSynchronize(session.stream()), "cudaStreamSynchronize"); }

/// A call that moves 8 bytes, complete before the next; the first one is checked. `raw_copy` moves them on the stream.
bool measure_move(Session& session, Row* row, bool put, const std::function<void()>& move,
                  const std::function<void()>& raw_copy) {
  row->bytes = kBytes;
  Transfer transfer;
  transfer.bytes = kBytes;
  transfer.put = put;
  transfer.one_place = true;
  if (!session.check(transfer, [&](int) { move(); })) return false;
  return measure_calls(session, row, false, move, [&] {
    raw_copy();
    sync(session);
  });
}

bool measure_put(Session& session, Row* row) {
  row->scope = "host";
  const auto put = [&] {
    nvshmem_putmem(session.target(), session.source(), kBytes, session.peer());
    nvshmem_quiet();
  };
  return measure_move(session, row, true, put, [&] { cuda_copies(session, true, kBytes)(1); });
}

bool measure_get(Session& session, Row* row) {
  row->scope = "host";
  const auto get = [&] { nvshmem_getmem(session.target(), session.source(), kBytes, session.peer()); };
  return measure_move(session, row, false, get, [&] { cuda_copies(session, false, kBytes)(1); });
}

bool measure_p(Session& session, Row* row) {
  row->scope = "host";
  row->bytes = kBytes;
  uint64_t value = 0;
  const auto p = [&] {
    nvshmem_uint64_p(reinterpret_cast<uint64_t*>(session.target()), ++value, session.peer());
    nvshmem_quiet();
  };
  return measure_calls(session, row, false, p, [&] {
    must(cudaMemcpyAsync(session.peer_target(), &value, kBytes, cudaMemcpyHostToDevice, session.stream()),
         "cudaMemcpyAsync to the peer");
    sync(session);
  });
}

bool measure_g(Session& session, Row* row) {
  row->scope = "host";
  row->bytes = kBytes;
  const auto g = [&] { (void)nvshmem_uint64_g(reinterpret_cast<uint64_t*>(session.source()), session.peer()); };
  return measure_calls(session, row, false, g, [&] {
    uint64_t value = 0;
    must(cudaMemcpyAsync(&value, session.peer_source(), kBytes, cudaMemcpyDeviceToHost, session.stream()),
         "cudaMemcpyAsync from the peer");
    sync(session);
  });
}

template <class Stream>
void move_on_stream(Session& session, bool put, size_t bytes, Stream stream) {
  if (put) {
    nvshmemx_putmem_on_stream(session.target(), session.source(), bytes, session.peer(), stream);
  } else {
    nvshmemx_getmem_on_stream(session.target(), session.source(), bytes, session.peer(), stream);
  }
}

/// A kernel, a put of what it made or a get, and the end of both: the whole time, as a program sees it.
template <class Stream>
RowEntry move_on_stream_row(const char* name, bool put) {
  return {name, [=](Session& session, Row* row) {
            row->scope = "stream";
            const auto kernel = [&] { empty_kernel<<<1, 1, 0, session.stream()>>>(); };
            const auto move = [&] {
              kernel();
              move_on_stream<Stream>(session, put, kBytes, session.stream());
              sync(session);
            };
            return measure_move(session, row, put, move, [&] {
              kernel();
              cuda_copies(session, put, kBytes)(1);
            });
          }};
}

/// Large transfers, enqueued back to back.
template <class Stream>
RowEntry bandwidth_on_stream_row(const char* name, bool put) {
  return {name, [=](Session& session, Row* row) {
            row->scope = "stream";
            Transfer transfer;
            transfer.bytes = Session::kBufferBytes;
            transfer.put = put;
            const Launch move = [=, &session](int iterations) {
              for (int i = 0; i < iterations; ++i) {
                move_on_stream<Stream>(session, put, Session::kBufferBytes, session.stream());
              }
            };
            return session.measure_bandwidth(row, transfer, move, cuda_copies(session, put, transfer.bytes));
          }};
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
  row->bytes = session.init_bytes();
  return true;
}

}  // namespace

std::vector<RowEntry> host_rows() {
  std::vector<RowEntry> rows = {
      {"init", measure_init, true},
      {"gpu_memory", measure_memory, true},
      {"host_put_8", measure_put},
      {"host_get_8", measure_get},
      {"host_p", measure_p},
      {"host_g", measure_g},
      {"barrier_all_host", measure_barrier},
  };
  if constexpr (HasStreamCalls<cudaStream_t>::value) {
    rows.push_back(move_on_stream_row<cudaStream_t>("put_on_stream_8", true));
    rows.push_back(move_on_stream_row<cudaStream_t>("get_on_stream_8", false));
    rows.push_back(bandwidth_on_stream_row<cudaStream_t>("put_on_stream_bw", true));
    rows.push_back(bandwidth_on_stream_row<cudaStream_t>("get_on_stream_bw", false));
    rows.push_back({"barrier_all_on_stream", measure_barrier_on_stream<cudaStream_t>});
  }
  return rows;
}

}  // namespace perftest
