// What forked children and closed standard descriptors must not break. Argument: closed, child or holds.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"

namespace {

// What the program prints by write() must go nowhere, not into the heap.
int closed() {
  const int out = fcntl(1, F_DUPFD_CLOEXEC, 10);
  for (int fd = 0; fd <= 2; ++fd) close(fd);
  nvshmem_init();
  auto* block = static_cast<char*>(nvshmem_calloc(1, 1 << 20));
  if (block == nullptr) return 1;
  const std::vector<char> text(8192, 'A');
  for (int fd = 0; fd <= 2; ++fd) (void)!write(fd, text.data(), text.size());
  nvshmem_barrier_all();
  bool zero = true;
  for (int i = 0; i < 1 << 20; ++i) zero &= block[i] == 0;
  dprintf(out, "PE %d: the heap is %s\n", nvshmem_my_pe(), zero ? "untouched" : "OVERWRITTEN");
  nvshmem_finalize();
  return zero ? 0 : 1;
}

// A child's calls are errors; the parent's work on.
int child() {
  nvshmem_init();
  auto* word = static_cast<int*>(nvshmem_calloc(1, sizeof(int)));
  const pid_t pid = fork();
  if (pid == 0) {
    nvshmem_int_p(word, 7, 0);
    const auto told = [] {
      const bool is = std::strstr(heddle_last_error(), "forked") != nullptr;
      heddle_clear_error();
      return is;
    };
    bool good = told() && nvshmem_my_pe() == -1 && nvshmem_malloc(8) == nullptr;
    heddle_clear_error();
    nvshmem_finalize();
    good = good && told();
    nvshmem_init();
    good = good && told() && nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED;
    int provided = -1;
    good = good && nvshmem_init_thread(NVSHMEM_THREAD_MULTIPLE, &provided) == NVSHMEMX_ERROR_NOT_SUPPORTED && told();
    nvshmemx_hostlib_finalize();
    _exit(good && told() && provided == -1 ? 0 : 1);
  }
  int status = 1;
  waitpid(pid, &status, 0);
  check::that(WIFEXITED(status) && WEXITSTATUS(status) == 0, "calls of a forked child are errors");
  check::that(nvshmemx_init_status() == NVSHMEM_STATUS_IS_INITIALIZED, "the child's finalize changed nothing here");
  nvshmem_barrier_all();
  check::that(nvshmem_int_g(word, 0) == 0, "the child's put did nothing");
  return check::finish("forks child");
}

// PE 1 is killed while a child of it lives: the others see its end all the same.
int holds() {
  nvshmem_init();
  if (nvshmem_my_pe() == 1) {
    if (fork() == 0) {
      std::this_thread::sleep_for(std::chrono::seconds(4));
      _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    raise(SIGKILL);
  }
  const auto start = std::chrono::steady_clock::now();
  nvshmem_barrier_all();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
  std::printf("PE %d: barrier ended after %d ms: %s\n", nvshmem_my_pe(), static_cast<int>(took.count()),
              heddle_last_error());
  nvshmem_finalize();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  return mode == "closed" ? closed() : mode == "child" ? child() : mode == "holds" ? holds() : 2;
}
