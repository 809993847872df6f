// What the tests share: a session from init to finalize, the buffers of both PEs and their plain twins, the timing
// loop.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "perftest/common/options.h"
#include "perftest/common/pgas.h"
#include "perftest/common/raw.h"
#include "perftest/common/report.h"
#include "perftest/common/statistics.h"

namespace perftest {

/// Medians and 99th percentile of one operation, microseconds. Without a raw loop raw_us is negative.
struct Timing {
  double us = -1, us_p99 = -1, raw_us = -1;
};

/// One process's part of a test: made after init, gone before finalize. All calls but times() are collective.
class Bench {
 public:
  Bench(Options options, const char* name, Figure figure, const char* raw_name)
      : options_(std::move(options)), name_(name), me_(pgas::my_pe()), n_(pgas::n_pes()) {
    int cores = 0;
    const bool bound = options_.bind && bind_to_core(me_, &cores);
    words_ = static_cast<uint64_t*>(pgas::allocate(static_cast<size_t>(n_) * sizeof(uint64_t)));
    if (words_ != nullptr) memset(words_, 0, static_cast<size_t>(n_) * sizeof(uint64_t));
    pgas::barrier_all();
    report_ = std::make_unique<Report>(name, pgas::fabric(), n_, figure, raw_name, bound && cores >= n_, me_ != 0);
  }
  ~Bench() {
    if (words_ != nullptr) pgas::release(words_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  const Options& options() const { return options_; }
  int me() const { return me_; }
  int n() const { return n_; }
  /// The other one of two PEs.
  int peer() const { return 1 - me_; }
  Report& report() { return *report_; }

  /// Says why on stderr (PE 0 only when `everywhere` is false) and returns false.
  bool fail(const std::string& why, bool everywhere = true) const {
    if (everywhere || me_ == 0) fprintf(stderr, "%s: PE %d: %s\n", name_, me_, why.c_str());
    return false;
  }
  bool need_two_pes() const {
    return n_ == 2 ||
           fail("needs exactly 2 PEs, has " + std::to_string(n_) + "; run it as mpirun -n 2 or heddlerun -n 2", false);
  }

  /// Everyone's word, in PE order.
  std::vector<uint64_t> gather(uint64_t mine) {
    for (int pe = 0; pe < n_; ++pe) pgas::p(words_ + me_, mine, pe);
    pgas::barrier_all();
    std::vector<uint64_t> all(words_, words_ + n_);
    pgas::barrier_all();
    return all;
  }
  /// True when every PE passes true.
  bool all_true(bool mine) {
    for (const uint64_t word : gather(mine ? 1 : 0)) {
      if (word == 0) return false;
    }
    return true;
  }

  /// Times `batch` operations a sample: ours(batch) and raw(batch) strictly take turns, so that a drift of the machine
  /// hits both. before() runs untimed ahead of each sample. Pass nullptr for raw where there is none.
  template <class Ours, class Raw, class Before>
  Timing times(int batch, Ours ours, Raw raw, Before before) {
    constexpr bool kHasRaw = !std::is_same_v<Raw, std::nullptr_t>;
    // Small batches are those of large transfers: an untimed one first leaves the caches as a repeated transfer finds
    // them, not as the other kind's turn did.
    const bool primes = batch <= kPrimedBatch;
    const auto sample_of = [&](auto& operation, std::vector<double>& samples, bool counts) {
      if (primes) operation(1);
      before();
      const double start = now_us();
      operation(batch);
      const double us = (now_us() - start) / batch;
      if (counts) samples.push_back(us);
    };
    std::vector<double> our_us, raw_us;
    for (int sample = -options_.warmup; sample < options_.iters; ++sample) {
      sample_of(ours, our_us, sample >= 0);
      if constexpr (kHasRaw) sample_of(raw, raw_us, sample >= 0);
    }
    Timing timing;
    timing.us = percentile(our_us, 0.5);
    timing.us_p99 = percentile(our_us, 0.99);
    if (kHasRaw) timing.raw_us = percentile(raw_us, 0.5);
    return timing;
  }

  /// A batch of ours() that takes at least `target_us`, so that reading the clock does not count; PE 0's, at least 2.
  template <class Ours>
  int batch_for(Ours ours, double target_us = 100) {
    uint64_t batch = 2;
    if (me_ == 0 || options_.bidir) {
      ours(1);
      for (; batch < (1 << 20); batch *= 2) {
        const double start = now_us();
        ours(static_cast<int>(batch));
        if (now_us() - start >= target_us) break;
      }
    }
    return static_cast<int>(gather(batch)[0]);
  }

 private:
  static constexpr int kPrimedBatch = 8;

  Options options_;
  const char* name_;
  int me_, n_;
  uint64_t* words_ = nullptr;
  std::unique_ptr<Report> report_;
};

/// Buffers of a two-PE data test: `source` and `target` in the symmetric heap and, made the same way but plain, this
/// PE's own twin and the peer's. All start at the same alignment and have been touched.
class Buffers {
 public:
  static constexpr size_t kGuard = 64;  ///< bytes behind the data that must never change
  static constexpr unsigned char kClean = 0xEE;

  /// Collective. False after a message: no memory. Without a twin (peers of different hosts) there is no raw figure.
  bool make(Bench& bench, size_t bytes) {
    bytes_ = bytes;
    room_ = (bytes + kGuard + SharedMapping::kAlign - 1) / SharedMapping::kAlign * SharedMapping::kAlign;
    memory_ = static_cast<std::byte*>(pgas::allocate(2 * room_ + SharedMapping::kAlign));
    if (!bench.all_true(memory_ != nullptr)) {
      return bench.fail("no symmetric memory for two buffers of " + std::to_string(bytes) +
                            " bytes; give a smaller --max_size or a larger symmetric size",
                        false);
    }
    // Symmetric addresses stay symmetric only if every PE skips the same: what PE 0 needs.
    const uint64_t skip =
        (SharedMapping::kAlign - reinterpret_cast<uintptr_t>(memory_) % SharedMapping::kAlign) % SharedMapping::kAlign;
    source_ = memory_ + bench.gather(skip)[0];
    target_ = source_ + room_;
    memset(source_, 0, room_);
    memset(target_, 0, room_);
    const bool made = own_twin_.create(room_);
    const uint64_t peer_name = bench.gather(made ? own_twin_.name() : 0)[static_cast<size_t>(bench.peer())];
    if (made && peer_name != 0) peer_twin_.open(peer_name, room_);
    has_twin_ = bench.all_true(peer_twin_.data() != nullptr);
    if (!has_twin_) bench.fail("no raw figures: " + own_twin_.error() + peer_twin_.error(), false);
    return true;
  }
  ~Buffers() {
    if (memory_ != nullptr) pgas::release(memory_);
  }

  std::byte* source() const { return source_; }
  std::byte* target() const { return target_; }
  std::byte* peer_twin() const { return peer_twin_.data(); }
  bool has_twin() const { return has_twin_; }

  /// Collective: moves a fresh pattern of `bytes` once with move() on the PEs where `active`, and checks every byte
  /// that arrived and the guard behind. `put`: the data arrive at the peer's target, else in the caller's own.
  template <class Move>
  bool check(Bench& bench, size_t bytes, bool put, bool active, Move move) {
    const auto seed = [&](int pe) { return (bytes * 2 + static_cast<uint64_t>(pe)) * 1000003; };
    fill_pattern(source_, bytes, seed(bench.me()));
    memset(target_, kClean, bytes + kGuard);
    pgas::barrier_all();
    if (active) move();
    pgas::barrier_all();
    const bool arrives_here = put ? bench.options().bidir || bench.me() == 1 : active;
    bool right = true;
    if (arrives_here) {
      const size_t wrong = find_wrong_byte(target_, bytes, seed(bench.peer()));
      if (wrong < bytes) {
        right = bench.fail("wrong data: byte " + std::to_string(wrong) + " of " + std::to_string(bytes) + " is " +
                           std::to_string(std::to_integer<int>(target_[wrong])));
      }
      for (size_t guard = 0; right && guard < kGuard; ++guard) {
        if (target_[bytes + guard] != std::byte{kClean}) {
          right = bench.fail("byte " + std::to_string(guard) + " behind a transfer of " + std::to_string(bytes) +
                             " bytes was overwritten");
        }
      }
    }
    return bench.all_true(right);
  }

 private:
  size_t bytes_ = 0, room_ = 0;
  std::byte *memory_ = nullptr, *source_ = nullptr, *target_ = nullptr;
  SharedMapping own_twin_, peer_twin_;
  bool has_twin_ = false;
};

/// Keeps the compiler from moving or dropping plain memory accesses across it.
inline void compiler_barrier() { asm volatile("" ::: "memory"); }

/// A plain ping-pong on two cache lines: each process spins on its own line and stores to the other's. No library call.
class LinePingPong {
 public:
  static constexpr size_t kLine = 256;  ///< far enough for prefetchers of neighbour lines

  LinePingPong(std::atomic<uint64_t>* mine, std::atomic<uint64_t>* theirs, bool first)
      : mine_(mine), theirs_(theirs), first_(first) {}

  /// `rounds` full round trips; copy() moves the message's data, if it has any, ahead of each store.
  template <class Copy>
  void play(int rounds, Copy copy) {
    for (int round = 0; round < rounds; ++round) {
      ++turn_;
      if (first_) send(copy);
      while (mine_->load(std::memory_order_acquire) != turn_) {
      }
      if (!first_) send(copy);
    }
  }

 private:
  template <class Copy>
  void send(Copy& copy) {
    copy();
    theirs_->store(turn_, std::memory_order_release);  // release and acquire: a message, not just a value
  }

  std::atomic<uint64_t>* mine_;
  std::atomic<uint64_t>* theirs_;
  bool first_;
  uint64_t turn_ = 0;
};

/// Lines of symmetric memory for tests of latency; line i of every PE is zero at first.
class Lines {
 public:
  bool make(Bench& bench, int count) {
    const size_t bytes = (static_cast<size_t>(count) + 1) * LinePingPong::kLine;
    memory_ = static_cast<std::byte*>(pgas::allocate(bytes));
    if (!bench.all_true(memory_ != nullptr)) return bench.fail("no symmetric memory", false);
    memset(memory_, 0, bytes);
    const uint64_t skip = (LinePingPong::kLine - reinterpret_cast<uintptr_t>(memory_) % LinePingPong::kLine);
    lines_ = memory_ + bench.gather(skip)[0] % LinePingPong::kLine;
    pgas::barrier_all();
    return true;
  }
  ~Lines() {
    if (memory_ != nullptr) pgas::release(memory_);
  }

  uint64_t* word(int line) const {
    return reinterpret_cast<uint64_t*>(lines_ + static_cast<size_t>(line) * LinePingPong::kLine);
  }
  /// The same word of `pe` as plain memory; nullptr when it is not mapped here.
  std::atomic<uint64_t>* plain(int line, int pe) const {
    static_assert(sizeof(std::atomic<uint64_t>) == 8 && std::atomic<uint64_t>::is_always_lock_free);
    return static_cast<std::atomic<uint64_t>*>(pgas::ptr(word(line), pe));
  }

 private:
  std::byte *memory_ = nullptr, *lines_ = nullptr;
};

/// main() of a test: options, init, body(bench), JSON, finalize. The exit status is 0 when the body returned true on
/// every PE. Results are flushed before finalize.
template <class Body>
int run(int argc, char** argv, const char* name, Figure figure, const char* raw_name, const Options& defaults,
        Body body) {
  Options options = defaults;
  int exit_code = 0;
  if (!parse_options(argc, argv, name, &options, &exit_code)) return exit_code;
  pgas::init();
  bool good = false;
  {
    Bench bench(options, name, figure, raw_name);
    good = body(bench) && bench.report().write_json(options.json);
    good = bench.all_true(good);
  }
  fflush(stdout);
  pgas::finalize();
  return good ? 0 : 1;
}

}  // namespace perftest
