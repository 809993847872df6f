// What calls of kernels check of their arguments, as far as it can be asked on the host.
#include <cstdint>
#include <vector>

#include "device/handle.h"
#include "tests/catch.h"

using heddle::device::HeapView;
using heddle::device::in_heap;

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
