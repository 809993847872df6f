// Many init and finalize cycles in one process: nothing grows. Argument: cycles (default 1000).
#include <fcntl.h>

#include <cstring>
#include <fstream>

#include "check.h"

namespace {

int open_descriptors() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

long lines_of(const char* file) {
  std::ifstream in(file);
  long lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  return lines;
}

long resident_kib() {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;) {
    long value = 0;
    if (word == "VmRSS:" && in >> value) return value;
  }
  return -1;
}

bool one_cycle() {
  nvshmem_init();
  if (nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED) return false;
  auto* word = static_cast<int*>(nvshmem_calloc(1, sizeof(int)));
  if (word == nullptr) return false;
  const int me = nvshmem_my_pe(), n = nvshmem_n_pes();
  nvshmem_int_p(word, me + 1, (me + 1) % n);
  nvshmem_barrier_all();
  const bool right = *word == (me + n - 1) % n + 1;
  nvshmem_free(word);
  nvshmem_finalize();
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  const int cycles = argc > 1 ? std::atoi(argv[1]) : 1000;
  for (int i = 0; i < 20; ++i) {
    if (!one_cycle()) return std::fprintf(stderr, "cycle %d failed: %s\n", i, heddle_last_error()), 1;
  }
  const int descriptors = open_descriptors();
  const long mappings = lines_of("/proc/self/maps");
  const long resident = resident_kib();
  for (int i = 20; i < cycles; ++i) {
    if (!one_cycle()) return std::fprintf(stderr, "cycle %d failed: %s\n", i, heddle_last_error()), 1;
  }
  const int more_descriptors = open_descriptors() - descriptors;
  const long more_mappings = lines_of("/proc/self/maps") - mappings;
  const long more_resident = resident_kib() - resident;
  nvshmem_init();
  check::that(more_descriptors == 0, "descriptors grew by " + std::to_string(more_descriptors));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // Sanitizers keep what is freed, and map memory of their own.
  (void)more_mappings;
  (void)more_resident;
#else
  check::that(more_mappings <= 4, "mappings grew by " + std::to_string(more_mappings));
  // A PMIx store without shared memory (libpmix 5 has no other) keeps every record; nothing of ours grows.
  const char* store = std::getenv("PMIX_GDS_MODULE");
  const bool replaces = store == nullptr || std::strncmp(store, "ds", 2) == 0;
  check::that(more_resident <= (replaces ? 1024 : 1024 + 16L * cycles),
              "resident memory grew by " + std::to_string(more_resident) + " KiB");
#endif
  return check::finish("cycles");
}
