// Samples and what is said about them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace perftest {

/// Microseconds of a clock that never jumps.
inline double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The value that `fraction` of the samples do not exceed (nearest rank); 0.5 is the median. `samples` is not empty.
inline double percentile(std::vector<double> samples, double fraction) {
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(samples.size())));
  const auto at = samples.begin() + static_cast<std::ptrdiff_t>(rank == 0 ? 0 : rank - 1);
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

}  // namespace perftest
