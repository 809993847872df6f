// What calls of kernels check of their arguments, as far as it can be asked on the host.
#include <cstdint>
#include <vector>

#include "device/ranges.h"
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
