// The work of on_stream calls: on device heaps enqueued on the program's stream, by kernels where it is small or
// carries values, else by the copy engines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernel_tasks.h"
#include "runtime/world.h"

struct CUstream_st;

namespace heddle::stream {

using Stream = CUstream_st*;

/// How a world's on_stream calls are made.
enum class Way { kEnqueue, kAtOnce, kRefuse };
/// kEnqueue on a device heap; kAtOnce on a host heap where there is no driver and so no stream with work in it.
Way way_of(World& world);
/// The status of a call that is refused.
Status refusal(World& world);
/// kInvalidValue when `stream`, or for the default streams the current context, is of another GPU than the heap. On
/// worlds without a GPU there is nothing to compare.
Status check(World& world, Stream stream);

// Symmetric ranges have been checked; `pe` is in range. None waits, but where said.

Status put(World& world, void* destination, const void* source, size_t bytes, int pe, Stream stream);
Status get(World& world, void* destination, const void* source, size_t bytes, int pe, Stream stream);
/// One element of up to 16 bytes, by value.
Status store(World& world, void* destination, const void* value, size_t bytes, int pe, Stream stream);
/// Waits for the stream. kInvalidValue while it is captured.
Status load(World& world, void* value, const void* source, size_t bytes, int pe, Stream stream);
/// `task` with the symmetric side untranslated; `task.is_get` says which it is.
Status strided(World& world, StridedTask task, int pe, Stream stream);
Status put_signal(World& world, void* destination, const void* source, size_t bytes, uint64_t* signal, uint64_t value,
                  int op, int pe, Stream stream);
Status signal(World& world, uint64_t* signal, uint64_t value, int op, int pe, Stream stream);
/// kInvalidValue when an array is in memory that kernels cannot read.
Status wait(World& world, const WaitTask& task, Stream stream);
/// Host calls made before come before what the stream does later.
Status quiet(World& world, Stream stream);
/// quiet, when `complete`, then the barrier of all PEs in the stream.
Status barrier(World& world, bool complete, Stream stream);

}  // namespace heddle::stream
