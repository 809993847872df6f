#include "perftest/device/session.h"

#include <nvshmem.h>
#include <nvshmemx.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "perftest/common/statistics.h"
#include "perftest/device/timing.cuh"

#ifdef HEDDLE_VERSION_STRING
#include <heddle.h>
#endif
#ifdef PERFTEST_MPI
#include <mpi.h>
#endif

namespace perftest {
namespace {

constexpr double kRescueUs = 10e6;  ///< after which a kernel's flags are set
constexpr double kGiveUpUs = 15e6;  ///< after which the process ends
constexpr unsigned kRowSeconds = 60;
constexpr int kGuardByte = 0xA5;

const char* volatile g_row = "set-up";  // for the signal handler

/// SIGALRM: nothing else can be done about a call that never returns. The launcher ends the other PE.
void too_long(int) {
  const char* const parts[] = {"device_perf: not done after a minute: ", g_row, "\n"};
  for (const char* part : parts) {
    if (write(STDERR_FILENO, part, strlen(part)) < 0) break;
  }
  _exit(4);
}

/// This process's place among those of its node, as launchers tell it.
int local_rank() {
  for (const char* name :
       {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID", "PMIX_RANK"}) {
    if (const char* text = getenv(name)) return atoi(text);
  }
  return 0;
}

uint64_t free_bytes() {
  size_t free = 0, total = 0;
  must(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

__device__ uint32_t pattern_word(uint32_t seed, size_t index) {
  return seed * 0x9E3779B9u ^ static_cast<uint32_t>(index) * 0x85EBCA6Bu ^ static_cast<uint32_t>(index >> 16);
}

__global__ void fill_kernel(uint32_t* to, size_t words, uint32_t seed) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step) {
    to[i] = pattern_word(seed, i);
  }
}

__global__ void check_kernel(const uint32_t* at, size_t words, uint32_t seed, unsigned long long* first_wrong) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words; i += step) {
    if (at[i] != pattern_word(seed, i)) atomicMin(first_wrong, static_cast<unsigned long long>(i));
  }
}

__global__ void store_kernel(uint64_t* to, uint64_t value) { store_release(to, value); }

void join(double* init_us) {
#ifdef PERFTEST_MPI
  int started = 0;
  MPI_Initialized(&started);
  if (!started) MPI_Init(nullptr, nullptr);
  MPI_Comm world = MPI_COMM_WORLD;
  nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
  attributes.mpi_comm = &world;
  MPI_Barrier(world);
  const double start = now_us();
  nvshmemx_init_attr(NVSHMEMX_INIT_WITH_MPI_COMM, &attributes);
#else
  const double start = now_us();
  nvshmem_init();
#endif
  *init_us = now_us() - start;
  if (nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED) {
#ifdef HEDDLE_VERSION_STRING
    fprintf(stderr, "device_perf: init failed: %s\n", heddle_last_error());
#else
    fprintf(stderr, "device_perf: init failed\n");
#endif
    _exit(3);
  }
}

}  // namespace

void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "device_perf: %s: %s failed: %s (%d)\n", g_row, what, cudaGetErrorString(status), status);
  fflush(stdout);
  _exit(3);
}

Session::Session(const DeviceOptions& options) : options_(options) {
  signal(SIGALRM, too_long);
  alarm(2 * kRowSeconds);
  setenv("NVSHMEM_DISABLE_NVLS", "1", 0);  // multicast objects can disturb other users of the GPUs
  if (options.smem) setenv("NVSHMEM_TMA_POLICY", "ENABLE", 0);
  int devices = 0;
  must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  const double start = now_us();
  must(cudaSetDevice(local_rank() % devices), "cudaSetDevice");
  must(cudaFree(nullptr), "creating a context");
  context_us_ = now_us() - start;
  const uint64_t before = free_bytes();
  join(&init_us_);
  const uint64_t after = free_bytes();
  init_bytes_ = before > after ? before - after : 0;
  me_ = nvshmem_my_pe();
  n_ = nvshmem_n_pes();
  must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  must(cudaStreamCreateWithFlags(&rescue_, cudaStreamNonBlocking), "cudaStreamCreate");
  must(cudaEventCreate(&start_), "cudaEventCreate");
  must(cudaEventCreate(&end_), "cudaEventCreate");
  must(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming), "cudaEventCreate");
  must(cudaMalloc(&samples_, kMaxSamples * sizeof *samples_), "cudaMalloc");
  must(cudaMalloc(&wrong_, sizeof *wrong_), "cudaMalloc");
  must(cudaMallocHost(&late_, sizeof *late_), "cudaMallocHost");
  *late_ = 0;
  const size_t flag_bytes = kFlags * kFlagStride * sizeof(uint64_t);
  must(cudaMallocHost(&free_all_, flag_bytes), "cudaMallocHost");
  memset(free_all_, 0xFF, flag_bytes);
}

Session::~Session() {
  alarm(kRowSeconds);
  g_row = "finalize";
  if (flags_ != nullptr) nvshmem_free(flags_);
  if (target_ != nullptr) nvshmem_free(target_);
  if (source_ != nullptr) nvshmem_free(source_);
  nvshmem_finalize();
#ifdef PERFTEST_MPI
  MPI_Finalize();
#endif
  alarm(0);
}

const char* Session::fabric() const {
#ifdef HEDDLE_VERSION_STRING
  return heddle_fabric_name();
#else
  return "nvshmem";
#endif
}

bool Session::fail(const std::string& why) const {
  fprintf(stderr, "device_perf: %s: PE %d: %s\n", row_, me_, why.c_str());
  return false;
}

void Session::begin_row(const char* name) {
  row_ = name;
  g_row = name;
  alarm(kRowSeconds);
}

bool Session::make_buffers() {
  if (flags_ != nullptr) return true;
  if (n_ != 2) return me_ != 0 ? false : fail("needs exactly 2 PEs, has " + std::to_string(n_));
  const size_t room = kBufferBytes + kGuardBytes;
  source_ = static_cast<char*>(nvshmem_malloc(room));
  target_ = static_cast<char*>(nvshmem_malloc(room));
  const size_t flag_bytes = (kGather + 4) * kFlagStride * sizeof(uint64_t);
  flags_ = static_cast<uint64_t*>(nvshmem_malloc(flag_bytes));
  if (source_ == nullptr || target_ == nullptr || flags_ == nullptr) {
    fail("no symmetric memory for two buffers of 256 MiB");
    _exit(3);
  }
  must(cudaMemset(flags_, 0, flag_bytes), "clearing flags");
  must(cudaDeviceSynchronize(), "clearing flags");
  peer_source_ = static_cast<char*>(nvshmem_ptr(source_, peer()));
  peer_target_ = static_cast<char*>(nvshmem_ptr(target_, peer()));
  peer_flags_ = static_cast<uint64_t*>(nvshmem_ptr(flags_, peer()));
  if (peer_source_ == nullptr || peer_target_ == nullptr || peer_flags_ == nullptr) {
    fail("the peer's memory is not mapped here (nvshmem_ptr gives NULL): nothing to compare with");
    _exit(3);
  }
  // GPUs that were idle need a while to reach their clocks.
  for (const double start = now_us(); now_us() - start < 0.3e6;) {
    fill(kBufferBytes, 0);
    finish();
  }
  nvshmem_barrier_all();
  return true;
}

void Session::barrier() {
  finish();
  nvshmem_barrier_all();
}

bool Session::all_true(bool mine) {
  if (n_ != 2 || flags_ == nullptr) return mine;
  ++epoch_;
  // Two slots a PE, in turns: the next call's word never meets a reader of this one's.
  const int slot = kGather + static_cast<int>(epoch_ & 1) * 2;
  launch(store_kernel, 1, 1, 0, peer_flag(slot + me_), uint64_t{epoch_} * 2 + (mine ? 1 : 0));
  barrier();
  uint64_t theirs = 0;
  must(cudaMemcpyAsync(&theirs, flag(slot + peer()), sizeof theirs, cudaMemcpyDeviceToHost, stream_), "reading a word");
  finish();
  if (theirs / 2 != epoch_) fail("the PEs are not at the same point");
  return mine && theirs == uint64_t{epoch_} * 2 + 1;
}

bool Session::finish() {
  must(cudaEventRecord(done_, stream_), "cudaEventRecord");
  const double start = now_us();
  bool freed = false;
  for (cudaError_t status; (status = cudaEventQuery(done_)) != cudaSuccess;) {
    if (status != cudaErrorNotReady) must(status, "kernel");
    const double waited = now_us() - start;
    if (waited > kRescueUs && !freed && flags_ != nullptr) {
      freed = true;
      fail("a kernel waits for the peer since 10 s; its flags are set to free it");
      must(cudaMemcpyAsync(flags_, free_all_, kFlags * kFlagStride * sizeof(uint64_t), cudaMemcpyHostToDevice, rescue_),
           "freeing a kernel");
    }
    if (waited > kGiveUpUs) {
      fail("the kernel does not end");
      fflush(stdout);
      _exit(4);
    }
    sched_yield();
  }
  if (*static_cast<volatile uint32_t*>(late_) != 0) {
    *late_ = 0;
    return fail("a wait in a kernel was not over after 3 s");
  }
  return !freed;
}

void Session::clear_flags() {
  must(cudaMemsetAsync(flags_, 0, kFlags * kFlagStride * sizeof(uint64_t), stream_), "clearing flags");
}

void Session::fill(size_t bytes, uint32_t seed) {
  launch(fill_kernel, 256, 512, 0, reinterpret_cast<uint32_t*>(source_), bytes / 4, seed);
}

void Session::clear_target(size_t bytes, int value) {
  const size_t data = std::min(bytes, kBufferBytes);
  must(cudaMemsetAsync(target_, value, data, stream_), "clearing the target");
  must(cudaMemsetAsync(target_ + data, kGuardByte, kGuardBytes, stream_), "clearing the target");
}

size_t Session::wrong_word(size_t shift, size_t bytes, uint32_t seed) {
  unsigned long long first = bytes / 4;
  must(cudaMemcpyAsync(wrong_, &first, sizeof first, cudaMemcpyHostToDevice, stream_), "checking");
  launch(check_kernel, 256, 512, 0, reinterpret_cast<const uint32_t*>(target_ + shift), bytes / 4, seed, wrong_);
  must(cudaMemcpyAsync(&first, wrong_, sizeof first, cudaMemcpyDeviceToHost, stream_), "checking");
  finish();
  return first;
}

bool Session::target_holds(size_t shift, size_t bytes, uint32_t seed, int clear) {
  const size_t wrong = wrong_word(shift, bytes, seed);
  if (wrong < bytes / 4) {
    uint32_t found = 0;
    must(cudaMemcpy(&found, target_ + shift + wrong * 4, sizeof found, cudaMemcpyDeviceToHost), "reading the target");
    char text[32];
    snprintf(text, sizeof text, "0x%08x", found);
    return fail("wrong data: word " + std::to_string(wrong) + " of " + std::to_string(bytes / 4) + " is " + text);
  }
  unsigned char guard[kGuardBytes / 2];
  must(cudaMemcpy(guard, target_ + shift + bytes, sizeof guard, cudaMemcpyDeviceToHost), "reading the guard");
  for (size_t i = 0; i < sizeof guard; ++i) {
    const int expected = shift + bytes + i < kBufferBytes ? clear : kGuardByte;
    if (guard[i] != expected) return fail("byte " + std::to_string(i) + " behind the data was overwritten");
  }
  return true;
}

size_t Session::second_place(const Transfer& transfer) {
  return !transfer.one_place && 2 * transfer.bytes + transfer.to_shift <= kBufferBytes ? transfer.bytes : 0;
}

bool Session::check(const Transfer& transfer, const Launch& ours) {
  const size_t second = second_place(transfer), all = transfer.bytes + second;
  const uint32_t seed = ++pattern_;
  const bool arrives_here = active() != transfer.put;
  if (!arrives_here) fill(all, seed);
  if (arrives_here) clear_target(kBufferBytes, transfer.clear);
  barrier();
  bool good = true;
  if (active()) {
    ours(second != 0 ? 2 : 1);
    good = finish();
  }
  barrier();
  if (arrives_here && good) good = target_holds(transfer.to_shift, all, seed, transfer.clear);
  return all_true(good);
}

double Session::event_us(const Launch& launch, int iterations) {
  must(cudaEventRecord(start_, stream_), "cudaEventRecord");
  launch(iterations);
  must(cudaEventRecord(end_, stream_), "cudaEventRecord");
  if (!finish()) return -1;
  float ms = 0;
  must(cudaEventElapsedTime(&ms, start_, end_), "cudaEventElapsedTime");
  return static_cast<double>(ms) * 1e3 / iterations;
}

bool Session::measure_bandwidth(Row* row, const Transfer& transfer, const Launch& ours, const Launch& raw) {
  row->bytes = transfer.bytes;
  row->figure = Figure::kBandwidth;
  bool good = check(transfer, ours);
  if (good && active()) {
    // Long enough that launching does not count, and an even number, so that both places are used alike.
    constexpr double kTargetUs = 4000;
    const double once = event_us(ours, 2);
    int iterations = once > 0 ? static_cast<int>(kTargetUs / once / options_.divide) : 2;
    iterations = std::clamp(iterations & ~1, 2, 4000);
    std::vector<double> our_us, raw_us;
    for (int sample = -1; good && sample < options_.samples; ++sample) {
      const double mine = event_us(ours, iterations);
      const double other = raw ? event_us(raw, iterations) : 1;
      good = mine > 0 && other > 0;
      if (sample < 0) continue;
      our_us.push_back(mine);
      raw_us.push_back(other);
    }
    if (good) {
      row->us = percentile(our_us, 0.5);
      row->us_p99 = percentile(our_us, 0.99);
      row->gbps = static_cast<double>(transfer.bytes) * 1e-3 / row->us;
      if (raw) row->raw = static_cast<double>(transfer.bytes) * 1e-3 / percentile(raw_us, 0.5);
    }
  }
  return all_true(good);
}

bool Session::timed(bool runs, bool both, const TimedLaunch& launch, int batches, int repeats,
                    std::vector<double>* us) {
  if (both) {
    clear_flags();
    barrier();
  }
  if (!runs) return true;
  must(cudaMemsetAsync(samples_, 0xFF, kMaxSamples * sizeof *samples_, stream_), "clearing samples");
  launch(batches, repeats);
  if (!finish()) return false;  // before the copy, which would wait for the kernel without a limit
  uint64_t ns[kMaxSamples] = {};
  must(cudaMemcpyAsync(ns, samples_, sizeof ns, cudaMemcpyDeviceToHost, stream_), "reading samples");
  finish();
  for (int batch = 0; batch < batches; ++batch) {
    if (ns[batch] == ~uint64_t{0}) return fail("the kernel ended before its last operation");
    if (batch > 0 || batches == 1) us->push_back(static_cast<double>(ns[batch]) * 1e-3 / repeats);
  }
  return true;
}

bool Session::measure_latency(Row* row, bool both, const TimedLaunch& ours, const TimedLaunch& raw) {
  row->figure = Figure::kLatency;
  const bool runs = both || active();
  constexpr double kBatchUs = 400;
  constexpr int kBatches = 7;  // the first of each launch is not counted
  std::vector<double> our_us, raw_us;
  const auto repeats_of = [&](const TimedLaunch& launch, bool* good) {
    std::vector<double> first;
    *good = true;
    for (int i = 0; i < 2 && *good; ++i) *good = all_true(timed(runs, both, launch, 1, 4, &first));
    if (!*good) return 1;
    constexpr uint64_t kMostRepeats = 400;
    uint64_t repeats = kMostRepeats;
    if (runs && first.back() > 0) repeats = static_cast<uint64_t>(kBatchUs / first.back());
    repeats = std::clamp<uint64_t>(repeats / static_cast<uint64_t>(options_.divide), 1, kMostRepeats);
    if (!both) return static_cast<int>(repeats);
    // Both PEs play the same number of rounds: PE 0's.
    if (me_ == 0) this->launch(store_kernel, 1, 1, 0, peer_flag(kFlags - 1), repeats);
    barrier();
    if (me_ != 0) {
      must(cudaMemcpyAsync(&repeats, flag(kFlags - 1), sizeof repeats, cudaMemcpyDeviceToHost, stream_), "reading");
      finish();
    }
    barrier();
    return static_cast<int>(repeats);
  };
  bool good = true;
  const int our_repeats = repeats_of(ours, &good);
  const int raw_repeats = good && raw ? repeats_of(raw, &good) : 1;
  const int launches = std::max(1, options_.samples / 5);
  for (int i = 0; good && i < launches; ++i) {
    good = timed(runs, both, ours, kBatches, our_repeats, &our_us);
    if (both) good = all_true(good);
    if (good && raw) good = timed(runs, both, raw, kBatches, raw_repeats, &raw_us);
    if (both) good = all_true(good);
  }
  if (good && runs) {
    row->us = percentile(our_us, 0.5);
    row->us_p99 = percentile(our_us, 0.99);
    if (raw) row->raw = percentile(raw_us, 0.5);
  }
  return all_true(good);
}

void Session::fill_both(size_t bytes) {
  fill(bytes, pattern_ + 1 + static_cast<uint32_t>(me_));
  clear_target(bytes + kGuardBytes, kGuardByte);
  pattern_ += 2;
  barrier();
}

bool Session::check_both(size_t bytes) {
  barrier();
  return target_holds(0, bytes, pattern_ - 1 + static_cast<uint32_t>(peer()), kGuardByte);
}

}  // namespace perftest
