// A signal to the peer, which waits for it with signal_wait_until and answers.
#include "perftest/host/ping_pong.h"

namespace {

bool measure(perftest::Bench& bench) {
  if (!bench.need_two_pes()) return false;
  perftest::Lines lines;
  if (!lines.make(bench, 2)) return false;
  uint64_t* const signal = lines.word(0);
  const int peer = bench.peer();
  return perftest::measure_ping_pong(
      bench, "signal_ping_pong", sizeof(uint64_t), lines, 1,
      [=](uint64_t turn) { pgas::signal_set(signal, turn, peer); },
      [=](uint64_t turn) { pgas::signal_wait_equal(signal, turn); }, [] {},
      [&](uint64_t turns) { return *signal == turns || bench.fail("the signal does not hold the last turn"); });
}

}  // namespace

int main(int argc, char** argv) {
  return perftest::run(argc, argv, "signal_ping_pong", perftest::Figure::kLatency,
                       "a plain ping-pong on two cache lines; half round trips", {}, measure);
}
