// Who works together on one call: a scope has a rank, a size and a barrier. On the host a PE is a group of one thread.
#pragma once

#include "device/config.h"

namespace heddle::device {

/// One thread, on the host or in a kernel.
struct ThreadScope {
  HEDDLE_HD static constexpr int rank() { return 0; }
  HEDDLE_HD static constexpr int size() { return 1; }
  HEDDLE_HD static void sync() {}
};

}  // namespace heddle::device
