// barrier_all of any number of PEs; with two, against a plain round trip between their cores.
#include "perftest/common/bench.h"

namespace {

bool measure(perftest::Bench& bench) {
  perftest::Lines lines;
  if (!lines.make(bench, 2)) return false;
  // Up to as many PEs as cores a barrier takes well below a microsecond; beyond, the scheduler decides.
  const int batch = bench.n() <= 2 ? 1000 : 100;
  const auto ours = [](int count) {
    for (int i = 0; i < count; ++i) pgas::barrier_all();
  };
  const auto together = [] { pgas::barrier_all(); };
  perftest::Timing timing;
  std::atomic<uint64_t>* mine = nullptr;
  std::atomic<uint64_t>* theirs = nullptr;
  if (bench.n() == 2) {
    mine = lines.plain(0, bench.me());
    theirs = lines.plain(0, bench.peer());
  }
  if (bench.all_true(mine != nullptr && theirs != nullptr)) {
    perftest::LinePingPong raw(mine, theirs, bench.me() == 0);
    timing = bench.times(
        batch, ours, [&](int rounds) { raw.play(rounds, [] {}); }, together);
  } else {
    timing = bench.times(batch, ours, nullptr, together);
  }

  // Nobody may leave a barrier before the last has come: each round, all see everyone's word of that round.
  bool right = true;
  uint64_t* const word = lines.word(1);
  for (uint64_t round = 1; round <= 20 && right; ++round) {
    *word = round;
    pgas::barrier_all();
    for (int pe = 0; pe < bench.n() && right; ++pe) {
      if (pgas::g(word, pe) != round) right = bench.fail("left a barrier before PE " + std::to_string(pe) + " came");
    }
    pgas::barrier_all();
  }
  if (!bench.all_true(right)) return false;
  bench.report().add({"barrier_all", 0, timing.us, timing.us_p99, -1, timing.raw_us});
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  return perftest::run(argc, argv, "barrier_latency", perftest::Figure::kLatency,
                       "a plain round trip on two cache lines", {}, measure);
}
