// The rows with registered shared memory: the library then moves data by bulk copies, and so does raw.
#include "perftest/device/library.cuh"
#include "perftest/device/rows.h"

namespace perftest {

#ifdef PERFTEST_SMEM
namespace {

size_t donated_bytes() { return static_cast<size_t>(nvshmemx_ask_smem(NVSHMEMX_SMEM_RECOMMENDED)); }

/// Every block moves `part` bytes a call.
template <int kThreads>
RowEntry block_row(const char* name, bool put, int blocks, size_t part) {
  return {name, [=](Session& session, Row* row) {
            row->scope = "block";
            Transfer transfer;
            transfer.bytes = part * static_cast<size_t>(blocks);
            transfer.put = put;
            const size_t second = Session::second_place(transfer), smem = donated_bytes();
            const int pe = session.peer();
            const Launch ours =
                put ? repeated<Donated, kThreads>(session, blocks,
                                                  BlockPut{session.target(), session.source(), part, second, pe}, smem)
                    : repeated<Donated, kThreads>(session, blocks,
                                                  BlockGet{session.target(), session.source(), part, second, pe}, smem);
            return session.measure_bandwidth(row, transfer, ours, bulk(session, blocks, part, put, second));
          }};
}

template <int kThreads, class Op>
RowEntry latency_row(const char* name, const char* scope, bool put, size_t bytes) {
  return {name, [=](Session& session, Row* row) {
            row->scope = scope;
            row->bytes = bytes;
            Transfer transfer;
            transfer.bytes = bytes;
            transfer.put = put;
            transfer.one_place = true;
            const size_t smem = donated_bytes();
            const Op op{session.target(), session.source(), bytes, session.peer()};
            if (!session.check(transfer, repeated<Donated, kThreads>(session, 1, op, smem))) return false;
            const auto raw =
                put ? timed_block<Raw, kThreads>(session, CopyFence{session.peer_target(), session.source(), bytes})
                    : timed_block<Raw, kThreads>(session, CopyHere{session.target(), session.peer_source(), bytes});
            return session.measure_latency(row, false, timed_block<Donated, kThreads>(session, op, smem), raw);
          }};
}

}  // namespace
#endif

std::vector<RowEntry> smem_rows() {
#ifdef PERFTEST_SMEM
  constexpr size_t kMiB = 1u << 20;
  return {
      latency_row<1, ThreadPutQuiet>("smem_put_quiet_thread_4k", "thread", true, 4u << 10),
      latency_row<32, WarpPutQuiet>("smem_put_quiet_warp_64k", "warp", true, 64u << 10),
      latency_row<32, WarpGetQuiet>("smem_get_quiet_warp_64k", "warp", false, 64u << 10),
      latency_row<1024, BlockPutQuiet>("smem_put_quiet_block_8", "block", true, 8),
      block_row<32>("smem_put_1x32_bw", true, 1, 4 * kMiB),
      block_row<128>("smem_put_1x128_bw", true, 1, 4 * kMiB),
      block_row<1024>("smem_put_1x1024_bw", true, 1, 4 * kMiB),
      block_row<32>("smem_get_1x32_bw", false, 1, 4 * kMiB),
      block_row<128>("smem_get_1x128_bw", false, 1, 4 * kMiB),
      block_row<1024>("smem_get_1x1024_bw", false, 1, 4 * kMiB),
      block_row<1024>("smem_put_8_bw", true, 8, kMiB),
      block_row<1024>("smem_put_132_bw", true, 132, kMiB),
      block_row<1024>("smem_get_8_bw", false, 8, kMiB),
      block_row<1024>("smem_get_132_bw", false, 132, kMiB),
  };
#else
  return {};
#endif
}

}  // namespace perftest
