// The C API on heaps in GPU memory, on the driver in host memory: wrong use, and failures of the driver. One PE.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <new>
#include <string>
#include <vector>

#include "include/heddle.h"
#include "include/nvshmem_host.h"
#include "include/nvshmemx_stream.h"
#include "runtime/device_state.h"
#include "runtime/global.h"
#include "unit/gpu_world.h"

using namespace heddle;        // NOLINT
using namespace heddle::test;  // NOLINT

namespace {

std::atomic<size_t> largest_new{SIZE_MAX};  // what new (std::nothrow) T[] still gives

constexpr uint64_t kChunk = uint64_t{2} << 20;

/// A job of one PE on a device heap, with its log in a file.
class Job {
 public:
  Job() {
    std::snprintf(log_, sizeof log_, "/tmp/heddle-test-XXXXXX");
    const int file = mkstemp(log_);
    if (file < 0) std::abort();
    close(file);
    for (const auto& [name, value] :
         std::initializer_list<std::pair<const char*, const char*>>{{"NVSHMEM_BOOTSTRAP", "solo"},
                                                                    {"HEDDLE_FABRIC", "peer"},
                                                                    {"NVSHMEM_SYMMETRIC_SIZE", "16M"},
                                                                    {"NVSHMEM_CUMEM_GRANULARITY", "2M"},
                                                                    {"HEDDLE_WAIT_TIMEOUT", "60"},
                                                                    {"NVSHMEM_DEBUG_FILE", log_}}) {
      setenv(name, value, 1);
    }
    nvshmem_init();
    if (nvshmemx_init_status() != NVSHMEM_STATUS_IS_INITIALIZED) std::abort();
  }
  ~Job() {
    nvshmem_finalize();
    unsetenv("NVSHMEM_DEBUG_FILE");
    unlink(log_);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Lines of errors in the log so far.
  int errors() const {
    std::ifstream file(log_);
    int count = 0;
    for (std::string line; std::getline(file, line);) count += line.find(": error: ") != std::string::npos ? 1 : 0;
    return count;
  }
  /// `call` is one error in the log, whose text holds all of `words`.
  void fails(const std::string& what, const std::function<void()>& call,
             std::initializer_list<const char*> words) const {
    INFO(what);
    heddle_clear_error();
    const int before = errors();
    call();
    CHECK(errors() == before + 1);
    const std::string text = heddle_last_error();
    INFO(text);
    for (const char* word : words) {
      INFO(word);
      CHECK(text.find(word) != std::string::npos);
    }
    heddle_clear_error();
  }
  void works(const std::string& what, const std::function<void()>& call) const {
    INFO(what);
    heddle_clear_error();
    call();
    INFO(heddle_last_error());
    CHECK(heddle_last_error()[0] == '\0');
  }

 private:
  const FakeCuda::Use driver_;
  char log_[40];
};

/// A stream of the program's, as the API's calls take it.
struct Stream : TestStream {
  Stream() : TestStream(*world()) {}
  cudaStream_t api() const { return reinterpret_cast<cudaStream_t>(get()); }
};

template <class T>
T* make(size_t count) {
  auto* const block = static_cast<T*>(nvshmem_calloc(count, sizeof(T)));
  if (block == nullptr) std::abort();
  return block;
}

uint64_t physical() {
  struct heddle_heap_info info = {};
  info.size = sizeof info;
  REQUIRE(heddle_heap_info(&info) == 0);
  return info.physical;
}

uint64_t blocks() {
  struct heddle_heap_info info = {};
  info.size = sizeof info;
  REQUIRE(heddle_heap_info(&info) == 0);
  return info.blocks;
}

std::vector<uint64_t> extents;  // what a translation unit was given
int receiver_code = 0;
int receive(const void* state, unsigned long, void*, unsigned long) {
  if (receiver_code != 0) return receiver_code;
  extents.push_back(static_cast<const device::DeviceState*>(state)->view.extent);
  return 0;
}
const heddle_unit unit = {device::kStateVersion, sizeof(device::DeviceState), sizeof(device::DeviceErrorRecord),
                          &receive};

}  // namespace

// Replaced so that tests can take the memory away.
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  if (bytes > largest_new) return nullptr;
  try {
    return ::operator new[](bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

TEST_CASE("on_stream calls without a local buffer are refused") {
  const Job job;
  const Stream s;
  int* const b = make<int>(64);
  uint64_t* const sig = make<uint64_t>(1);
  const cudaStream_t to = s.api();
  const int set = NVSHMEM_SIGNAL_SET;
  job.fails("put", [&] { nvshmemx_int_put_on_stream(b, nullptr, 1, 0, to); },
            {"nvshmemx_int_put_on_stream", "source is NULL", "4 bytes"});
  job.fails("put_nbi", [&] { nvshmemx_put16_nbi_on_stream(b, nullptr, 3, 0, to); }, {"source is NULL", "6 bytes"});
  job.fails("putmem", [&] { nvshmemx_putmem_on_stream(b, nullptr, 9, 0, to); }, {"source is NULL", "9 bytes"});
  job.fails("get", [&] { nvshmemx_int_get_on_stream(nullptr, b, 1, 0, to); }, {"destination is NULL", "4 bytes"});
  job.fails("getmem_nbi", [&] { nvshmemx_getmem_nbi_on_stream(nullptr, b, 7, 0, to); }, {"destination is NULL"});
  job.fails("iput", [&] { nvshmemx_int_iput_on_stream(b, nullptr, 1, 2, 3, 0, to); }, {"source is NULL", "20 bytes"});
  job.fails("iget", [&] { nvshmemx_iget64_on_stream(nullptr, b, 1, 1, 2, 0, to); }, {"destination is NULL"});
  job.fails("put_signal", [&] { nvshmemx_int_put_signal_on_stream(b, nullptr, 1, sig, 1, set, 0, to); },
            {"nvshmemx_int_put_signal_on_stream", "source is NULL"});
  job.fails("put_signal_nbi", [&] { nvshmemx_putmem_signal_nbi_on_stream(b, nullptr, 1, sig, 1, set, 0, to); },
            {"source is NULL"});
  s.wait();
  CHECK(nvshmem_int_g(b, 0) == 0);
  CHECK(nvshmem_uint64_g(sig, 0) == 0);
  job.works("none of it", [&] {
    nvshmemx_int_put_on_stream(b, nullptr, 0, 0, to);
    nvshmemx_int_get_on_stream(nullptr, b, 0, 0, to);
    nvshmemx_int_iput_on_stream(b, nullptr, 1, 1, 0, 0, to);
    nvshmemx_int_put_signal_on_stream(b, nullptr, 0, sig, 5, set, 0, to);
  });
  s.wait();
  CHECK(nvshmem_uint64_g(sig, 0) == 5);
}

TEST_CASE("host waits, tests and fetches whose reads fail give up with one error and find nothing") {
  const Job job;
  FakeCuda& cuda = FakeCuda::the();
  int* const x = make<int>(8);
  uint64_t* const sig = make<uint64_t>(32);
  int values[8] = {};  // what all of x has
  size_t indices[8] = {};
  const int eq = NVSHMEM_CMP_EQ, ne = NVSHMEM_CMP_NE;
  // Zero is what fresh copies could hold, so that EQ 0 would be a false success; NE 0 would wait for ever.
  for (const int cmp : {eq, ne}) {
    for (const int left : {0, 1, 300}) {    // the first read fails, or a later one
      if (cmp == eq && left > 0) continue;  // it would succeed at the first
      const auto fails = [&](const char* what, const std::function<void()>& call) {
        INFO(left);
        cuda.copies_left = left;
        job.fails(what, call, {"cuMemcpyAsync"});
        cuda.copies_left = -1;
      };
      fails("wait_until", [&] { nvshmem_int_wait_until(x, cmp, 0); });
      fails("wait_until_all", [&] { nvshmem_int_wait_until_all(x, 8, nullptr, cmp, 0); });
      fails("wait_until_all_vector", [&] { nvshmem_int_wait_until_all_vector(x, 8, nullptr, cmp, values); });
      fails("any", [&] { CHECK(nvshmem_int_wait_until_any(x, 8, nullptr, cmp, 0) == SIZE_MAX); });
      fails("any_vector", [&] { CHECK(nvshmem_int_wait_until_any_vector(x, 8, nullptr, cmp, values) == SIZE_MAX); });
      fails("some", [&] { CHECK(nvshmem_int_wait_until_some(x, 8, indices, nullptr, cmp, 0) == 0); });
      fails("some_vector",
            [&] { CHECK(nvshmem_int_wait_until_some_vector(x, 8, indices, nullptr, cmp, values) == 0); });
      fails("signal_wait_until", [&] { CHECK(nvshmem_signal_wait_until(sig, cmp, 0) == 0); });
      if (cmp == ne) fails("counted wait", [&] { nvshmemx_signal_counted_wait_until(sig, 16); });
    }
  }
  const auto fails = [&](const char* what, const std::function<void()>& call) {
    cuda.copies_left = 0;
    job.fails(what, call, {"cuMemcpyAsync"});
    cuda.copies_left = -1;
  };
  fails("test", [&] { CHECK(nvshmem_int_test(x, eq, 0) == 0); });
  fails("test_all", [&] { CHECK(nvshmem_int_test_all(x, 8, nullptr, eq, 0) == 0); });
  fails("test_all_vector", [&] { CHECK(nvshmem_int_test_all_vector(x, 8, nullptr, eq, values) == 0); });
  fails("test_any", [&] { CHECK(nvshmem_int_test_any(x, 8, nullptr, eq, 0) == SIZE_MAX); });
  fails("test_any_vector", [&] { CHECK(nvshmem_int_test_any_vector(x, 8, nullptr, eq, values) == SIZE_MAX); });
  fails("test_some", [&] { CHECK(nvshmem_int_test_some(x, 8, indices, nullptr, eq, 0) == 0); });
  fails("test_some_vector", [&] { CHECK(nvshmem_int_test_some_vector(x, 8, indices, nullptr, eq, values) == 0); });
  fails("signal_fetch", [&] { CHECK(nvshmem_signal_fetch(sig) == 0); });
  fails("counted load", [&] { CHECK(nvshmemx_signal_counted_load(sig) == 0); });
  job.works("tests, when reads work", [&] {
    CHECK(nvshmem_int_test(x, eq, 0) == 1);
    CHECK(nvshmem_int_test_any(x, 8, nullptr, eq, 0) == 0);
    CHECK(nvshmem_int_test_some(x, 8, indices, nullptr, eq, 0) == 8);
    nvshmem_int_wait_until_all(x, 8, nullptr, eq, 0);
  });
}

TEST_CASE("host waits and tests without memory for their copies fail, and throw nothing") {
  const Job job;
  int* const x = make<int>(1000);
  size_t indices[1] = {};
  const auto fails = [&](const char* what, const std::function<void()>& call) {
    INFO(what);
    heddle_clear_error();
    const int before = job.errors();
    largest_new = 100;
    call();
    largest_new = SIZE_MAX;
    CHECK(job.errors() == before + 1);
    CHECK(std::string(heddle_last_error()).find("no memory for copies of 1000 variables of 4 bytes") !=
          std::string::npos);
  };
  const int eq = NVSHMEM_CMP_EQ;
  fails("wait_until_all", [&] { nvshmem_int_wait_until_all(x, 1000, nullptr, eq, 0); });
  fails("any", [&] { CHECK(nvshmem_int_wait_until_any(x, 1000, nullptr, eq, 0) == SIZE_MAX); });
  fails("some", [&] { CHECK(nvshmem_int_wait_until_some(x, 1000, indices, nullptr, eq, 1) == 0); });
  fails("test_all", [&] { CHECK(nvshmem_int_test_all(x, 1000, nullptr, eq, 0) == 0); });
  fails("test_any", [&] { CHECK(nvshmem_int_test_any(x, 1000, nullptr, eq, 0) == SIZE_MAX); });
  fails("test_some", [&] { CHECK(nvshmem_int_test_some(x, 1000, indices, nullptr, eq, 1) == 0); });
}

TEST_CASE("local ranges that begin in the heap and run past its memory are refused by every call") {
  const Job job;
  const Stream s;
  const cudaStream_t to = s.api();
  int* const b = make<int>(64);
  uint64_t* const sig = make<uint64_t>(32);
  char* const heap = world()->mapped_view().my_heap;
  // The last 8 bytes of memory, addresses behind it that are only reserved, and those before the reservation.
  char* const end = heap + physical();
  int* const last = reinterpret_cast<int*>(end - 8);
  int* const behind = reinterpret_cast<int*>(end + kChunk);
  int* const before = reinterpret_cast<int*>(heap - 4);
  const int add = NVSHMEM_SIGNAL_ADD, set = NVSHMEM_SIGNAL_SET, eq = NVSHMEM_CMP_EQ;
  for (int* const l : {last, behind, before}) {
    const auto fails = [&](const char* what, const std::function<void()>& call) {
      job.fails(what, call, {"not all in memory of the symmetric heap", "PE 0"});
    };
    fails("put", [&] { nvshmem_int_put(b, l, 3, 0); });
    fails("put_nbi", [&] { nvshmem_int_put_nbi(b, l, 3, 0); });
    fails("get", [&] { nvshmem_int_get(l, b, 3, 0); });
    fails("get_nbi", [&] { nvshmem_int_get_nbi(l, b, 3, 0); });
    fails("iput", [&] { nvshmem_int_iput(b, l, 1, 2, 2, 0); });
    fails("iget", [&] { nvshmem_int_iget(l, b, 2, 1, 2, 0); });
    fails("put_signal", [&] { nvshmem_int_put_signal(b, l, 3, sig, 1, add, 0); });
    if (l != before) {
      auto* const at = reinterpret_cast<char*>(l) - (l == last ? 8 : 0);
      fails("counted put", [&] { nvshmemx_putmem_signal_counted_nbi(b, at, 32, sig, 0); });
    }
    fails("put_on_stream", [&] { nvshmemx_int_put_on_stream(b, l, 3, 0, to); });
    fails("get_on_stream", [&] { nvshmemx_int_get_on_stream(l, b, 3, 0, to); });
    fails("iput_on_stream", [&] { nvshmemx_int_iput_on_stream(b, l, 1, 2, 2, 0, to); });
    fails("iget_on_stream", [&] { nvshmemx_int_iget_on_stream(l, b, 2, 1, 2, 0, to); });
    fails("put_signal_on_stream", [&] { nvshmemx_int_put_signal_on_stream(b, l, 3, sig, 1, add, 0, to); });
    fails("put_signal_on_stream", [&] { nvshmemx_int_put_signal_nbi_on_stream(b, l, 3, sig, 1, set, 0, to); });
    fails("status", [&] { nvshmemx_int_wait_until_all_on_stream(b, 3, l, eq, 0, to); });
    fails("values", [&] { nvshmemx_int_wait_until_all_vector_on_stream(b, 3, nullptr, eq, l, to); });
    FakeCuda::Graph graph;
    FakeCuda::the().begin_capture(s.get());
    fails("captured put", [&] { nvshmemx_int_put_on_stream(b, l, 3, 0, to); });
    fails("captured get", [&] { nvshmemx_int_get_on_stream(l, b, 3, 0, to); });
    fails("captured put_signal", [&] { nvshmemx_int_put_signal_on_stream(b, l, 3, sig, 1, add, 0, to); });
    CHECK(FakeCuda::the().end_capture(s.get(), &graph));
    CHECK(graph.empty());
  }
  s.wait();
  nvshmem_quiet();
  CHECK(nvshmem_uint64_g(sig, 0) == 0);
  job.works("what ends where memory ends", [&] {
    nvshmem_int_put(b, last, 2, 0);
    nvshmem_int_get(last, b, 2, 0);
    nvshmem_int_iput(b, last, 1, 1, 2, 0);
    nvshmem_int_put_signal(b, last, 2, sig, 1, add, 0);
    nvshmemx_quiet_on_stream(to);
    nvshmemx_int_put_on_stream(b, last, 2, 0, to);
    nvshmemx_int_iget_on_stream(last, b, 1, 1, 2, 0, to);
    nvshmemx_int_put_signal_on_stream(b, last, 2, sig, 1, add, 0, to);
    nvshmemx_int_wait_until_all_on_stream(b, 2, last, eq, 0, to);
    s.wait();
    nvshmem_quiet();
  });
  CHECK(nvshmem_uint64_g(sig, 0) == 2);
}

TEST_CASE("waits of a stream on arrays of odd alignment are refused: a kernel would trap on them") {
  const Job job;
  const Stream s;
  int* const b = make<int>(8);
  auto* const words = make<uint64_t>(8);
  char* const local = make<char>(64);
  auto* const odd_status = reinterpret_cast<int*>(local + 2);
  auto* const odd_word = reinterpret_cast<uint64_t*>(local + 4);
  const int eq = NVSHMEM_CMP_EQ;
  job.fails("status", [&] { nvshmemx_int_wait_until_all_on_stream(b, 2, odd_status, eq, 0, s.api()); },
            {"status array", "not aligned to its 4 bytes"});
  job.fails("status and values",
            [&] { nvshmemx_int_wait_until_all_vector_on_stream(b, 2, odd_status, eq, b, s.api()); },
            {"status array", "not aligned to its 4 bytes"});
  job.fails("values",
            [&] { nvshmemx_uint64_wait_until_all_vector_on_stream(words, 2, nullptr, eq, odd_word, s.api()); },
            {"cmp_value array", "not aligned to its 8 bytes"});
  job.works("the same, aligned", [&] {
    nvshmemx_uint64_wait_until_all_vector_on_stream(words, 2, reinterpret_cast<int*>(local + 4), eq,
                                                    reinterpret_cast<uint64_t*>(local + 8), s.api());
    s.wait();
  });
}

TEST_CASE("a block that kernels cannot be told of is not given, and they are told at the next call") {
  extents.clear();
  receiver_code = 0;
  heddle_register_unit(&unit);
  {
    const Job job;
    FakeCuda& cuda = FakeCuda::the();
    const uint64_t first = physical();
    REQUIRE(extents.back() == first);
    const auto malloc_fails = [&](const char* call) {
      cuda.traits.failures["MemcpyHtoDAsync"] = CUDA_ERROR_OUT_OF_MEMORY;
      job.fails(call, [] { CHECK(nvshmem_malloc(4 << 20) == nullptr); }, {"nvshmem_malloc", "kernels", "cuMemcpy"});
      cuda.traits.failures.clear();
      CHECK(blocks() == 0);
    };
    malloc_fails("malloc");
    malloc_fails("malloc again");
    void* const block = nvshmem_malloc(4096);
    REQUIRE(block != nullptr);
    CHECK(extents.back() == physical());  // a chunk may be kept as a spare
    CHECK(extents.back() == world()->mapped_view().extent);
    void* const large = nvshmem_malloc(4 << 20);
    REQUIRE(large != nullptr);
    CHECK(extents.back() == physical());
    CHECK(physical() > first);
    CHECK(blocks() == 2);
    // Where the heap shrinks, too.
    cuda.traits.failures["MemcpyHtoDAsync"] = CUDA_ERROR_OUT_OF_MEMORY;
    job.fails("free", [&] { nvshmem_free(large); }, {"nvshmem_free", "kernels"});
    cuda.traits.failures.clear();
    CHECK(blocks() == 1);
    nvshmem_free(block);
    CHECK(extents.back() == physical());
  }
  heddle_unregister_unit(&unit);
}

TEST_CASE("a translation unit that did not take the extent gets it with the next call, also without growth") {
  extents.clear();
  receiver_code = 0;
  heddle_register_unit(&unit);
  {
    const Job job;
    receiver_code = 1;
    job.works("malloc", [] { CHECK(nvshmem_malloc(6 << 20) != nullptr); });  // a warning: it is that unit's own trouble
    CHECK(extents.back() < physical());
    receiver_code = 0;
    job.works("malloc", [] { CHECK(nvshmem_malloc(4096) != nullptr); });
    CHECK(extents.back() == physical());
    const size_t given = extents.size();
    job.works("malloc", [] { CHECK(nvshmem_malloc(4096) != nullptr); });
    CHECK(extents.size() == given);
  }
  heddle_unregister_unit(&unit);
}

TEST_CASE("the library's own part of the heap is no argument of a call") {
  const Job job;
  const Stream s;
  const cudaStream_t to = s.api();
  int* const b = make<int>(64);
  uint64_t* const sig = make<uint64_t>(32);
  const device::HeapView& view = world()->mapped_view();
  std::vector<char> before(view.reserved), after(view.reserved);
  const auto read = [&](std::vector<char>* into) {
    const device::Handle at = device::make_handle(view, view.my_heap, 0);
    REQUIRE(world()->fabric().get(at.id, at.offset, into->data(), into->size()).is_ok());
  };
  read(&before);
  REQUIRE(view.reserved > 0);
  int local[64];
  std::fill_n(local, 64, -1);
  size_t indices[1] = {};
  const int add = NVSHMEM_SIGNAL_ADD, eq = NVSHMEM_CMP_EQ;
  for (char* const at : {view.my_heap, view.my_heap + 64, view.my_heap + view.reserved - 4}) {
    auto* const words = reinterpret_cast<int*>(at);
    auto* const word = reinterpret_cast<uint64_t*>(at);
    const auto fails = [&](const char* what, const std::function<void()>& call) {
      job.fails(what, call, {"not in the symmetric heap"});
    };
    CHECK(nvshmem_ptr(at, 0) == nullptr);
    fails("put", [&] { nvshmem_int_put(words, local, 2, 0); });
    fails("get", [&] { nvshmem_int_get(local, words, 2, 0); });
    fails("p", [&] { nvshmem_int_p(words, 1, 0); });
    fails("g", [&] { CHECK(nvshmem_int_g(words, 0) == 0); });
    fails("iput", [&] { nvshmem_int_iput(words, local, 1, 1, 2, 0); });
    fails("atomic", [&] { nvshmem_int_atomic_add(words, 1, 0); });
    fails("signal", [&] { nvshmemx_signal_op(word, 1, add, 0); });
    fails("put_signal", [&] { nvshmem_int_put_signal(words, local, 1, sig, 1, add, 0); });
    fails("put_signal", [&] { nvshmem_int_put_signal(b, local, 1, word, 1, add, 0); });
    fails("counted put", [&] { nvshmemx_putmem_signal_counted_nbi(at, b, 16, sig, 0); });
    fails("wait", [&] { nvshmem_int_wait_until(words, eq, 7); });
    fails("test_some", [&] { CHECK(nvshmem_int_test_some(words, 1, indices, nullptr, eq, 0) == 0); });
    fails("reset", [&] { nvshmemx_signal_counted_reset(word); });
    fails("put_on_stream", [&] { nvshmemx_int_put_on_stream(words, local, 2, 0, to); });
    fails("p_on_stream", [&] { nvshmemx_int_p_on_stream(words, 1, 0, to); });
    fails("signal_on_stream", [&] { nvshmemx_signal_op_on_stream(word, 1, add, 0, to); });
    fails("wait_on_stream", [&] { nvshmemx_int_wait_until_on_stream(words, eq, 0, to); });
    job.fails("local side", [&] { nvshmem_int_get(words, b, 1, 0); }, {"not all in memory of the symmetric heap"});
    job.fails("free", [&] { nvshmem_free(at); }, {"outside the symmetric heap"});
  }
  s.wait();
  nvshmem_quiet();
  read(&after);
  CHECK(before == after);
  CHECK(nvshmem_uint64_g(sig, 0) == 0);
}

TEST_CASE("ranges in the heap that have no memory any more are refused on both sides") {
  const Job job;
  const Stream s;
  const cudaStream_t to = s.api();
  // The middle block's chunks are no other block's: they are given back and leave a gap.
  int* const low = make<int>(kChunk / 4);
  char* const middle = make<char>(3 * kChunk);
  auto* const high = static_cast<int*>(nvshmem_align(kChunk, kChunk));
  REQUIRE(high != nullptr);
  nvshmem_free(middle);
  auto* const gone = reinterpret_cast<int*>(middle + 2 * kChunk);
  REQUIRE(device::in_heap(world()->mapped_view(), gone, 8));
  REQUIRE(!world()->has_memory(device::heap_offset(world()->mapped_view(), gone), 8));
  const auto fails = [&](const char* what, const std::function<void()>& call) {
    job.fails(what, call, {"no memory now"});
  };
  int local[4] = {1, 2, 3, 4};
  fails("put", [&] { nvshmem_int_put(gone, local, 2, 0); });
  fails("put from it", [&] { nvshmem_int_put(low, gone, 2, 0); });
  fails("get", [&] { nvshmem_int_get(local, gone, 2, 0); });
  fails("get into it", [&] { nvshmem_int_get(gone, low, 2, 0); });
  fails("p", [&] { nvshmem_int_p(gone, 2, 0); });
  fails("atomic", [&] { nvshmem_int_atomic_inc(gone, 0); });
  fails("test", [&] { CHECK(nvshmem_int_test(gone, NVSHMEM_CMP_EQ, 0) == 0); });
  fails("iput", [&] { nvshmem_int_iput(low, gone, 1, 1, 2, 0); });
  fails("put_on_stream", [&] { nvshmemx_int_put_on_stream(gone, low, 2, 0, to); });
  fails("put_on_stream from it", [&] { nvshmemx_int_put_on_stream(low, gone, 2, 0, to); });
  job.works("both sides of it", [&] {
    nvshmem_int_put(high, local, 2, 0);
    nvshmemx_quiet_on_stream(to);
    nvshmemx_int_put_on_stream(low, high, 2, 0, to);
    s.wait();
    CHECK(nvshmem_int_g(low + 1, 0) == 2);
  });
}

TEST_CASE("a block that kernels of one PE cannot be told of is given to no PE") {
  const FakeCuda::Use driver;
  FakeCuda& cuda = FakeCuda::the();
  std::atomic<int> met{0};
  run_on_gpus(2, [&](World& world) -> Status {
    const auto meet = [&](const std::function<void()>& first) -> Status {  // PE 0 does it while nobody calls the driver
      HEDDLE_RETURN_IF_ERROR(world.barrier_all());
      if (world.my_pe() == 0) first();
      return world.control().agree("meeting", Status::ok(), Deadline::in(60));
    };
    const HeapFigures before = world.heap_figures();
    HEDDLE_RETURN_IF_ERROR(meet([&] { cuda.traits.failures["MemcpyHtoDAsync on GPU 1"] = CUDA_ERROR_OUT_OF_MEMORY; }));
    void* block = &met;
    const Status refused = world.allocate("nvshmem_malloc", 4 << 20, 256, false, Status::ok(), &block);
    HEDDLE_RETURN_IF_ERROR(expect(refused.code() == Code::kOutOfMemory, "the same failure"));
    HEDDLE_RETURN_IF_ERROR(expect(refused.text().find("PE 1") != std::string::npos, refused.text().c_str()));
    HEDDLE_RETURN_IF_ERROR(expect(block == nullptr && world.heap_figures().blocks == before.blocks, "no block"));
    HEDDLE_RETURN_IF_ERROR(meet([&] { cuda.traits.failures.clear(); }));
    HEDDLE_RETURN_IF_ERROR(world.allocate("nvshmem_malloc", 4 << 20, 256, true, Status::ok(), &block));
    HEDDLE_RETURN_IF_ERROR(expect(world.heap_figures().blocks == before.blocks + 1, "one block"));
    auto* const words = static_cast<uint64_t*>(block);
    host::p(world, "p", words, uint64_t{7}, 1 - world.my_pe());
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    HEDDLE_RETURN_IF_ERROR(expect(own(world, words) == 7, "it is there"));
    return world.free(block);
  });
}

TEST_CASE("init and finalize of a forked child are errors and end, also with a GPU") {
  const Job job;
  int* const b = make<int>(1);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a hang is an end, too
    int right = nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED ? 1 : 0;
    const auto told = [] {
      const bool is = std::strstr(heddle_last_error(), "forked") != nullptr;
      heddle_clear_error();
      return is ? 1 : 0;
    };
    nvshmem_finalize();
    right += told();
    nvshmem_init();
    right += told();
    right += nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED ? 1 : 0;
    right += nvshmemx_init_attr(0, nullptr) == NVSHMEMX_ERROR_NOT_SUPPORTED ? 1 : 0;
    right += told();
    nvshmem_int_p(b, 4, 0);
    right += told();
    _exit(right);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  CHECK(nvshmemx_init_status() == NVSHMEM_STATUS_IS_INITIALIZED);
  CHECK(nvshmem_int_g(b, 0) == 0);
}
