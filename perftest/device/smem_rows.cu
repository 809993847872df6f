// The rows with registered shared memory: the library then moves data by bulk copies, and so does raw.
#include "perftest/device/library.cuh"

namespace perftest {

#ifdef PERFTEST_SMEM
namespace {

/// Every block moves `part` bytes a call.
template <int kThreads>
RowEntry block_row(const char* name, bool put, int blocks, size_t part) {
  return {name, [=](Session& session, Row* row) {
            row->scope = ByBlock::kName;
            Transfer transfer;
            transfer.bytes = part * static_cast<size_t>(blocks);
            transfer.put = put;
            const size_t second = Session::second_place(transfer), smem = Donated::smem();
            const int pe = session.peer();
            const Launch ours =
                put ? repeated<Donated, kThreads>(
                          session, blocks, PutPart<ByBlock>{session.target(), session.source(), part, second, pe}, smem)
                    : repeated<Donated, kThreads>(
                          session, blocks, GetPart<ByBlock>{session.target(), session.source(), part, second, pe},
                          smem);
            return session.measure_bandwidth(row, transfer, ours, bulk(session, blocks, part, put, second));
          }};
}

}  // namespace
#endif

std::vector<RowEntry> smem_rows() {
#ifdef PERFTEST_SMEM
  constexpr size_t kMiB = 1u << 20;
  return {
      transfer_row<Donated, 1, PutQuiet<ByThread>>("smem_put_quiet_thread_4k", 4u << 10),
      transfer_row<Donated, 32, PutQuiet<ByWarp>>("smem_put_quiet_warp_64k", 64u << 10),
      transfer_row<Donated, 32, GetQuiet<ByWarp>>("smem_get_quiet_warp_64k", 64u << 10),
      transfer_row<Donated, 1024, PutQuiet<ByBlock>>("smem_put_quiet_block_8", 8),
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
