// The ping-pong tests: half a round trip of a message between two PEs, against two plain cache lines.
#pragma once

#include "perftest/common/bench.h"

namespace perftest {

constexpr int kPingPongBatch = 1000;  ///< round trips a sample

/// Times send(turn) and wait(turn), turn = 1, 2, ...: PE 0 sends first. A row of half round trips; false when a check
/// failed. `copy` is the plain twin of the data in a message. `check` runs after the timing on every PE and returns
/// false when its data are wrong.
template <class Send, class Wait, class Copy, class Check>
bool measure_ping_pong(Bench& bench, const char* test, uint64_t bytes, const Lines& lines, int raw_line, Send send,
                       Wait wait, Copy copy, Check check) {
  const bool first = bench.me() == 0;
  uint64_t turn = 0;
  const auto ours = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      ++turn;
      if (first) send(turn);
      wait(turn);
      if (!first) send(turn);
    }
  };
  std::atomic<uint64_t>* const mine = lines.plain(raw_line, bench.me());
  std::atomic<uint64_t>* const theirs = lines.plain(raw_line, bench.peer());
  const bool here = mine != nullptr && theirs != nullptr;
  const bool has_raw = bench.all_true(here) && here;
  if (has_raw) mine->store(0, std::memory_order_relaxed);  // relaxed: the barrier of the timing loop orders it
  // Large messages need no large batch.
  const int batch = bytes > 4096 ? kPingPongBatch / 20 : kPingPongBatch;
  LinePingPong raw(mine, theirs, first);
  const auto together = [] { pgas::barrier_all(); };
  const Timing timing = has_raw ? bench.times(
                                      batch, ours, [&](int rounds) { raw.play(rounds, copy); }, together)
                                : bench.times(batch, ours, nullptr, together);
  if (!bench.all_true(check(turn))) return false;
  const double us = timing.us / 2;
  bench.report().add(
      {test, bytes, us, timing.us_p99 / 2, static_cast<double>(bytes) * 1e-3 / us, has_raw ? timing.raw_us / 2 : -1});
  return true;
}

}  // namespace perftest
