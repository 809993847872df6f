// p of 8 bytes to the peer, which waits for it with wait_until and answers.
#include "perftest/host/ping_pong.h"

namespace {

bool measure(perftest::Bench& bench) {
  if (!bench.need_two_pes()) return false;
  perftest::Lines lines;
  if (!lines.make(bench, 2)) return false;
  uint64_t* const flag = lines.word(0);
  const int peer = bench.peer();
  return perftest::measure_ping_pong(
      bench, "p_ping_pong", sizeof(uint64_t), lines, 1, [=](uint64_t turn) { pgas::p(flag, turn, peer); },
      [=](uint64_t turn) { pgas::wait_until_equal(flag, turn); }, [] {},
      [&](uint64_t turns) { return *flag == turns || bench.fail("the flag does not hold the last turn"); });
}

}  // namespace

int main(int argc, char** argv) {
  return perftest::run(argc, argv, "p_ping_pong", perftest::Figure::kLatency,
                       "a plain ping-pong on two cache lines; half round trips", {}, measure);
}
