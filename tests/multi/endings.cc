// The ways in which a job can end badly, one per run. What each PE saw goes to stdout as "PE k: ..."; test_*.py judge
// it.
//
//   endings hello                   init and finalize; 3 when init failed
//   endings global-exit CODE WHERE  the last PE calls nvshmem_global_exit(CODE) while the others are in WHERE
//   endings grow                    allocates more than the heap holds so far
//   endings return [PE]             PE, or everybody, returns from main without nvshmem_finalize
//   endings late PE SECONDS         PE comes to nvshmem_init that late
//   endings exit-before PE CODE     PE leaves with CODE before nvshmem_init
//   endings absent PE WHERE         PE does not take part in WHERE for 3 s
//
// WHERE is barrier, wait, malloc or compute. Exit code: 0, unless the mode says otherwise; 3 when init failed.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "check.h"

namespace {

constexpr int kInitFailed = 3;
constexpr int kCameBack = 9;

void sleep_seconds(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// The launcher's rank, for what is said before init; -1 without a launcher.
int launcher_rank() {
  const char* rank = std::getenv("PMIX_RANK");
  return rank != nullptr ? std::atoi(rank) : -1;
}

/// Inits, and says so or why not.
bool init() {
  nvshmem_init();
  if (nvshmemx_init_status() >= NVSHMEM_STATUS_IS_INITIALIZED) return true;
  std::printf("PE %d: init failed: %s\n", launcher_rank(), heddle_last_error());
  return false;
}

/// Seconds of the clock that Python calls time.monotonic().
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Does what all PEs are to be in when something happens to one of them. False when it came to nothing.
bool be_in(const std::string& where, uint64_t* flag) {
  heddle_clear_error();
  if (where == "barrier") {
    nvshmem_barrier_all();
  } else if (where == "wait") {
    nvshmem_uint64_wait_until(flag, NVSHMEM_CMP_EQ, 1);
  } else if (where == "malloc") {
    return nvshmem_malloc(64) != nullptr;
  } else {
    const double end = now() + 30;
    while (now() < end && heddle_last_error()[0] == '\0') {
    }
  }
  return heddle_last_error()[0] == '\0';
}

int global_exit(int code, const std::string& where) {
  auto* flag = static_cast<uint64_t*>(nvshmem_calloc(1, sizeof(uint64_t)));
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  std::printf("PE %d: in the middle of something", me);  // neither a newline nor a flush
  nvshmem_barrier_all();
  if (me == n - 1) {
    sleep_seconds(0.3);
    std::printf(" and leaving at %.6f", now());
    nvshmem_global_exit(code);
  }
  (void)be_in(where, flag);
  return kCameBack;
}

int grow() {
  const bool well = nvshmem_malloc(size_t{48} << 20) != nullptr;
  std::printf("PE %d: growth %s: %s\n", nvshmem_my_pe(), well ? "succeeded" : "failed", heddle_last_error());
  nvshmem_finalize();
  return 0;
}

int return_without_finalize(int chosen) {
  nvshmem_barrier_all();
  const int me = nvshmem_my_pe();
  if (chosen < 0 || me == chosen) return 0;
  nvshmem_finalize();
  std::printf("PE %d: finalize: %s\n", me, heddle_last_error());
  return 0;
}

int absent(int chosen, const std::string& where) {
  auto* flag = static_cast<uint64_t*>(nvshmem_calloc(1, sizeof(uint64_t)));
  const int me = nvshmem_my_pe();
  nvshmem_barrier_all();
  if (me == chosen) {
    sleep_seconds(3);
  } else {
    const double before = now();
    const bool well = be_in(where, flag);
    std::printf("PE %d: %s after %.2f s: %s\n", me, well ? "succeeded" : "failed", now() - before, heddle_last_error());
  }
  heddle_clear_error();
  nvshmem_finalize();
  std::printf("PE %d: finalize: %s\n", me, heddle_last_error());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const int number = argc > 2 ? std::atoi(argv[2]) : -1;
  const std::string word = argc > 3 ? argv[3] : "";
  if (mode == "late" && launcher_rank() == number) sleep_seconds(std::atof(word.c_str()));
  if (mode == "exit-before" && launcher_rank() == number) return std::atoi(word.c_str());
  if (!init()) return kInitFailed;
  if (mode == "global-exit") return global_exit(number, word);
  if (mode == "grow") return grow();
  if (mode == "return") return return_without_finalize(number);
  if (mode == "absent") return absent(number, word);
  std::printf("PE %d: hello from PE %d of %d\n", launcher_rank(), nvshmem_my_pe(), nvshmem_n_pes());
  std::fflush(stdout);
  nvshmem_finalize();
  return 0;
}
