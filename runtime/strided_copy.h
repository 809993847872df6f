// Strided copies by the copy engines, for local memory that kernels cannot reach and for odd alignments.
#pragma once

#include "runtime/gpu.h"
#include "runtime/kernel_tasks.h"

namespace heddle {

/// Whether the kernel for strided copies can do `task`, as far as alignment goes.
inline bool is_aligned(const StridedTask& task) {
  const auto bits = reinterpret_cast<uintptr_t>(task.destination) | reinterpret_cast<uintptr_t>(task.source);
  return bits % (task.element < 8 ? task.element : 8) == 0;
}

/// Enqueues `task`, whose local side is `local` and whose other side is mapped GPU memory; any alignment. As one copy
/// of two dimensions where the GPU's bound on pitches allows, else piece by piece, in batches where driver and stream
/// take them. A pageable source was read on return, except in a capture. The GPU's context must be current.
Status copy_strided(const Gpu& gpu, CUstream stream, const StridedTask& task, LocalMemory local);

}  // namespace heddle
