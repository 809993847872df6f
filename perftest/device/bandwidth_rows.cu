// Many transfers in flight, in a loop inside one kernel; raw is 16-byte loads and stores on the peer's mapped memory,
// by as many blocks and threads.
#include "perftest/device/library.cuh"

namespace perftest {
namespace {

/// A row of block puts or gets. `shift`: see Transfer; with it, raw is the aligned transfer.
template <int kThreads = 1024>
RowEntry block_row(const char* name, bool put, int blocks, size_t bytes, size_t shift = 0) {
  return {name, [=](Session& session, Row* row) {
            row->scope = ByBlock::kName;
            const size_t part = part_of(bytes, blocks);
            Transfer transfer;
            transfer.bytes = part * static_cast<size_t>(blocks);
            transfer.put = put;
            transfer.to_shift = shift;
            const size_t second = Session::second_place(transfer);
            const int pe = session.peer();
            if (!put) {
              const GetPart<ByBlock> get{session.target() + shift, session.source(), part, second, pe};
              const CopyVectors raw{session.target(), session.peer_source(), part, second};
              return session.measure_bandwidth(row, transfer, repeated<Library, kThreads>(session, blocks, get),
                                               repeated<Raw, kThreads>(session, blocks, raw));
            }
            const auto put_to = [&](size_t by) {
              return repeated<Library, kThreads>(
                  session, blocks, PutPart<ByBlock>{session.target() + by, session.source(), part, second, pe});
            };
            const CopyVectors raw{session.peer_target(), session.source(), part, second};
            return session.measure_bandwidth(row, transfer, put_to(shift),
                                             shift != 0 ? put_to(0) : repeated<Raw, kThreads>(session, blocks, raw));
          }};
}

RowEntry thread_row(const char* name, int blocks, size_t bytes) {
  return {name, [=](Session& session, Row* row) {
            row->scope = ByThread::kName;
            constexpr int kThreads = 1024;
            Transfer transfer;
            transfer.bytes = bytes;
            const size_t second = Session::second_place(transfer);
            const size_t part = bytes / static_cast<size_t>(blocks);
            const PutPart<ByThread> put{session.target(), session.source(), part / kThreads, second, session.peer()};
            const CopyVectors raw{session.peer_target(), session.source(), part, second};
            return session.measure_bandwidth(row, transfer, repeated<Library, kThreads>(session, blocks, put),
                                             repeated<Raw, kThreads>(session, blocks, raw));
          }};
}

/// Words that neighbouring threads move one by one: Move is what is done with each.
template <class Move>
struct EachWord {
  uint64_t* to;
  const uint64_t* from;
  size_t count, second;
  int pe;
  __device__ void operator()(int i) const {
    const size_t skip = (i & 1) * second / sizeof(uint64_t), step = static_cast<size_t>(gridDim.x) * blockDim.x;
    for (size_t k = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < count; k += step) {
      Move::move(to + skip + k, from + skip + k, pe);
    }
  }
};

struct MoveP {
  static __device__ void move(uint64_t* to, const uint64_t* from, int pe) { nvshmem_uint64_p(to, *from, pe); }
};
struct MoveG {
  static __device__ void move(uint64_t* to, const uint64_t* from, int pe) { *to = nvshmem_uint64_g(from, pe); }
};
struct MoveAdd {
  static __device__ void move(uint64_t* to, const uint64_t* from, int pe) { nvshmem_uint64_atomic_add(to, *from, pe); }
};
struct MoveThroughPtr {
  static __device__ void move(uint64_t* to, const uint64_t* from, int pe) {
    *static_cast<volatile uint64_t*>(nvshmem_ptr(to, pe)) = *from;
  }
};
struct RawStore {
  static __device__ void move(uint64_t* to, const uint64_t* from, int) { store_relaxed(to, *from); }
};
struct RawLoad {
  static __device__ void move(uint64_t* to, const uint64_t* from, int) { *to = load_relaxed(from); }
};
struct RawAdd {
  static __device__ void move(uint64_t* to, const uint64_t* from, int) { add_relaxed(to, *from); }
};

template <class Move, class RawMove>
RowEntry word_row(const char* name, bool put, int blocks, size_t bytes, int clear = 0xEE) {
  return {name, [=](Session& session, Row* row) {
            row->scope = ByThread::kName;
            constexpr int kThreads = 1024;
            Transfer transfer;
            transfer.bytes = bytes;
            transfer.put = put;
            transfer.clear = clear;
            const size_t second = Session::second_place(transfer);
            const auto words = [](char* at) { return reinterpret_cast<uint64_t*>(at); };
            const size_t count = bytes / sizeof(uint64_t);
            const EachWord<Move> ours{words(session.target()), words(session.source()), count, second, session.peer()};
            const EachWord<RawMove> raw{words(put ? session.peer_target() : session.target()),
                                        words(put ? session.source() : session.peer_source()), count, second, 0};
            return session.measure_bandwidth(row, transfer, repeated<Library, kThreads>(session, blocks, ours),
                                             repeated<Raw, kThreads>(session, blocks, raw));
          }};
}

}  // namespace

std::vector<RowEntry> bandwidth_rows() {
  constexpr size_t kMiB = 1u << 20;
  return {
      block_row("put_block_4_bw", true, 4, 16 * kMiB),
      block_row("put_block_132_bw", true, 132, 256 * kMiB),
      block_row<128>("put_block_8x128_bw", true, 8, 8 * kMiB),
      block_row("put_block_32_bw", true, 32, 16 * kMiB),
      block_row("put_misaligned_bw", true, 32, 16 * kMiB, 4),
      block_row("get_block_8_bw", false, 8, 8 * kMiB),
      block_row("get_block_132_bw", false, 132, 256 * kMiB),
      thread_row("put_thread_32_bw", 32, 32 * kMiB),
      word_row<MoveP, RawStore>("p_bw", true, 32, 4 * kMiB),
      word_row<MoveG, RawLoad>("g_bw", false, 32, 4 * kMiB),
      word_row<MoveThroughPtr, RawStore>("st_bw", true, 32, 32 * kMiB),
      // Added once to zeros, the source's words are the sum that the check expects.
      word_row<MoveAdd, RawAdd>("atomic_bw", true, 32, 4 * kMiB, 0),
  };
}

}  // namespace perftest
