// The barrier that kernels use, with threads as PEs whose heaps lie side by side in memory: nobody leaves before all
// have come, over many rounds; a wait that gives up fails the barrier.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "device/sync.h"
#include "tests/catch.h"

using heddle::device::barrier_of_all;
using heddle::device::HeapView;
using heddle::device::InternalArea;
using heddle::device::ThreadScope;

namespace {

/// Heaps of n PEs, each with its internal area and one word for the test.
class Heaps {
 public:
  explicit Heaps(int n) : n_(n), stride_(InternalArea(static_cast<uint64_t>(n)).bytes() + 64) {
    memory_.resize(static_cast<size_t>(n) * stride_ / 8);
  }
  HeapView view(int pe) {
    HeapView view;
    view.my_heap = reinterpret_cast<char*>(memory_.data()) + static_cast<size_t>(pe) * stride_;
    view.stride = static_cast<int64_t>(stride_);
    view.extent = stride_;
    view.my_pe = pe;
    view.n_pes = n_;
    view.direct = 1;
    return view;
  }
  uint64_t* word(int pe) { return reinterpret_cast<uint64_t*>(view(pe).my_heap + stride_ - 64); }

 private:
  const int n_;
  const size_t stride_;
  std::vector<uint64_t> memory_;
};

auto patient = [](const uint64_t*, int) {
  return [] {
    std::this_thread::yield();
    return true;
  };
};

}  // namespace

TEST_CASE("nobody leaves a kernel's barrier before all have come", "[barrier]") {
  const int n = GENERATE(1, 2, 3, 8);
  constexpr uint64_t kRounds = 2000;
  Heaps heaps(n);
  std::atomic<int> wrong{0};
  std::vector<std::thread> pes;
  for (int pe = 0; pe < n; ++pe) {
    pes.emplace_back([&, pe] {
      const HeapView view = heaps.view(pe);
      for (uint64_t round = 1; round <= kRounds; ++round) {
        heddle::device::store_relaxed(heaps.word(pe), round);
        if (!barrier_of_all(ThreadScope(), view, patient)) ++wrong;
        // A PE may be in the next round already, but no further: it waits for this one there.
        for (int other = 0; other < n; ++other) {
          const uint64_t at = heddle::device::load_relaxed(heaps.word(other));
          if (at != round && at != round + 1) ++wrong;
        }
      }
    });
  }
  for (std::thread& pe : pes) pe.join();
  CHECK(wrong == 0);
}

TEST_CASE("a kernel's barrier ends when a wait gives up, and without a world", "[barrier]") {
  Heaps heaps(3);
  int waited_for = -1;
  const auto give_up = [&](const uint64_t*, int pe) {
    return [&waited_for, pe] {
      waited_for = pe;
      return false;
    };
  };
  CHECK(!barrier_of_all(ThreadScope(), heaps.view(1), give_up));
  CHECK(waited_for == 0);
  CHECK(!barrier_of_all(ThreadScope(), HeapView(), give_up));
}
