// One process of the device tests: its GPU, its symmetric buffers and the peer's, how kernels are timed, and how
// kernels that do not end are ended. Knows no device call of the library.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "perftest/common/report.h"

namespace perftest {

/// Ends the process with one sentence unless `status` is cudaSuccess: after a failed kernel no CUDA call works.
void must(cudaError_t status, const char* what);

/// What the command line asks for.
struct DeviceOptions {
  std::vector<std::string> rows;  ///< only these; empty: all
  std::string json;               ///< file for the rows, "" for none
  int samples = 15;               ///< of each kind, ours and raw, in turns
  int divide = 1;                 ///< measures that many times less: where PEs share a GPU
  bool smem = false;              ///< the rows with registered shared memory instead of the others
};

/// Enqueues one kernel that does its operation that many times on the session's stream.
using Launch = std::function<void(int iterations)>;

/// Where a transfer's bytes lie. With room for it, odd iterations use a second place behind the first.
struct Transfer {
  size_t bytes = 0;
  bool put = true;         ///< the data arrive at the peer's target, else at the caller's own
  size_t to_shift = 0;     ///< bytes that the destination lies behind the buffer's start; a multiple of 4
  int clear = 0xEE;        ///< what the target holds before a check
  bool one_place = false;  ///< never use the second place
};

/// Made after the options are read, gone last. Calls marked "collective" are made by both PEs at the same point.
class Session {
 public:
  static constexpr size_t kBufferBytes = 256u << 20;
  static constexpr size_t kGuardBytes = 256;        ///< behind the data of a buffer: must never change
  static constexpr int kFlags = 8;                  ///< words that kernels wait for, each in 256 bytes of its own
  static constexpr uint64_t kWaitNs = 3000000000u;  ///< after which waits of raw loops end by themselves

  /// Joins the job with the GPU of this process's place on its node. Ends the process when that fails.
  explicit Session(const DeviceOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const DeviceOptions& options() const { return options_; }
  int me() const { return me_; }
  int n() const { return n_; }
  int peer() const { return 1 - me_; }
  bool active() const { return me_ == 0; }  ///< moves the data in tests of one direction
  double context_us() const { return context_us_; }
  double init_us() const { return init_us_; }
  uint64_t init_bytes() const { return init_bytes_; }  ///< GPU memory that init took
  const char* fabric() const;
  cudaStream_t stream() const { return stream_; }

  /// Collective: the buffers, once. False after a message, on both PEs.
  bool make_buffers();
  char* source() const { return source_; }
  char* target() const { return target_; }
  char* peer_source() const { return peer_source_; }
  char* peer_target() const { return peer_target_; }
  uint64_t* flag(int i) const { return flags_ + i * kFlagStride; }
  uint64_t* peer_flag(int i) const { return peer_flags_ + i * kFlagStride; }
  uint64_t* samples() const { return samples_; }  ///< device memory for kMaxSamples times in ns
  uint32_t* late() const { return late_; }        ///< a kernel writes 1 when a wait of its own took too long
  static constexpr int kMaxSamples = 64;

  /// Says why on stderr, and returns false.
  bool fail(const std::string& why) const;
  /// The row that messages name; the process ends when it takes more than a minute.
  void begin_row(const char* name);
  /// Collective: every PE's stream is idle, every PE has come here.
  void barrier();
  /// Collective: true when every PE passes true.
  bool all_true(bool mine);

  /// Enqueues kernel<<<blocks, threads, smem>>>(arguments).
  template <class... Parameters, class... Arguments>
  void launch(void (*kernel)(Parameters...), int blocks, int threads, size_t smem, const Arguments&... arguments) {
    if (smem > kStaticSmem) {
      must(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(smem)),
           "cudaFuncSetAttribute(MaxDynamicSharedMemorySize)");
    }
    kernel<<<blocks, threads, smem, stream_>>>(arguments...);
    must(cudaGetLastError(), "kernel launch");
  }
  /// Waits until the stream is idle. A kernel that waits too long for a flag is freed by setting all flags; then, and
  /// when a wait of a raw loop was late, false after a message. Ends the process when the kernel still goes on.
  bool finish();

  /// Collective: moves fresh data once on the active PE and checks every byte that arrives, and the guard behind.
  bool check(const Transfer& transfer, const Launch& ours);
  /// Collective: as Bench::times, with kernels timed by events. Fills bytes, us, gbps, raw of the row and checks the
  /// data. `raw` may be empty.
  bool measure_bandwidth(Row* row, const Transfer& transfer, const Launch& ours, const Launch& raw);
  /// What one iteration of two adds to a buffer's start: 0 when the transfer has one place only.
  static size_t second_place(const Transfer& transfer);

  /// One kernel that writes the ns of `batches` batches of `repeats` operations into samples().
  using TimedLaunch = std::function<void(int batches, int repeats)>;
  /// Medians of operations timed inside kernels; `both`: both PEs run it (ping-pongs), else the active one. Fills us,
  /// us_p99 and raw of the row. Collective.
  bool measure_latency(Row* row, bool both, const TimedLaunch& ours, const TimedLaunch& raw);

  /// Collective: fills both sources with patterns of their PE, clears both targets.
  void fill_both(size_t bytes);
  /// Is this PE's target the peer's pattern of the last fill_both?
  bool check_both(size_t bytes);

 private:
  static constexpr size_t kFlagStride = 256 / sizeof(uint64_t);
  static constexpr int kGather = kFlags;  ///< flag of PE 0's words for all_true; two each, used in turns
  static constexpr size_t kStaticSmem = 48u << 10;

  void clear_flags();
  void fill(size_t bytes, uint32_t seed);
  void clear_target(size_t bytes, int value);
  /// Index of the first wrong 4-byte word of the target, or bytes / 4.
  size_t wrong_word(size_t shift, size_t bytes, uint32_t seed);
  bool target_holds(size_t shift, size_t bytes, uint32_t seed, int clear);
  double event_us(const Launch& launch, int iterations);
  bool timed(bool runs, bool both, const TimedLaunch& launch, int batches, int repeats, std::vector<double>* us);

  DeviceOptions options_;
  const char* row_ = "set-up";
  int me_ = 0, n_ = 1;
  double context_us_ = 0, init_us_ = 0;
  uint64_t init_bytes_ = 0;
  char *source_ = nullptr, *target_ = nullptr, *peer_source_ = nullptr, *peer_target_ = nullptr;
  uint64_t *flags_ = nullptr, *peer_flags_ = nullptr;
  uint64_t* samples_ = nullptr;
  uint32_t* late_ = nullptr;
  unsigned long long* wrong_ = nullptr;
  uint64_t* free_all_ = nullptr;  ///< host memory: what frees kernels that wait for flags
  cudaStream_t stream_ = nullptr, rescue_ = nullptr;
  cudaEvent_t start_ = nullptr, end_ = nullptr, done_ = nullptr;
  uint32_t epoch_ = 0, pattern_ = 0;
};

}  // namespace perftest
