// put_bw and get_bw: many transfers in flight, one quiet, against memcpy on plain shared memory in the same loop.
#pragma once

#include "perftest/common/bench.h"

namespace perftest {

/// Sweeps the sizes with PE 0 moving data (both PEs with --bidir). `kPut`: to the peer, else from it.
template <bool kPut>
bool measure_bandwidth(Bench& bench, const char* test) {
  if (!bench.need_two_pes()) return false;
  Buffers buffers;
  if (!buffers.make(bench, bench.options().max_size)) return false;
  const bool both = bench.options().bidir;
  const bool active = both || bench.me() == 0;
  const int peer = bench.peer();
  std::byte* const source = buffers.source();
  std::byte* const target = buffers.target();
  std::byte* const twin = buffers.peer_twin();

  for (const uint64_t bytes : bench.options().sizes()) {
    bench.report().progress(std::to_string(bytes) + " bytes");
    const auto ours = [=](int count) {
      for (int i = 0; i < count; ++i) {
        if constexpr (kPut) {
          pgas::put_nbi(target, source, bytes, peer);
        } else {
          pgas::get_nbi(target, source, bytes, peer);
        }
      }
      pgas::quiet();
    };
    // The same local buffer on our side of the copy; only the far side differs.
    const auto raw = [=](int count) {
      for (int i = 0; i < count; ++i) {
        if constexpr (kPut) {
          memcpy(twin, source, bytes);
        } else {
          memcpy(target, twin, bytes);
        }
        compiler_barrier();
      }
      std::atomic_thread_fence(std::memory_order_seq_cst);  // as quiet: the data are visible before time is read
    };
    const auto before = [=] {
      if (both) pgas::barrier_all();
    };
    const int batch = bench.batch_for(ours);
    Timing timing;
    if (active) {
      timing = buffers.has_twin() ? bench.times(batch, ours, raw, before) : bench.times(batch, ours, nullptr, before);
    }
    pgas::barrier_all();
    if (!buffers.check(bench, bytes, kPut, active, [&] { ours(1); })) return false;
    const double moved = static_cast<double>(bytes) * (both ? 2 : 1) * 1e-3;  // thousands of bytes per us are GB/s
    Row row{test, bytes, timing.us, timing.us_p99};
    row.gbps = moved / timing.us;
    if (timing.raw_us > 0) row.raw = moved / timing.raw_us;
    bench.report().add(row);
  }
  return true;
}

}  // namespace perftest
