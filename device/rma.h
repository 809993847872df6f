// Put, get, p, g and their strided forms on mapped memory (OpenSHMEM 1.5, 9.5). `remote` addresses are translated ones.
#pragma once

#include "device/access.h"
#include "device/copy.h"

namespace heddle::device {

/// Elements `i * source_stride` of `source` to `i * destination_stride` of `destination`, for i in [0, count); strides
/// in elements.
template <class Scope, class T>
HEDDLE_HD inline void strided_copy(const Scope& scope, T* destination, const T* source, ptrdiff_t destination_stride,
                                   ptrdiff_t source_stride, size_t count) {
  for (size_t i = static_cast<size_t>(scope.rank()); i < count; i += static_cast<size_t>(scope.size())) {
    const auto at = static_cast<ptrdiff_t>(i);
    destination[at * destination_stride] = source[at * source_stride];
  }
}

}  // namespace heddle::device
