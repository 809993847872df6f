// put_latency and get_latency: one transfer at a time, complete before the next.
#pragma once

#include "perftest/common/bench.h"

namespace perftest {

/// Sweeps the sizes on PE 0: put and quiet, or get.
template <bool kPut>
bool measure_latency(Bench& bench, const char* test) {
  if (!bench.need_two_pes()) return false;
  Buffers buffers;
  if (!buffers.make(bench, bench.options().max_size)) return false;
  const bool active = bench.me() == 0;
  const int peer = bench.peer();
  std::byte* const source = buffers.source();
  std::byte* const target = buffers.target();
  std::byte* const twin = buffers.peer_twin();

  for (const uint64_t bytes : bench.options().sizes()) {
    bench.report().progress(std::to_string(bytes) + " bytes");
    const auto ours = [=](int count) {
      for (int i = 0; i < count; ++i) {
        if constexpr (kPut) {
          pgas::put(target, source, bytes, peer);
          pgas::quiet();
        } else {
          pgas::get(target, source, bytes, peer);
        }
      }
    };
    const auto raw = [=](int count) {
      for (int i = 0; i < count; ++i) {
        if constexpr (kPut) {
          memcpy(twin, source, bytes);
          std::atomic_thread_fence(std::memory_order_seq_cst);  // what a quiet has to do at least
        } else {
          memcpy(target, twin, bytes);
          compiler_barrier();
        }
      }
    };
    const int batch = bench.batch_for(ours);
    Timing timing;
    if (active) {
      const auto nothing = [] {};
      timing = buffers.has_twin() ? bench.times(batch, ours, raw, nothing) : bench.times(batch, ours, nullptr, nothing);
    }
    pgas::barrier_all();
    if (!buffers.check(bench, bytes, kPut, active, [&] { ours(1); })) return false;
    Row row{test, bytes, timing.us, timing.us_p99};
    row.gbps = static_cast<double>(bytes) * 1e-3 / timing.us;
    row.raw = timing.raw_us;
    bench.report().add(row);
  }
  return true;
}

inline Options latency_defaults() {
  Options options;
  options.max_size = 64u << 10;
  return options;
}

}  // namespace perftest
