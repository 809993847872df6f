// A put with signal to the peer, which waits for the signal and answers with as much data.
#include "perftest/host/ping_pong.h"

namespace {

bool measure(perftest::Bench& bench) {
  if (!bench.need_two_pes()) return false;
  perftest::Lines lines;
  perftest::Buffers buffers;
  if (!lines.make(bench, 2) || !buffers.make(bench, bench.options().max_size)) return false;
  uint64_t* const signal = lines.word(0);
  const int peer = bench.peer();
  std::byte* const source = buffers.source();
  std::byte* const target = buffers.target();
  std::byte* const twin = buffers.peer_twin();
  for (const uint64_t bytes : bench.options().sizes()) {
    bench.report().progress(std::to_string(bytes) + " bytes");
    // Each PE has its own pattern, and the target holds neither before the first message.
    const auto seed = [bytes](int pe) { return bytes * 2 + static_cast<uint64_t>(pe); };
    perftest::fill_pattern(source, bytes, seed(bench.me()));
    memset(target, perftest::Buffers::kClean, bytes);
    *signal = 0;
    pgas::barrier_all();
    const auto check = [&](uint64_t turns) {
      if (*signal != turns) return bench.fail("the signal does not hold the last turn");
      const size_t wrong = perftest::find_wrong_byte(target, bytes, seed(peer));
      return wrong == bytes || bench.fail("wrong data: byte " + std::to_string(wrong) + " of " + std::to_string(bytes));
    };
    if (!perftest::measure_ping_pong(
            bench, "put_signal_ping_pong", bytes, lines, 1,
            [=](uint64_t turn) { pgas::put_signal(target, source, bytes, signal, turn, peer); },
            [=](uint64_t turn) { pgas::signal_wait_equal(signal, turn); },
            [=] {
              if (twin != nullptr) memcpy(twin, source, bytes);
            },
            check)) {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  perftest::Options defaults;
  defaults.max_size = 1u << 20;
  return perftest::run(argc, argv, "put_signal_ping_pong", perftest::Figure::kLatency,
                       "memcpy to a plain shared mapping and a ping-pong on two cache lines; half round trips",
                       defaults, measure);
}
