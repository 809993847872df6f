// What the multi-PE programs share: checks that count, and one closing line per PE 0.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "heddle.h"
#include "nvshmem.h"
#include "nvshmemx.h"

namespace check {

inline long passed = 0;
inline long failed = 0;

/// Counts one expectation and says what failed, with this PE.
inline bool that(bool condition, const std::string& what) {
  if (condition) {
    ++passed;
  } else if (++failed <= 20) {
    std::fprintf(stderr, "PE %d: FAILED: %s (last error: %s)\n", nvshmem_my_pe(), what.c_str(), heddle_last_error());
  }
  return condition;
}

/// Sums the counts of all PEs, prints the line on PE 0, and returns the exit code. Collective; ends the world.
inline int finish(const char* name) {
  auto* totals = static_cast<long*>(nvshmem_calloc(2, sizeof(long)));
  if (totals == nullptr) return 1;
  nvshmem_long_atomic_add(&totals[0], passed, 0);
  nvshmem_long_atomic_add(&totals[1], failed, 0);
  nvshmem_barrier_all();
  const long all_failed = nvshmem_long_g(&totals[1], 0);
  if (nvshmem_my_pe() == 0) std::printf("%s: %ld passed, %ld failed\n", name, totals[0], totals[1]);
  nvshmem_barrier_all();
  nvshmem_free(totals);
  nvshmem_finalize();
  return all_failed == 0 && failed == 0 ? 0 : 1;
}

}  // namespace check
