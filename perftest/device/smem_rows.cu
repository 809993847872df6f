// The rows with registered shared memory: the library then moves data by bulk copies, and so does raw.
#include "perftest/device/library.cuh"
#include "perftest/device/rows.h"

namespace perftest {

#ifdef PERFTEST_SMEM
namespace {

size_t donated_bytes() { return static_cast<size_t>(nvshmemx_ask_smem(NVSHMEMX_SMEM_RECOMMENDED)); }

/// Every block moves `part` bytes a call.
RowEntry block_row(const char* name, bool put, int blocks, int threads, size_t part) {
  return {name, [=](Session& session, Row* row) {
            row->scope = "block";
            Transfer transfer;
            transfer.bytes = part * static_cast<size_t>(blocks);
            transfer.put = put;
            const size_t second = Session::second_place(transfer), smem = donated_bytes();
            const int pe = session.peer();
            const Launch ours =
                put ? repeated<Donated>(session, blocks, threads,
                                        BlockPut{session.target(), session.source(), part, second, pe}, smem)
                    : repeated<Donated>(session, blocks, threads,
                                        BlockGet{session.target(), session.source(), part, second, pe}, smem);
            return session.measure_bandwidth(row, transfer, ours, bulk(session, blocks, part, put, second));
          }};
}

template <class Op>
RowEntry latency_row(const char* name, const char* scope, bool put, int threads, size_t bytes) {
  return {name, [=](Session& session, Row* row) {
            row->scope = scope;
            row->bytes = bytes;
            Transfer transfer;
            transfer.bytes = bytes;
            transfer.put = put;
            transfer.one_place = true;
            const size_t smem = donated_bytes();
            const Op op{session.target(), session.source(), bytes, session.peer()};
            if (!session.check(transfer, repeated<Donated>(session, 1, threads, op, smem))) return false;
            const auto raw =
                put ? timed_block<Raw>(session, threads, CopyFence{session.peer_target(), session.source(), bytes})
                    : timed_block<Raw>(session, threads, CopyHere{session.target(), session.peer_source(), bytes});
            return session.measure_latency(row, false, timed_block<Donated>(session, threads, op, smem), raw);
          }};
}

}  // namespace
#endif

std::vector<RowEntry> smem_rows() {
#ifdef PERFTEST_SMEM
  constexpr size_t kMiB = 1u << 20;
  return {
      latency_row<ThreadPutQuiet>("smem_put_quiet_thread_4k", "thread", true, 1, 4u << 10),
      latency_row<WarpPutQuiet>("smem_put_quiet_warp_64k", "warp", true, 32, 64u << 10),
      latency_row<WarpGetQuiet>("smem_get_quiet_warp_64k", "warp", false, 32, 64u << 10),
      latency_row<BlockPutQuiet>("smem_put_quiet_block_8", "block", true, 1024, 8),
      block_row("smem_put_1x32_bw", true, 1, 32, 4 * kMiB),
      block_row("smem_put_1x128_bw", true, 1, 128, 4 * kMiB),
      block_row("smem_put_1x1024_bw", true, 1, 1024, 4 * kMiB),
      block_row("smem_get_1x32_bw", false, 1, 32, 4 * kMiB),
      block_row("smem_get_1x128_bw", false, 1, 128, 4 * kMiB),
      block_row("smem_get_1x1024_bw", false, 1, 1024, 4 * kMiB),
      block_row("smem_put_8_bw", true, 8, 1024, kMiB),
      block_row("smem_put_132_bw", true, 132, 1024, kMiB),
      block_row("smem_get_8_bw", false, 8, 1024, kMiB),
      block_row("smem_get_132_bw", false, 132, 1024, kMiB),
  };
#else
  return {};
#endif
}

}  // namespace perftest
