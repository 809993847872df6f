// The copy engine, by scope.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/scope.h"

namespace heddle::device {

/// Copies `bytes` from `source` to `destination`, any alignment, no overlap but the identical range. No barrier: the
/// members of `scope` have each done their share on return.
template <class Scope>
HEDDLE_HD HEDDLE_INLINE void copy(const Scope&, void* destination, const void* source, size_t bytes) {
  // The C library's copy knows the processor it runs on; only the smallest sizes are worth not calling it.
  if (bytes == 8) {
    memcpy(destination, source, 8);
  } else if (bytes == 4) {
    memcpy(destination, source, 4);
  } else {
    memmove(destination, source, bytes);
  }
}

}  // namespace heddle::device
