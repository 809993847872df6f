// A PE is killed, and the survivors say so within a second. Arguments: where (barrier, wait, malloc, compute), victim.
//
// Survivors exit with 0 when they got an error that names the victim in time. The victim is killed by SIGKILL.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "check.h"

int main(int argc, char** argv) {
  const std::string where = argc > 1 ? argv[1] : "barrier";
  const int victim = argc > 2 ? std::atoi(argv[2]) : 1;
  nvshmem_init();
  if (nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED) return 2;
  auto* flag = static_cast<uint64_t*>(nvshmem_calloc(1, 8));
  auto* killed_at = static_cast<uint64_t*>(nvshmem_calloc(1, 8));
  const auto now = [] {
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
            .count());
  };
  nvshmem_barrier_all();
  if (nvshmem_my_pe() == victim) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    for (int pe = 0; pe < nvshmem_n_pes(); ++pe) nvshmem_uint64_p(killed_at, now(), pe);
    nvshmem_quiet();
    raise(SIGKILL);
  }
  std::string how = "returned";
  if (where == "barrier") {
    nvshmem_barrier_all();
  } else if (where == "wait") {
    nvshmem_uint64_wait_until(flag, NVSHMEM_CMP_EQ, 1);
  } else if (where == "malloc") {
    if (nvshmem_malloc(64) != nullptr) how = "got memory";
  } else {
    while (heddle_last_error()[0] == '\0' &&
           (*const_cast<volatile uint64_t*>(killed_at) == 0 || now() < *killed_at + 500)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    nvshmem_barrier_all();
  }
  const uint64_t took = now() - *const_cast<volatile uint64_t*>(killed_at);
  const std::string text = heddle_last_error();
  const bool named = text.find("PE " + std::to_string(victim)) != std::string::npos;
  std::fprintf(stderr, "PE %d: %s after %lu ms: %s\n", nvshmem_my_pe(), how.c_str(), static_cast<unsigned long>(took),
               text.c_str());
  const bool right = named && took < 1000 && how == "returned";
  nvshmem_finalize();  // must not hang
  return right ? 0 : 3;
}
