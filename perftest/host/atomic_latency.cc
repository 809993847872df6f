// 8-byte atomics on the peer's memory, one after the other, nobody else using the word.
#include "perftest/common/bench.h"

namespace {

bool measure(perftest::Bench& bench) {
  if (!bench.need_two_pes()) return false;
  perftest::Lines lines;
  if (!lines.make(bench, 1)) return false;
  auto* const word = reinterpret_cast<pgas::Word*>(lines.word(0));
  alignas(perftest::LinePingPong::kLine) static std::atomic<uint64_t> local{0};
  [[maybe_unused]] static uint64_t sink = 0;

  const auto raw = [](int count) {
    // relaxed, and the old value is used: the locked add that any fetch_add has to do
    for (int i = 0; i < count; ++i) sink += local.fetch_add(1, std::memory_order_relaxed);
  };
  const auto measure_one = [&](const char* test, auto op) {
    bench.report().progress(test);
    const auto ours = [op](int count) {
      for (int i = 0; i < count; ++i) op(static_cast<pgas::Word>(i));
    };
    const int batch = bench.batch_for(ours);
    if (bench.me() == 0) {
      const perftest::Timing timing = bench.times(batch, ours, raw, [] {});
      bench.report().add({test, sizeof(pgas::Word), timing.us, timing.us_p99, -1, timing.raw_us});
    }
    pgas::barrier_all();
  };
  measure_one("fetch_add", [=](pgas::Word) { sink += pgas::fetch_add(word, 1, 1); });
  measure_one("fetch_inc", [=](pgas::Word) { sink += pgas::fetch_inc(word, 1); });
  measure_one("add", [=](pgas::Word) { pgas::add(word, 1, 1); });
  measure_one("swap", [=](pgas::Word i) { sink += pgas::swap(word, i, 1); });
  measure_one("compare_swap", [=](pgas::Word i) { sink += pgas::compare_swap(word, i, i + 1, 1); });
  measure_one("fetch", [=](pgas::Word) { sink += pgas::fetch(word, 1); });
  measure_one("set", [=](pgas::Word i) { pgas::set(word, i, 1); });

  // Both PEs add to one word at once: every add must be there, and every old value seen once.
  constexpr pgas::Word kAdds = 10000;
  if (bench.me() == 0) pgas::set(word, 0, 1);
  pgas::quiet();
  pgas::barrier_all();
  pgas::Word sum = 0;
  for (pgas::Word i = 0; i < kAdds; ++i) sum += pgas::fetch_add(word, 1, 1);
  pgas::Word all = 0;
  for (const uint64_t part : bench.gather(sum)) all += part;
  const pgas::Word total = pgas::fetch(word, 1);
  const bool right = total == 2 * kAdds && all == kAdds * (2 * kAdds - 1);
  return bench.all_true(right || bench.fail("fetch_add lost or repeated a value: total " + std::to_string(total)));
}

}  // namespace

int main(int argc, char** argv) {
  return perftest::run(argc, argv, "atomic_latency", perftest::Figure::kLatency, "a locked add to this core's own line",
                       {}, measure);
}
