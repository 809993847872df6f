// One transfer at a time, timed inside a kernel of one block; raw is plain loads, stores and fences in the same loop.
#include "perftest/device/library.cuh"
#include "perftest/device/rows.h"

namespace perftest {
namespace {

constexpr int kBlockThreads = 1024;

template <int kThreads, class Op>
RowEntry transfer_row(const char* name, const char* scope, bool put, size_t bytes) {
  return {name, [=](Session& session, Row* row) {
            row->scope = scope;
            row->bytes = bytes;
            Transfer transfer;
            transfer.bytes = bytes;
            transfer.put = put;
            transfer.one_place = true;
            const Op op{session.target(), session.source(), bytes, session.peer()};
            if (!session.check(transfer, repeated<Library, kThreads>(session, 1, op))) return false;
            const auto raw =
                put ? timed_block<Raw, kThreads>(session, CopyFence{session.peer_target(), session.source(), bytes})
                    : timed_block<Raw, kThreads>(session, CopyHere{session.target(), session.peer_source(), bytes});
            return session.measure_latency(row, false, timed_block<Library, kThreads>(session, op), raw);
          }};
}

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

bool measure_p(Session& session, Row* row) {
  row->scope = "thread";
  row->bytes = sizeof(uint64_t);
  return session.measure_latency(
      row, false, timed_block<Library, 1>(session, P{reinterpret_cast<uint64_t*>(session.target()), session.peer()}),
      timed_block<Raw, 1>(session, RawP{reinterpret_cast<uint64_t*>(session.peer_target())}));
}

bool measure_g(Session& session, Row* row) {
  row->scope = "thread";
  row->bytes = sizeof(uint64_t);
  auto* const here = reinterpret_cast<uint64_t*>(session.target());
  return session.measure_latency(
      row, false,
      timed_block<Library, 1>(session, G{here, reinterpret_cast<uint64_t*>(session.source()), session.peer()}),
      timed_block<Raw, 1>(session, RawG{here, reinterpret_cast<uint64_t*>(session.peer_source())}));
}

}  // namespace

std::vector<RowEntry> latency_rows() {
  return {
      transfer_row<1, ThreadPutQuiet>("put_quiet_thread_8", "thread", true, 8),
      transfer_row<32, WarpPutQuiet>("put_quiet_warp_8", "warp", true, 8),
      transfer_row<kBlockThreads, BlockPutQuiet>("put_quiet_block_8", "block", true, 8),
      transfer_row<1, ThreadPutQuiet>("put_quiet_thread_4k", "thread", true, 4u << 10),
      transfer_row<32, WarpPutQuiet>("put_quiet_warp_64k", "warp", true, 64u << 10),
      transfer_row<1, ThreadGet>("get_thread_4k", "thread", false, 4u << 10),
      transfer_row<32, WarpGet>("get_warp_64k", "warp", false, 64u << 10),
      {"p_quiet", measure_p},
      {"g", measure_g},
  };
}

}  // namespace perftest
