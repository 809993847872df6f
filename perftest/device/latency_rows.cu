// One transfer at a time, timed inside a kernel of one block; raw is plain loads, stores and fences in the same loop.
#include "perftest/device/library.cuh"

namespace perftest {
namespace {

constexpr int kBlockThreads = 1024;

struct P {
  uint64_t* to;
  int pe;
  __device__ void operator()(int i) const {
    nvshmem_uint64_p(to, static_cast<uint64_t>(i), pe);
    nvshmem_quiet();
  }
};
struct RawP {
  uint64_t* to;
  __device__ void operator()(int i) const {
    store_relaxed(to, static_cast<uint64_t>(i));
    __threadfence_system();
  }
};

/// The value must be there before the next operation: it decides about a store that never happens.
struct G {
  uint64_t* here;
  const uint64_t* from;
  int pe;
  __device__ void operator()(int) const {
    if (nvshmem_uint64_g(from, pe) == ~uint64_t{0}) *here = 1;
  }
};
struct RawG {
  uint64_t* here;
  const uint64_t* from;
  __device__ void operator()(int) const {
    if (load_relaxed(from) == ~uint64_t{0}) *here = 1;
  }
};

/// Every operation adds; `to` is the peer's word, of the library's address or mapped.
struct Add {
  uint64_t* to;
  int pe;
  __device__ void operator()(int i) const {
    nvshmem_uint64_atomic_add(to, static_cast<uint64_t>(i), pe);
    nvshmem_quiet();
  }
};
struct RawAdd {
  uint64_t* to;
  __device__ void operator()(int i) const {
    add_relaxed(to, static_cast<uint64_t>(i));
    __threadfence_system();
  }
};

struct FetchAdd {
  uint64_t *here, *to;
  int pe;
  __device__ void operator()(int) const {
    if (nvshmem_uint64_atomic_fetch_add(to, 1, pe) == ~uint64_t{0}) *here = 1;
  }
};
struct RawFetchAdd {
  uint64_t *here, *to;
  __device__ void operator()(int) const {
    if (fetch_add_relaxed(to, 1) == ~uint64_t{0}) *here = 1;
  }
};

/// A row of one thread on one word: `ours` and `raw` make the operations.
template <class Ours, class RawOp>
RowEntry word_row(const char* name, Ours (*ours)(Session&), RawOp (*raw)(Session&)) {
  return {name, [=](Session& session, Row* row) {
            row->scope = ByThread::kName;
            row->bytes = sizeof(uint64_t);
            return session.measure_latency(row, false, timed_block<Library, 1>(session, ours(session)),
                                           timed_block<Raw, 1>(session, raw(session)));
          }};
}

uint64_t* word(char* at) { return reinterpret_cast<uint64_t*>(at); }
P p(Session& s) { return {word(s.target()), s.peer()}; }
RawP raw_p(Session& s) { return {word(s.peer_target())}; }
G g(Session& s) { return {word(s.target()), word(s.source()), s.peer()}; }
RawG raw_g(Session& s) { return {word(s.target()), word(s.peer_source())}; }
Add add(Session& s) { return {word(s.target()), s.peer()}; }
RawAdd raw_add(Session& s) { return {word(s.peer_target())}; }
FetchAdd fetch_add(Session& s) { return {word(s.source()), word(s.target()), s.peer()}; }
RawFetchAdd raw_fetch_add(Session& s) { return {word(s.source()), word(s.peer_target())}; }

}  // namespace

std::vector<RowEntry> latency_rows() {
  return {
      transfer_row<Library, 1, PutQuiet<ByThread>>("put_quiet_thread_8", 8),
      transfer_row<Library, 32, PutQuiet<ByWarp>>("put_quiet_warp_8", 8),
      transfer_row<Library, kBlockThreads, PutQuiet<ByBlock>>("put_quiet_block_8", 8),
      transfer_row<Library, 1, PutQuiet<ByThread>>("put_quiet_thread_4k", 4u << 10),
      transfer_row<Library, 32, PutQuiet<ByWarp>>("put_quiet_warp_64k", 64u << 10),
      transfer_row<Library, 1, Get<ByThread>>("get_thread_4k", 4u << 10),
      transfer_row<Library, 32, Get<ByWarp>>("get_warp_64k", 64u << 10),
      transfer_row<Library, kBlockThreads, Get<ByBlock>>("get_block_64k", 64u << 10),
      word_row("p_quiet", p, raw_p),
      word_row("g", g, raw_g),
      word_row("atomic_add_quiet", add, raw_add),
      word_row("atomic_fetch_add", fetch_add, raw_fetch_add),
  };
}

}  // namespace perftest
