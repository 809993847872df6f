// Full round trips of a message between two PEs, one block each; raw is the same on plain flags.
#include "perftest/device/library.cuh"

namespace perftest {
namespace {

constexpr int kBlockThreads = 256;

// The library's waits compare with >=, so that the session can end them by setting the flags.

struct SignalTurn {
  uint64_t* flag;
  int pe;
  __device__ void send(uint64_t number) const { nvshmemx_signal_op(flag, number, NVSHMEM_SIGNAL_SET, pe); }
  __device__ bool wait(uint64_t number) const {
    nvshmem_signal_wait_until(flag, NVSHMEM_CMP_GE, number);
    return true;
  }
};

struct PTurn {
  uint64_t* flag;
  int pe;
  __device__ void send(uint64_t number) const { nvshmem_uint64_p(flag, number, pe); }
  __device__ bool wait(uint64_t number) const {
    nvshmem_uint64_wait_until(flag, NVSHMEM_CMP_GE, number);
    return true;
  }
};

struct AtomicTurn : PTurn {
  __device__ void send(uint64_t) const { nvshmem_uint64_atomic_inc(flag, pe); }
};

/// Data with the flag behind them, by one thread or a block.
struct DataTurn {
  char* to;
  const char* from;
  size_t bytes;
  uint64_t* flag;
  int pe;
  __device__ bool wait(uint64_t number) const {
    if (threadIdx.x == 0) nvshmem_signal_wait_until(flag, NVSHMEM_CMP_GE, number);
    return true;  // the block meets in the put that follows
  }
};

/// A block's data, a fence and a signal.
struct PutTurn : DataTurn {
  static constexpr const char* kScope = ByBlock::kName;
  __device__ void send(uint64_t number) const {
    nvshmemx_putmem_block(to, from, bytes, pe);
    if (threadIdx.x == 0) {
      nvshmem_fence();
      nvshmemx_signal_op(flag, number, NVSHMEM_SIGNAL_SET, pe);
    }
  }
};

struct BlockPutSignalTurn : DataTurn {
  static constexpr const char* kScope = ByBlock::kName;
  __device__ void send(uint64_t number) const {
    nvshmemx_putmem_signal_block(to, from, bytes, flag, number, NVSHMEM_SIGNAL_SET, pe);
  }
};

struct ThreadPutSignalTurn : DataTurn {
  static constexpr const char* kScope = ByThread::kName;
  __device__ void send(uint64_t number) const {
    nvshmem_putmem_signal(to, from, bytes, flag, number, NVSHMEM_SIGNAL_SET, pe);
  }
};

struct RawFlagTurn {
  uint64_t *mine, *theirs;
  uint32_t* late;
  __device__ void send(uint64_t number) const { store_relaxed(theirs, number); }
  __device__ bool wait(uint64_t number) const {
    return wait_bounded<Session::kWaitNs>(late, [&] { return load_relaxed(mine) >= number; });
  }
};

struct RawAtomicTurn {
  RawFlagTurn flag;
  __device__ void send(uint64_t) const { add_relaxed(flag.theirs, 1); }
  __device__ bool wait(uint64_t number) const { return flag.wait(number); }
};

struct RawReleaseTurn {
  uint64_t *mine, *theirs;
  uint32_t* late;
  __device__ void send(uint64_t number) const { store_release(theirs, number); }
  __device__ bool wait(uint64_t number) const {
    return wait_bounded<Session::kWaitNs>(late, [&] { return load_acquire(mine) >= number; });
  }
};

/// Copies by the block, then a release of the flag by one thread: two barriers a message, one of them after the wait.
struct RawPutSignalTurn {
  char* to;
  const char* from;
  size_t bytes;
  RawReleaseTurn flag;
  __device__ void send(uint64_t number) const {
    copy_vectors(to, from, bytes);
    __syncthreads();
    if (threadIdx.x == 0) flag.send(number);
  }
  __device__ bool wait(uint64_t number) const {
    bool late = false;
    if (threadIdx.x == 0) late = !flag.wait(number);
    return __syncthreads_or(late) == 0;
  }
};

RawFlagTurn raw_flag(Session& session) { return {session.flag(1), session.peer_flag(1), session.late()}; }
RawReleaseTurn raw_release(Session& session) { return {session.flag(1), session.peer_flag(1), session.late()}; }

template <class Turn>
RowEntry flag_row(const char* name, bool atomic) {
  return {name, [=](Session& session, Row* row) {
            row->scope = ByThread::kName;
            row->bytes = sizeof(uint64_t);
            const RawFlagTurn raw = raw_flag(session);
            return session.measure_latency(
                row, true, ping_pong<1>(session, Turn{session.flag(0), session.peer()}),
                atomic ? ping_pong<1>(session, RawAtomicTurn{raw}) : ping_pong<1>(session, raw));
          }};
}

template <int kThreads, class Turn>
RowEntry put_row(const char* name, size_t bytes) {
  return {name, [=](Session& session, Row* row) {
            row->scope = Turn::kScope;
            row->bytes = bytes;
            const RawPutSignalTurn raw{session.peer_target(), session.source(), bytes, raw_release(session)};
            session.fill_both(bytes);
            const Turn turn{session.target(), session.source(), bytes, session.flag(0), session.peer()};
            // The data are checked after the library's own rounds: the raw ones would mend them.
            const auto ours = ping_pong<kThreads>(session, turn);
            if (!session.measure_latency(row, true, ours, {})) return false;
            if (!session.all_true(session.check_both(bytes))) return false;
            return session.measure_latency(row, true, ours, ping_pong<kThreads>(session, raw));
          }};
}

template <class Turn>
RowEntry raw_row(const char* name, Turn (*turn)(Session&)) {
  return {name, [=](Session& session, Row* row) {
            row->scope = ByThread::kName;
            row->bytes = sizeof(uint64_t);
            return session.measure_latency(row, true, ping_pong<1>(session, turn(session)), {});
          }};
}

}  // namespace

std::vector<RowEntry> ping_pong_rows() {
  return {
      flag_row<SignalTurn>("pp_signal", false),
      flag_row<PTurn>("pp_p", false),
      flag_row<AtomicTurn>("pp_atomic", true),
      put_row<kBlockThreads, PutTurn>("pp_put_block_1k", 1u << 10),
      put_row<kBlockThreads, BlockPutSignalTurn>("pp_put_signal_block_16", 16),
      put_row<1, ThreadPutSignalTurn>("pp_put_signal_thread_2k", 2u << 10),
      put_row<1, ThreadPutSignalTurn>("pp_put_signal_thread_1m", 1u << 20),
      raw_row<RawFlagTurn>("raw_pp_relaxed", raw_flag),
      raw_row<RawReleaseTurn>("raw_pp_release", raw_release),
      raw_row<RawAtomicTurn>("raw_pp_atomic", [](Session& session) { return RawAtomicTurn{raw_flag(session)}; }),
  };
}

}  // namespace perftest
