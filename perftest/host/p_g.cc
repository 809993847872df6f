// Single 8-byte elements: p and g back to back, over a page of elements that the peer leaves alone.
#include "perftest/common/bench.h"

namespace {

constexpr int kElements = 512;

bool measure(perftest::Bench& bench) {
  if (!bench.need_two_pes()) return false;
  perftest::Buffers buffers;
  if (!buffers.make(bench, kElements * sizeof(uint64_t))) return false;
  auto* const target = reinterpret_cast<uint64_t*>(buffers.target());
  auto* const source = reinterpret_cast<uint64_t*>(buffers.source());
  auto* const twin = reinterpret_cast<std::atomic<uint64_t>*>(buffers.peer_twin());
  for (uint64_t i = 0; i < kElements; ++i) source[i] = i * 3 + 1;
  pgas::barrier_all();

  const auto put_all = [=](int count) {
    for (int i = 0; i < count; ++i) pgas::p(target + i % kElements, static_cast<uint64_t>(i), 1);
  };
  const auto put_raw = [=](int count) {
    // relaxed: the plain store that p has to do; an atomic one is never dropped or widened
    for (int i = 0; i < count; ++i) twin[i % kElements].store(static_cast<uint64_t>(i), std::memory_order_relaxed);
  };
  const auto get_all = [=](int count) {
    for (int i = 0; i < count; ++i) (void)pgas::g(source + i % kElements, 1);
  };
  const auto get_raw = [=](int count) {
    for (int i = 0; i < count; ++i) (void)twin[i % kElements].load(std::memory_order_relaxed);
  };
  const auto nothing = [] {};

  const auto measure_one = [&](const char* test, auto ours, auto raw) {
    bench.report().progress(test);
    const int batch = bench.batch_for(ours);
    if (bench.me() == 0) {
      const perftest::Timing timing =
          buffers.has_twin() ? bench.times(batch, ours, raw, nothing) : bench.times(batch, ours, nullptr, nothing);
      bench.report().add({test, sizeof(uint64_t), timing.us, timing.us_p99, 8e-3 / timing.us, timing.raw_us});
    }
    pgas::barrier_all();
  };
  measure_one("p", put_all, put_raw);
  measure_one("g", get_all, get_raw);

  // Every element once more, so that what is checked is what these calls did last.
  if (bench.me() == 0) put_all(kElements);
  pgas::barrier_all();
  bool right = true;
  for (uint64_t i = 0; i < kElements && right; ++i) {
    if (bench.me() == 1 && target[i] != i) right = bench.fail("p stored a wrong value in element " + std::to_string(i));
    if (bench.me() == 0 && pgas::g(source + i, 1) != i * 3 + 1) {
      right = bench.fail("g returned a wrong value for element " + std::to_string(i));
    }
  }
  return bench.all_true(right);
}

}  // namespace

int main(int argc, char** argv) {
  return perftest::run(argc, argv, "p_g", perftest::Figure::kLatency, "a plain store or load of a shared mapping", {},
                       measure);
}
