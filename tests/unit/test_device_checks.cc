// What calls of kernels check of their arguments, the table of grids that have failed, and the meeting of warp groups,
// as far as they can be asked on the host.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "device/failed_grids.h"
#include "device/ranges.h"
#include "device/warpgroup.h"
#include "tests/catch.h"

using heddle::device::bytes_of;
using heddle::device::DeviceError;
using heddle::device::HeapView;
using heddle::device::in_heap;
using heddle::device::judge_counted;
using heddle::device::judge_local;
using heddle::device::judge_range;
using heddle::device::span_of;

namespace {

/// A heap of 4 KiB, aligned to 256, of which the first 1 KiB is the library's own.
struct Heap {
  alignas(256) char bytes[4096] = {};
  HeapView view;
  Heap() {
    view.my_heap = bytes;
    view.extent = sizeof bytes;
    view.reserved = 1024;
    view.n_pes = 2;
  }
};

}  // namespace

TEST_CASE("the library's own part of the heap is no argument of a call") {
  std::vector<char> heap(1024);
  HeapView view;
  view.my_heap = heap.data();
  view.extent = heap.size();
  view.reserved = 256;
  view.n_pes = 1;
  CHECK_FALSE(in_heap(view, heap.data(), 0));
  CHECK_FALSE(in_heap(view, heap.data(), 1024));
  CHECK_FALSE(in_heap(view, heap.data() + 255, 2));
  CHECK(in_heap(view, heap.data() + 256, 0));
  CHECK(in_heap(view, heap.data() + 256, 768));
  CHECK_FALSE(in_heap(view, heap.data() + 256, 769));
  CHECK(in_heap(view, heap.data() + 1024, 0));
  CHECK_FALSE(in_heap(view, heap.data() + 1024, 1));
  CHECK_FALSE(in_heap(view, heap.data() + 256, UINT64_MAX));
  CHECK_FALSE(in_heap(view, heap.data() - 1, 1));
  CHECK_FALSE(in_heap(view, nullptr, 0));
}

TEST_CASE("lengths that 64 bits cannot hold lie in no heap where calls are checked") {
  constexpr uint64_t k62 = uint64_t{1} << 62;
  CHECK(bytes_of<true>(k62 + 1, 4) == UINT64_MAX);
  CHECK(bytes_of<true>(k62 - 1, 4) == 4 * (k62 - 1));
  CHECK(bytes_of<true>(UINT64_MAX, 1) == UINT64_MAX);
  CHECK(bytes_of<true>(0, 16) == 0);
  CHECK(bytes_of<false>(k62 + 1, 4) == 4);  // a product and nothing else
  CHECK(span_of<true>(4, k62, 4) == UINT64_MAX);
  CHECK(span_of<true>(1, k62, 4) == UINT64_MAX);
  CHECK(span_of<true>(1, k62 - 1, 4) == 4 * (k62 - 1));
  CHECK(span_of<true>(INT64_MAX, 3, 1) == UINT64_MAX);
  CHECK(span_of<true>(INT64_MAX, 2, 1) == (uint64_t{1} << 63));
  CHECK(span_of<true>(3, 5, 8) == 13 * 8);
  CHECK(span_of<true>(3, 0, 8) == 0);
  CHECK(span_of<false>(3, 5, 8) == 13 * 8);
  const Heap heap;
  CHECK(judge_range(heap.view, heap.bytes + 1024, bytes_of<true>(k62 + 1, 4), 0, 4) == DeviceError::kBadAddress);
  CHECK(judge_range(heap.view, heap.bytes + 1024, span_of<true>(4, k62, 4), 0, 4) == DeviceError::kBadAddress);
}

TEST_CASE("calls that ask for nothing may name anything but a wrong PE") {
  const Heap heap;
  CHECK(judge_range(heap.view, nullptr, 0, 1, 8) == DeviceError::kNone);
  CHECK(judge_range(heap.view, heap.bytes + 3, 0, 0, 8) == DeviceError::kNone);
  CHECK(judge_range(heap.view, nullptr, 0, 2, 8) == DeviceError::kBadPe);
  CHECK(judge_range(heap.view, nullptr, 1, 0, 1) == DeviceError::kBadAddress);
  CHECK(judge_range(heap.view, heap.bytes + 1028, 8, 0, 8) == DeviceError::kBadAlignment);
  CHECK(judge_local(nullptr, 0, 8) == DeviceError::kNone);
  const auto* const counter = reinterpret_cast<const uint64_t*>(heap.bytes + 2048);
  CHECK(judge_counted(heap.view, nullptr, nullptr, 0, counter, 1) == DeviceError::kNone);
  CHECK(judge_counted(heap.view, nullptr, nullptr, 0, counter, 2) == DeviceError::kBadPe);
  CHECK(judge_counted(heap.view, nullptr, nullptr, 0, nullptr, 1) == DeviceError::kBadAddress);
}

TEST_CASE("buffers of the program's own are checked as far as they can be") {
  alignas(16) const char buffer[32] = {};
  CHECK(judge_local(nullptr, 1, 1) == DeviceError::kNullBuffer);
  CHECK(judge_local(buffer + 1, 9, 1) == DeviceError::kNone);
  CHECK(judge_local(buffer + 1, 9, 4) == DeviceError::kBadAlignment);
  CHECK(judge_local(buffer + 4, 8, 4) == DeviceError::kNone);
}

TEST_CASE("every mistake of a counted put has its name") {
  const Heap heap;
  const char* const to = heap.bytes + 1024;
  alignas(16) const char from[64] = {};
  const auto judge = [&](const char* dest, const char* source, uint64_t bytes, uint64_t count_at, int pe) {
    return judge_counted(heap.view, dest, source, bytes, reinterpret_cast<const uint64_t*>(heap.bytes + count_at), pe);
  };
  CHECK(judge(to, from, 64, 2048, 1) == DeviceError::kNone);
  CHECK(judge(to, from, 64, 2048, -1) == DeviceError::kBadPe);
  CHECK(judge(heap.bytes, from, 64, 2048, 1) == DeviceError::kBadAddress);
  CHECK(judge(to + 8, from, 64, 2048, 1) == DeviceError::kBadAlignment);
  CHECK(judge(to, from, 64, 2056, 1) == DeviceError::kBadAlignment);
  CHECK(judge(to, from, 64, 768, 1) == DeviceError::kBadAddress);
  CHECK(judge(to, from + 4, 32, 2048, 1) == DeviceError::kBadArgument);
  CHECK(judge(to, from, 24, 2048, 1) == DeviceError::kBadArgument);
  CHECK(judge(to, nullptr, 64, 2048, 1) == DeviceError::kNullBuffer);
  CHECK(judge(to, from, 2048, 2048, 1) == DeviceError::kOverlap);
  CHECK(judge(to, from, 1024, 2048, 1) == DeviceError::kNone);
  CHECK(judge(heap.bytes + 2304, from, 64, 2048, 1) == DeviceError::kNone);
}

TEST_CASE("grids that have failed are remembered until newer ones need the place") {
  using namespace heddle::device;  // NOLINT
  uint64_t grids[kFailedGrids] = {};
  CHECK_FALSE(is_remembered(grids, 0));
  // Neighbours and those of the same bucket do not disturb each other.
  for (uint64_t grid = 100; grid < 100 + kFailedGrids; ++grid) remember_grid(grids, grid);
  for (uint64_t grid = 100; grid < 100 + kFailedGrids; ++grid) CHECK(is_remembered(grids, grid));
  CHECK_FALSE(is_remembered(grids, 99));
  CHECK_FALSE(is_remembered(grids, 100 + kFailedGrids));
  remember_grid(grids, 100);  // once more: takes no place
  for (uint64_t grid = 100; grid < 100 + kFailedGrids; ++grid) CHECK(is_remembered(grids, grid));
  remember_grid(grids, 100 + kFailedGrids);  // in place of the oldest of its bucket
  CHECK(is_remembered(grids, 100 + kFailedGrids));
  CHECK_FALSE(is_remembered(grids, 100));
  for (uint64_t grid = 101; grid < 100 + kFailedGrids; ++grid) CHECK(is_remembered(grids, grid));
  remember_grid(grids, 0);
  CHECK(is_remembered(grids, 0));
  forget_grids(grids);
  for (uint64_t grid = 0; grid < 300; ++grid) CHECK_FALSE(is_remembered(grids, grid));
}

TEST_CASE("threads of one failed grid take one place") {
  using namespace heddle::device;  // NOLINT
  uint64_t grids[kFailedGrids] = {};
  for (uint64_t grid = 5; grid < 5 + kGridWays * kGridBuckets; grid += kGridBuckets) remember_grid(grids, grid);
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&grids] {
      for (int round = 0; round < 1000; ++round) remember_grid(grids, 5 + kFailedGrids);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(is_remembered(grids, 5));
  for (uint32_t way = 1; way <= kGridWays; ++way) CHECK(is_remembered(grids, 5 + way * kGridBuckets));
}

TEST_CASE("a meeting by count ends with all, or is taken back") {
  using heddle::device::meet_by_count;
  constexpr uint64_t kMembers = 4;
  constexpr int kRounds = 2000;
  alignas(64) uint64_t arrivals = 0;
  std::atomic<int> inside{0}, wrong{0};
  const auto meet_often = [&] {
    for (int round = 0; round < kRounds; ++round) {
      ++inside;
      if (!meet_by_count(&arrivals, kMembers, [] { return std::this_thread::yield(), true; })) ++wrong;
      if (inside < static_cast<int>(kMembers) * (round + 1)) ++wrong;  // somebody had not come
    }
  };
  const auto run = [&](int members, const auto& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < members; ++i) threads.emplace_back(body);
    for (std::thread& thread : threads) thread.join();
  };
  run(kMembers, meet_often);
  CHECK(wrong == 0);
  CHECK(arrivals == kMembers * kRounds);
  // One never comes: the others give up, and nothing is left of it.
  std::atomic<int> given_up{0};
  run(kMembers - 1, [&] {
    int looks = 0;
    if (!meet_by_count(&arrivals, kMembers, [&] { return std::this_thread::yield(), ++looks < 100; })) ++given_up;
  });
  CHECK(given_up == static_cast<int>(kMembers) - 1);
  CHECK(arrivals == kMembers * kRounds);
  inside = 0;
  run(kMembers, meet_often);
  CHECK(wrong == 0);
}
