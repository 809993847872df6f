// Order and synchronisation of kernels: signals and counters never overtake their data (litmus loops), barriers of
// every scope, all forms of wait and test, queries, regions, and how waits end. With "timeout" only the last: run it
// with a short HEDDLE_WAIT_TIMEOUT.
#include <chrono>
#include <thread>

#include "gpu.cuh"

namespace {

// ---- litmus: PE 2k sends to PE 2k + 1, which checks every word and answers. Whoever sees the signal sees the data.

enum How { kPutSignalBlock, kPutSignalWarp, kPutSignalThread, kPutFenceSignal, kPutQuietP, kCounted, kHows };
const char* const kHowNames[] = {"put_signal_block",      "put_signal_nbi_warp", "put_signal",
                                 "put, fence, signal_op", "put, quiet, p",       "counted put"};
constexpr int kWords = 256;  // 2 KiB: more than one packet

/// `inbox` and `outbox` hold kWords each; ticks[0] is the signal or counter, ticks[32] the answer. Blocks of 64
/// threads.
__global__ void litmus(int how, uint64_t* inbox, uint64_t* outbox, uint64_t* ticks, uint64_t iterations, bool sends,
                       int peer, unsigned long long* wrong) {
  const int rank = static_cast<int>(threadIdx.x);
  const size_t bytes = kWords * sizeof(uint64_t);
  uint64_t* const signal = ticks;
  uint64_t* const answer = ticks + 32;
  for (uint64_t i = 1; i <= iterations; ++i) {
    if (sends) {
      for (int at = rank; at < kWords; at += static_cast<int>(blockDim.x)) outbox[at] = i;
      __syncthreads();
      if (how == kPutSignalBlock) {
        nvshmemx_putmem_signal_nbi_block(inbox, outbox, bytes, signal, i, NVSHMEM_SIGNAL_SET, peer);
      } else if (how == kPutSignalWarp) {
        if (rank < 32) nvshmemx_uint64_put_signal_nbi_warp(inbox, outbox, kWords, signal, 1, NVSHMEM_SIGNAL_ADD, peer);
      } else if (how == kPutSignalThread) {
        if (rank == 0) nvshmem_uint64_put_signal(inbox, outbox, kWords, signal, i, NVSHMEM_SIGNAL_SET, peer);
      } else if (how == kPutFenceSignal) {
        nvshmemx_uint64_put_nbi_block(inbox, outbox, kWords, peer);
        if (rank == 0) nvshmem_fence();
        if (rank == 0) nvshmemx_signal_op(signal, i, NVSHMEM_SIGNAL_SET, peer);
      } else if (how == kPutQuietP) {
        nvshmemx_uint64_put_nbi_block(inbox, outbox, kWords, peer);
        if (rank == 0) nvshmem_quiet();
        if (rank == 0) nvshmem_uint64_p(signal, i, peer);
      } else {
        if (nvshmemx_putmem_signal_counted_nbi_block(inbox, outbox, bytes, signal, peer) != 0) atomicAdd(wrong, 1ull);
      }
      if (rank == 0) nvshmem_uint64_wait_until(answer, NVSHMEM_CMP_GE, i);
      __syncthreads();
    } else {
      if (rank == 0) {
        if (how == kCounted) {
          nvshmemx_signal_counted_wait_until(signal, i * bytes);
        } else {
          nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, i);
        }
      }
      __syncthreads();
      for (int at = rank; at < kWords; at += static_cast<int>(blockDim.x)) {
        if (inbox[at] != i) atomicAdd(wrong, 1ull);
      }
      __syncthreads();
      if (rank == 0) nvshmem_uint64_p(answer, i, peer);
    }
  }
}

void check_litmus(uint64_t iterations) {
  uint64_t* const inbox = gpu::allocate<uint64_t>(kWords);
  uint64_t* const outbox = gpu::allocate<uint64_t>(kWords);
  uint64_t* const ticks = gpu::allocate<uint64_t>(64);
  unsigned long long* const wrong = gpu::on_gpu(std::vector<unsigned long long>{0});
  const bool sends = gpu::me % 2 == 0;
  const int peer = sends ? gpu::me + 1 : gpu::me - 1;
  for (int how = 0; how < kHows; ++how) {
    gpu::must(cudaMemset(ticks, 0, 64 * sizeof(uint64_t)), "clear");
    gpu::done("clear");
    nvshmem_barrier_all();
    const auto begin = std::chrono::steady_clock::now();
    if (peer < gpu::n) litmus<<<1, 64>>>(how, inbox, outbox, ticks, iterations, sends, peer, wrong);
    gpu::done(kHowNames[how]);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const std::string what = std::string(kHowNames[how]) + ", " + std::to_string(iterations) + " times";
    gpu::that(gpu::fetch(wrong, 1)[0] == 0, what + ": data after the signal");
    const uint64_t last = sends ? iterations : how == kCounted ? iterations * kWords * 8 : iterations;
    if (peer < gpu::n) gpu::that(gpu::fetch(ticks + (sends ? 32 : 0), 1)[0] == last, what + ": went through");
    if (gpu::me == 0) std::printf("%s: %.2f s\n", what.c_str(), took.count());
    nvshmem_barrier_all();
  }
  gpu::must(cudaFree(wrong), "cudaFree");
  nvshmem_free(ticks);
  nvshmem_free(outbox);
  nvshmem_free(inbox);
}

// ---- barriers: between two of them, every PE writes to every other, and finds what all have written.

enum Meeting { kThread, kWarp, kBlock, kWarpgroup, kThreadSync, kWarpSync, kBlockSync, kTeam, kMeetings };
const char* const kMeetingNames[] = {"barrier_all", "barrier_all_warp", "barrier_all_block", "barrier_warpgroup",
                                     "sync_all",    "sync_all_warp",    "sync_all_block",    "barrier of a team"};

__device__ int meet(int how) {
  switch (how) {
    case kThread:
      if (threadIdx.x == 0) nvshmem_barrier_all();
      break;
    case kWarp:
      if (threadIdx.x < 32) nvshmemx_barrier_all_warp();
      break;
    case kBlock:
      nvshmemx_barrier_all_block();
      break;
    case kWarpgroup:
      if (threadIdx.x >= 128 && threadIdx.x < 256) return nvshmemx_barrier_warpgroup(NVSHMEM_TEAM_WORLD);
      break;
    case kThreadSync:
      if (threadIdx.x == 0) nvshmem_sync_all();
      break;
    case kWarpSync:
      if (threadIdx.x < 32) nvshmemx_sync_all_warp();
      break;
    case kBlockSync:
      nvshmemx_sync_all_block();
      break;
    default:
      return nvshmemx_barrier_block(NVSHMEM_TEAM_WORLD) + nvshmemx_team_sync_block(NVSHMEM_TEAM_WORLD);
  }
  return 0;
}

__global__ void barriers(int how, int* box, int iterations, unsigned long long* wrong) {
  const int n = nvshmem_n_pes(), me = nvshmem_my_pe();
  const int rank = static_cast<int>(threadIdx.x), size = static_cast<int>(blockDim.x);
  for (int i = 1; i <= iterations; ++i) {
    __syncthreads();
    for (int pe = rank; pe < n; pe += size) nvshmem_int_p(box + me, i, pe);
    __syncthreads();
    if (meet(how) != 0) atomicAdd(wrong, 1ull);
    __syncthreads();
    for (int pe = rank; pe < n; pe += size) {
      if (box[pe] != i) atomicAdd(wrong, 1ull);
    }
    __syncthreads();
    if (meet(how) != 0) atomicAdd(wrong, 1ull);
  }
}

void check_barriers(int iterations) {
  int* const box = gpu::allocate<int>(static_cast<size_t>(gpu::n));
  unsigned long long* const wrong = gpu::on_gpu(std::vector<unsigned long long>{0});
  for (int how = 0; how < kMeetings; ++how) {
    nvshmem_barrier_all();
    barriers<<<1, 256>>>(how, box, iterations, wrong);
    gpu::done(kMeetingNames[how]);
    gpu::that(gpu::fetch(wrong, 1)[0] == 0, std::string(kMeetingNames[how]) + ": all have written");
    gpu::that(gpu::fetch(box, 1)[0] == iterations, std::string(kMeetingNames[how]) + ": went through");
  }
  gpu::must(cudaFree(wrong), "cudaFree");
  nvshmem_free(box);
}

// ---- wait and test

/// Looks at variables {5, 6, 7, 8} of this PE, which stay as they are.
#define LOOK(NAME, TYPE)                                                                                         \
  __global__ void look_##NAME(TYPE* v, int* wrong) {                                                             \
    TYPE each[4] = {5, 6, 0, 8};                                                                                 \
    const int skip[4] = {1, 0, 0, 1}, none[4] = {1, 1, 1, 1};                                                    \
    size_t at[4] = {9, 9, 9, 9};                                                                                 \
    int bad = 0;                                                                                                 \
    bad += nvshmem_##NAME##_test(v, NVSHMEM_CMP_EQ, 5) != 1 || nvshmem_##NAME##_test(v, NVSHMEM_CMP_EQ, 6) != 0; \
    bad += nvshmem_##NAME##_test(v, NVSHMEM_CMP_NE, 6) != 1 || nvshmem_##NAME##_test(v, NVSHMEM_CMP_NE, 5) != 0; \
    bad += nvshmem_##NAME##_test(v, NVSHMEM_CMP_GT, 4) != 1 || nvshmem_##NAME##_test(v, NVSHMEM_CMP_GT, 5) != 0; \
    bad += nvshmem_##NAME##_test(v, NVSHMEM_CMP_LE, 5) != 1 || nvshmem_##NAME##_test(v, NVSHMEM_CMP_LE, 4) != 0; \
    bad += nvshmem_##NAME##_test(v, NVSHMEM_CMP_LT, 6) != 1 || nvshmem_##NAME##_test(v, NVSHMEM_CMP_LT, 5) != 0; \
    bad += nvshmem_##NAME##_test(v, NVSHMEM_CMP_GE, 5) != 1 || nvshmem_##NAME##_test(v, NVSHMEM_CMP_GE, 6) != 0; \
    bad += nvshmem_##NAME##_test_all(v, 4, nullptr, NVSHMEM_CMP_GE, 5) != 1;                                     \
    bad += nvshmem_##NAME##_test_all(v, 4, nullptr, NVSHMEM_CMP_GE, 6) != 0;                                     \
    bad += nvshmem_##NAME##_test_all(v, 4, skip, NVSHMEM_CMP_LE, 7) != 1;                                        \
    bad += nvshmem_##NAME##_test_any(v, 4, nullptr, NVSHMEM_CMP_EQ, 7) != 2;                                     \
    bad += nvshmem_##NAME##_test_any(v, 4, skip, NVSHMEM_CMP_EQ, 8) != SIZE_MAX;                                 \
    bad += nvshmem_##NAME##_test_some(v, 4, at, nullptr, NVSHMEM_CMP_GT, 6) != 2 || at[0] != 2 || at[1] != 3;    \
    bad += nvshmem_##NAME##_test_some(v, 4, at, none, NVSHMEM_CMP_GT, 0) != 0;                                   \
    bad += nvshmem_##NAME##_test_all_vector(v, 4, nullptr, NVSHMEM_CMP_EQ, each) != 0;                           \
    bad += nvshmem_##NAME##_test_any_vector(v, 4, skip, NVSHMEM_CMP_EQ, each) != 1;                              \
    bad += nvshmem_##NAME##_test_some_vector(v, 4, at, nullptr, NVSHMEM_CMP_EQ, each) != 3 || at[2] != 3;        \
    nvshmem_##NAME##_wait_until(v, NVSHMEM_CMP_NE, 0);                                                           \
    nvshmem_##NAME##_wait_until_all(v, 4, nullptr, NVSHMEM_CMP_LT, 9);                                           \
    nvshmem_##NAME##_wait_until_all(v, 4, none, NVSHMEM_CMP_LT, 0);                                              \
    nvshmem_##NAME##_wait_until_all_vector(v, 4, nullptr, NVSHMEM_CMP_GE, each);                                 \
    bad += nvshmem_##NAME##_wait_until_any(v, 4, nullptr, NVSHMEM_CMP_GE, 8) != 3;                               \
    bad += nvshmem_##NAME##_wait_until_any(v, 4, none, NVSHMEM_CMP_GE, 8) != SIZE_MAX;                           \
    bad += nvshmem_##NAME##_wait_until_any_vector(v, 4, skip, NVSHMEM_CMP_EQ, each) != 1;                        \
    bad += nvshmem_##NAME##_wait_until_some(v, 4, at, skip, NVSHMEM_CMP_GE, 6) != 2 || at[0] != 1 || at[1] != 2; \
    bad += nvshmem_##NAME##_wait_until_some_vector(v, 4, at, nullptr, NVSHMEM_CMP_NE, each) != 1 || at[0] != 2;  \
    bad += nvshmem_##NAME##_wait_until_some(v, 0, at, nullptr, NVSHMEM_CMP_EQ, 1) != 0;                          \
    *wrong += bad;                                                                                               \
  }
HEDDLE_WAIT_TYPES(LOOK)

template <class T>
void check_look(const char* name, void* memory, int* wrong, void (*look)(T*, int*)) {
  gpu::give(static_cast<T*>(memory), std::vector<T>{5, 6, 7, 8});
  look<<<1, 1>>>(static_cast<T*>(memory), wrong);
  gpu::done(name);
  gpu::that(gpu::fetch(wrong, 1)[0] == 0, std::string("wait and test of ") + name);
}

/// Block 0 waits for what the left PE's block 1 puts, one variable after another, after a pause each.
__global__ void late(long* v, uint64_t* signal, int* wrong, int pe) {
  if (blockIdx.x == 1) {
    for (int i = 0; i < 4; ++i) {
      for (int wait = 0; wait < 20; ++wait) __nanosleep(1000);
      nvshmem_long_p(v + (3 - i), 10 + i, pe);
    }
    for (int wait = 0; wait < 20; ++wait) __nanosleep(1000);
    nvshmemx_signal_op(signal, 77, NVSHMEM_SIGNAL_SET, pe);
    return;
  }
  // The other PE may be early, so more than one may be there.
  size_t at[4];
  const size_t any = nvshmem_long_wait_until_any(v, 4, nullptr, NVSHMEM_CMP_NE, 0);
  int bad = any > 3 || nvshmem_long_test(v + any, NVSHMEM_CMP_GE, 10) != 1;
  const size_t some = nvshmem_long_wait_until_some(v, 4, at, nullptr, NVSHMEM_CMP_GT, 10);
  bad += some < 1 || some > 3;
  for (size_t i = 0; i < some; ++i) bad += at[i] > 2 || nvshmem_long_test(v + at[i], NVSHMEM_CMP_GT, 10) != 1;
  nvshmem_long_wait_until(v, NVSHMEM_CMP_EQ, 13);
  nvshmem_long_wait_until_all(v, 4, nullptr, NVSHMEM_CMP_GE, 10);
  bad += nvshmem_signal_wait_until(signal, NVSHMEM_CMP_NE, 0) != 77 || nvshmem_signal_fetch(signal) != 77;
  *wrong += bad;
}

void check_waits() {
  char* const memory = gpu::allocate<char>(256);
  int* const wrong = gpu::on_gpu(std::vector<int>{0});
#define CHECK_LOOK(NAME, TYPE) check_look<TYPE>(#NAME, memory, wrong, look_##NAME);
  HEDDLE_WAIT_TYPES(CHECK_LOOK)
  gpu::must(cudaMemset(memory, 0, 256), "clear");
  gpu::done("clear");
  nvshmem_barrier_all();
  late<<<2, 1>>>(reinterpret_cast<long*>(memory), reinterpret_cast<uint64_t*>(memory + 128), wrong, gpu::right);
  gpu::done("late");
  gpu::that(gpu::fetch(wrong, 1)[0] == 0, "waits for what comes late");
  gpu::must(cudaFree(wrong), "cudaFree");
  nvshmem_free(memory);
}

// ---- queries, regions, counted puts that are wrong

struct Answers {
  int me, n, major, minor, teams[6], members[6], translated[4], region[6], active[3], counted[6];
  void *mine, *peers, *nobodys, *outside, *multicast;
  char name[NVSHMEM_MAX_NAME_LEN];
};

__global__ void ask(Answers* a, char* block, const char* outside) {
  if (threadIdx.x == 0) {
    a->me = nvshmem_my_pe();
    a->n = nvshmem_n_pes();
    nvshmem_info_get_version(&a->major, &a->minor);
    nvshmem_info_get_name(a->name);
    const nvshmem_team_t teams[] = {NVSHMEM_TEAM_WORLD,           NVSHMEM_TEAM_SHARED,    NVSHMEMX_TEAM_NODE,
                                    NVSHMEMX_TEAM_SAME_MYPE_NODE, NVSHMEM_TEAM_MC_SHARED, NVSHMEM_TEAM_INVALID};
    for (int i = 0; i < 6; ++i) {
      a->teams[i] = nvshmem_team_my_pe(teams[i]);
      a->members[i] = nvshmem_team_n_pes(teams[i]);
    }
    a->translated[0] = nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, a->n - 1, NVSHMEM_TEAM_SHARED);
    a->translated[1] = nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, a->n, NVSHMEM_TEAM_WORLD);
    a->translated[2] = nvshmem_team_translate_pe(NVSHMEM_TEAM_MC_SHARED, 0, NVSHMEM_TEAM_WORLD);
    a->translated[3] = nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, -1, NVSHMEM_TEAM_WORLD);
    a->mine = nvshmem_ptr(block, a->me);
    a->peers = nvshmem_ptr(block, (a->me + 1) % a->n);
    a->nobodys = nvshmem_ptr(block, a->n);
    a->outside = nvshmem_ptr(outside, a->me);
    a->multicast = nvshmemx_mc_ptr(NVSHMEM_TEAM_WORLD, block);
  }
  // All threads: the same status in each.
  nvshmemx_region_attrs_t unknown = NVSHMEMX_REGION_ATTRS_INITIALIZER, batch = NVSHMEMX_REGION_ATTRS_INITIALIZER;
  unknown.hints = 64;
  batch.hints = NVSHMEMX_REGION_HINT_BATCH_RMA;
  nvshmemx_region_handle_t handle = 0, second = 0;
  int region[6], active[3] = {-1, -1, -1}, counted[6];
  region[0] = nvshmemx_region_start_block(&handle, &unknown);
  region[1] = nvshmemx_region_start_block(&handle, &batch);
  region[2] = nvshmemx_region_start_block(&second, nullptr);
  nvshmemx_region_is_active(0, &active[0]);
  nvshmemx_region_is_active(NVSHMEMX_REGION_HINT_BATCH_RMA, &active[1]);
  region[3] = nvshmemx_region_stop_block(handle + 1);
  region[4] = nvshmemx_region_stop_block(handle);
  nvshmemx_region_is_active(0, &active[2]);
  region[5] = nvshmemx_region_stop_block(handle);
  auto* const counter = reinterpret_cast<uint64_t*>(block + 1024);
  const int me = nvshmem_my_pe();
  counted[0] = nvshmemx_putmem_signal_counted_nbi_block(block, block + 256, 64, counter, nvshmem_n_pes());
  counted[1] = nvshmemx_putmem_signal_counted_nbi_block(block, block + 256, 60, counter, me);
  counted[2] = nvshmemx_putmem_signal_counted_nbi_block(block + 8, block + 256, 64, counter, me);
  counted[3] = nvshmemx_putmem_signal_counted_nbi_block(block, block + 256, 64, counter + 1, me);
  counted[4] = nvshmemx_putmem_signal_counted_nbi_block(block + 1024, block, 64, counter, me);
  counted[5] = nvshmemx_putmem_signal_counted_nbi_block(block, block + 256, 0, counter, me);
  if (threadIdx.x == 33) {
    for (int i = 0; i < 6; ++i) a->region[i] = region[i];
    for (int i = 0; i < 6; ++i) a->counted[i] = counted[i];
    for (int i = 0; i < 3; ++i) a->active[i] = active[i];
  }
}

void check_queries() {
  char* const block = gpu::allocate<char>(2048);
  Answers* const answers = gpu::on_gpu(std::vector<Answers>(1));
  ask<<<1, 64>>>(answers, block, reinterpret_cast<const char*>(answers));
  gpu::done("ask");
  const Answers a = gpu::fetch(answers, 1)[0];
  gpu::that(a.me == gpu::me && a.n == gpu::n, "my_pe and n_pes");
  gpu::that(a.major == NVSHMEM_MAJOR_VERSION && a.minor == NVSHMEM_MINOR_VERSION, "info_get_version");
  gpu::that(std::strcmp(a.name, NVSHMEM_VENDOR_STRING) == 0, "info_get_name");
  const nvshmem_team_t teams[] = {NVSHMEM_TEAM_WORLD,           NVSHMEM_TEAM_SHARED,    NVSHMEMX_TEAM_NODE,
                                  NVSHMEMX_TEAM_SAME_MYPE_NODE, NVSHMEM_TEAM_MC_SHARED, NVSHMEM_TEAM_INVALID};
  for (int i = 0; i < 6; ++i) {
    gpu::that(a.teams[i] == nvshmem_team_my_pe(teams[i]) && a.members[i] == nvshmem_team_n_pes(teams[i]),
              "team " + std::to_string(teams[i]) + " is the same for host and kernels");
  }
  gpu::that(
      a.translated[0] == gpu::n - 1 && a.translated[1] == -1 && a.translated[2] == gpu::me && a.translated[3] == -1,
      "team_translate_pe");
  gpu::that(a.mine == block && a.peers == nvshmem_ptr(block, gpu::right) && a.peers != nullptr, "ptr");
  gpu::that(a.nobodys == nullptr && a.outside == nullptr && a.multicast == nullptr, "ptr of what is not there");
  const int regions[6] = {1, 0, 1, 1, 0, 1}, active[3] = {1, 1, 0}, counted[6] = {1, 1, 1, 1, 1, 0};
  gpu::that(std::memcmp(a.region, regions, sizeof regions) == 0, "regions start and stop");
  gpu::that(std::memcmp(a.active, active, sizeof active) == 0, "region_is_active");
  gpu::that(std::memcmp(a.counted, counted, sizeof counted) == 0, "counted puts with wrong arguments");
  gpu::must(cudaFree(answers), "cudaFree");
  nvshmem_free(block);
}

// ---- waits end

__global__ void never(uint64_t* signal, int* passed) {
  if (threadIdx.x == 3) nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, 1);
  if (threadIdx.x == 3) *passed = 1;
  __syncthreads();  // no longer waits for the thread that has given up
  if (threadIdx.x == 0) *passed += 2;
}

void check_timeout() {
  uint64_t* const signal = gpu::allocate<uint64_t>(1);
  int* const passed = gpu::on_gpu(std::vector<int>{0});
  heddle_clear_error();
  never<<<1, 64>>>(signal, passed);
  gpu::done("never");
  gpu::that(gpu::fetch(passed, 1)[0] == 2, "the wait ends its thread, and the others go on");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::string text = heddle_last_error();
  gpu::that(
      text.find("nvshmem_signal_wait_until") != std::string::npos && text.find("thread 3,0,0") != std::string::npos,
      "the time-out is reported with call and thread: " + text);
  gpu::must(cudaFree(passed), "cudaFree");
  nvshmem_free(signal);
}

}  // namespace

int main(int argc, char** argv) {
  gpu::start();
  if (argc > 1 && std::strcmp(argv[1], "timeout") == 0) {
    check_timeout();
    return gpu::finish("order timeout");
  }
  const uint64_t iterations = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1000000;
  check_queries();
  check_waits();
  check_barriers(static_cast<int>(iterations / 100));
  check_litmus(iterations);
  return gpu::finish("order");
}
