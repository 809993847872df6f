// Any number of PEs say hello: a barrier, a put to the next PE around the ring, a check of what came from the one
// before. PE 0 also prints the resident memory of an initialised, idle PE (VmRSS right after init), the most of all
// PEs.
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "perftest/common/pgas.h"

namespace {

/// VmRSS of this process in KiB; 0 when it cannot be read.
uint64_t resident_kib() {
  uint64_t kib = 0;
  if (FILE* file = fopen("/proc/self/status", "r")) {
    char line[256];
    while (fgets(line, sizeof line, file) != nullptr) {
      if (sscanf(line, "VmRSS: %" SCNu64, &kib) == 1) break;
    }
    fclose(file);
  }
  return kib;
}

}  // namespace

int main() {
  pgas::init();
  const uint64_t resident = resident_kib();
  const int me = pgas::my_pe();
  const int n = pgas::n_pes();
  constexpr size_t kWords = 128;
  auto* ring = static_cast<uint64_t*>(pgas::allocate(kWords * sizeof(uint64_t)));
  auto* residents = static_cast<uint64_t*>(pgas::allocate(static_cast<size_t>(n) * sizeof(uint64_t)));
  if (ring == nullptr || residents == nullptr) {
    fprintf(stderr, "hello: PE %d: no symmetric memory\n", me);
    return 1;
  }
  uint64_t message[kWords];
  for (size_t i = 0; i < kWords; ++i) message[i] = static_cast<uint64_t>(me) * 1000 + i;
  pgas::barrier_all();
  pgas::put(ring, message, sizeof message, (me + 1) % n);
  pgas::p(residents + me, resident, 0);
  pgas::barrier_all();
  const auto before = static_cast<uint64_t>((me + n - 1) % n);
  int wrong = 0;
  for (size_t i = 0; i < kWords; ++i) wrong += ring[i] != before * 1000 + i;
  if (wrong != 0) fprintf(stderr, "hello: PE %d: %d words from PE %d are wrong\n", me, wrong, static_cast<int>(before));
  if (me == 0) {
    uint64_t most = 0;
    for (int pe = 0; pe < n; ++pe) most = residents[pe] > most ? residents[pe] : most;
    printf("hello from %d PEs; ring %s; resident_kib %" PRIu64 "\n", n, wrong == 0 ? "ok" : "WRONG", most);
    fflush(stdout);
  }
  pgas::barrier_all();
  pgas::release(residents);
  pgas::release(ring);
  pgas::finalize();
  return wrong == 0 ? 0 : 1;
}
