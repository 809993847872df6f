// Init and finalize of the C API, beside what other threads call and in forked children. One PE, host memory.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "catch.h"
#include "include/heddle.h"
#include "include/nvshmem_host.h"

namespace {

void alone_on_the_host() {
  setenv("NVSHMEM_BOOTSTRAP", "solo", 1);
  setenv("HEDDLE_FABRIC", "host", 1);
  setenv("NVSHMEM_SYMMETRIC_SIZE", "1M", 1);
}

}  // namespace

TEST_CASE("init_status and calls that need no world may be made at any time beside init and finalize") {
  alone_on_the_host();
  std::atomic<bool> stop{false};
  std::atomic<int> seen_out{0}, seen_in{0}, seen_else{0};
  std::thread other([&] {
    while (!stop) {
      const int status = nvshmemx_init_status();
      ++(status == NVSHMEM_STATUS_NOT_INITIALIZED  ? seen_out
         : status == NVSHMEM_STATUS_IS_INITIALIZED ? seen_in
                                                   : seen_else);
      int level = -1;
      nvshmem_query_thread(&level);
      (void)heddle_last_error();
      heddle_clear_error();
    }
  });
  for (int i = 0; i < 20; ++i) {
    nvshmem_init();
    CHECK(nvshmemx_init_status() == NVSHMEM_STATUS_IS_INITIALIZED);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    nvshmem_finalize();
    CHECK(nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  stop = true;
  other.join();
  CHECK(seen_out > 0);
  CHECK(seen_in > 0);
  CHECK(seen_else == 0);
}

TEST_CASE("global_exit of one thread ends the process while another is in finalize") {
  alone_on_the_host();
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a hang is an end, too
      nvshmem_init();
      static std::atomic<bool> go{false};
      std::thread other([] {
        while (!go) {
        }
        nvshmem_finalize();
      });
      other.detach();  // nobody joins it: the process ends
      go = true;
      std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
      nvshmem_global_exit(5);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 5);
  }
}

TEST_CASE("init_status stays until the last of several finalizes") {
  alone_on_the_host();
  nvshmem_init();
  nvshmem_init();
  nvshmem_finalize();
  CHECK(nvshmemx_init_status() == NVSHMEM_STATUS_IS_INITIALIZED);
  CHECK(nvshmem_my_pe() == 0);
  nvshmem_finalize();
  CHECK(nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED);
}

TEST_CASE("a child forked after finalize may join, and joins nothing of its parent's") {
  alone_on_the_host();
  nvshmem_init();
  nvshmem_finalize();
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a hang is an end, too
    nvshmem_init();
    const bool in = nvshmemx_init_status() == NVSHMEM_STATUS_IS_INITIALIZED && nvshmem_malloc(8) != nullptr;
    nvshmem_finalize();
    _exit(in && nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
