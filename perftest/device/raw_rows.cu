// What the GPUs do without the library: the limits that figures are read against. Their data are checked as well.
#include "perftest/device/rows.h"
#include "perftest/device/timing.cuh"

namespace perftest {
namespace {

RowEntry copy_row(const std::string& name, bool put, int blocks, size_t bytes) {
  return {name, [=](Session& session, Row* row) {
            row->scope = "block";
            const size_t part = part_of(bytes, blocks);
            Transfer transfer;
            transfer.bytes = part * static_cast<size_t>(blocks);
            transfer.put = put;
            const size_t second = Session::second_place(transfer);
            const CopyVectors copy{put ? session.peer_target() : session.target(),
                                   put ? session.source() : session.peer_source(), part, second};
            return session.measure_bandwidth(row, transfer, repeated<Raw, 1024>(session, blocks, copy), {});
          }};
}

RowEntry bulk_row(const std::string& name, bool put, int blocks, size_t part) {
  return {name, [=](Session& session, Row* row) {
            row->scope = "block";
            Transfer transfer;
            transfer.bytes = part * static_cast<size_t>(blocks);
            transfer.put = put;
            const size_t second = Session::second_place(transfer);
            return session.measure_bandwidth(row, transfer, bulk(session, blocks, part, put, second), {});
          }};
}

bool measure_copy_engine(Session& session, Row* row) {
  row->scope = "stream";
  Transfer transfer;
  transfer.bytes = Session::kBufferBytes;
  return session.measure_bandwidth(row, transfer, cuda_copies(session, true, transfer.bytes), {});
}

}  // namespace

std::vector<RowEntry> raw_rows() {
  constexpr size_t kMiB = 1u << 20;
  std::vector<RowEntry> rows;
  for (const bool put : {true, false}) {
    const std::string store = put ? "raw_store_" : "raw_load_", bulk_name = put ? "raw_bulk_put_" : "raw_bulk_get_";
    for (const int blocks : {1, 4, 8, 132}) {
      const size_t bytes = blocks == 132 ? 256 * kMiB : static_cast<size_t>(blocks) * kMiB;
      rows.push_back(copy_row(store + std::to_string(blocks) + "_bw", put, blocks, bytes));
    }
    for (const int blocks : {1, 4, 8, 132}) {
      rows.push_back(bulk_row(bulk_name + std::to_string(blocks) + "_bw", put, blocks, blocks == 1 ? 4 * kMiB : kMiB));
    }
  }
  rows.push_back({"raw_copy_engine_bw", measure_copy_engine});
  return rows;
}

}  // namespace perftest
