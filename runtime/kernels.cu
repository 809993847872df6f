// The library's own kernels, for host calls and on_stream calls on device heaps. Built as a fat binary that the library
// carries and loads with the driver (kernels.h); HEDDLE_MODULE names the state that it fills.
#include "device/copy.h"
#include "device/half_convert.h"
#include "device/rma.h"
#include "device/signal.h"
#include "device/sync.h"
#include "device/wait.h"
#include "runtime/kernel_tasks.h"

namespace device = heddle::device;

namespace {

/// Every thread of the grid, for work that needs no barrier between its parts.
struct GridScope {
  __device__ static int rank() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }
  __device__ static int size() { return static_cast<int>(gridDim.x * blockDim.x); }
};

/// 16 bytes that need the alignment of their words only.
struct Words {
  uint64_t low, high;
};

/// One unit of 1, 2, 4, 8 or 16 bytes, aligned to itself on both sides.
template <class Sides>
__device__ void copy_unit(char* destination, const char* source, uint32_t unit) {
  if (unit == 16) {
    Sides::store(reinterpret_cast<device::Vector*>(destination),
                 Sides::load(reinterpret_cast<const device::Vector*>(source)));
  } else {
    device::store_unit<Sides>(destination, device::load_unit<Sides>(source, unit), unit);
  }
}

/// The signal, if there is one, after what the block has stored.
__device__ void signal_after(uint64_t* signal, uint64_t value, int op) {
  if (signal == nullptr) return;
  device::BlockScope::sync();  // the release below covers what the others have stored
  if (device::BlockScope::rank() == 0) device::signal_release(signal, value, op);
}

template <class T>
__device__ void strided(const heddle::StridedTask& task) {
  auto* const destination = static_cast<T*>(task.destination);
  const auto* const source = static_cast<const T*>(task.source);
  if (task.is_get != 0) {
    device::strided_copy_elements<device::FromPeer>(GridScope(), destination, source, task.destination_stride,
                                                    task.source_stride, task.count);
  } else {
    device::strided_copy_elements<device::ToPeer>(GridScope(), destination, source, task.destination_stride,
                                                  task.source_stride, task.count);
  }
}

template <class T>
__device__ T add(T* object, const T& operand) {
  return device::atomic_fetch_add(object, operand);
}
__device__ device::Half add(device::Half* object, const device::Half& operand) {
  return device::atomic_fetch_add_half(object, operand);
}

template <class T>
__device__ uint64_t apply_arithmetic(const heddle::AtomicTask& task, T* object, T operand) {
  switch (task.op) {
    case 0:  // kFetch
      return device::to_word(device::load_relaxed(object));
    case 1:  // kSet
    case 2:  // kSwap
      return device::to_word(device::atomic_exchange(object, operand));
    default:  // kAdd
      return device::to_word(add(object, operand));
  }
}

template <class T>
__device__ uint64_t apply_integer(const heddle::AtomicTask& task) {
  auto* const object = static_cast<T*>(task.object);
  const T operand = static_cast<T>(task.operand);
  switch (task.op) {
    case 3:  // kCompareSwap
      return device::atomic_compare_exchange(object, static_cast<T>(task.compare), operand);
    case 5:  // kAnd
      return device::atomic_fetch_and(object, operand);
    case 6:  // kOr
      return device::atomic_fetch_or(object, operand);
    case 7:  // kXor
      return device::atomic_fetch_xor(object, operand);
    default:
      return apply_arithmetic(task, object, operand);
  }
}

template <class T>
__device__ uint64_t apply_floating(const heddle::AtomicTask& task) {
  return apply_arithmetic(task, static_cast<T*>(task.object),
                          device::from_word<T>(static_cast<device::Word<T>>(task.operand)));
}

template <class T>
__device__ void wait(const heddle::WaitTask& task, const char* call) {
  const auto* const variables = static_cast<const T*>(task.variables);
  const auto* const references = static_cast<const T*>(task.references);
  for (uint64_t i = threadIdx.x; i < task.count; i += blockDim.x) {
    if (task.status != nullptr && task.status[i] != 0) continue;
    const T reference = references == nullptr ? static_cast<T>(task.reference) : references[i];
    device::WaitPause pause(call, variables + i);
    if (!device::wait_until(variables + i, task.cmp, reference, pause)) return;
  }
  // Kernels behind this one in the stream read what was put before the value: the acquire above covers this thread, and
  // the end of the grid the rest.
}

}  // namespace

extern "C" {

/// One thread; one store where the destination is aligned to the size.
__global__ void heddle_store(heddle::StoreTask task) {
  auto* const destination = static_cast<char*>(task.destination);
  for (uint32_t at = 0; at < task.bytes; at += task.unit) {
    const uint64_t word = at < 8 ? task.low : task.high;
    device::store_unit<device::ToPeer>(destination + at, word >> (8 * (at % 8)), task.unit);
  }
}

/// One block, and one unit for each thread of it: as short as a copy can be.
__global__ void heddle_copy_units(heddle::CopyTask task) {
  auto* const destination = static_cast<char*>(task.destination);
  const auto* const source = static_cast<const char*>(task.source);
  const uint32_t at = threadIdx.x * task.unit;
  if (at < task.bytes) {
    if (task.is_get != 0) {
      copy_unit<device::FromPeer>(destination + at, source + at, task.unit);
    } else {
      copy_unit<device::ToPeer>(destination + at, source + at, task.unit);
    }
  }
  signal_after(task.signal, task.value, task.signal_op);
}

/// Any grid without a signal; one block with one.
__global__ void heddle_copy(heddle::CopyTask task) {
  auto* const destination = static_cast<char*>(task.destination);
  const auto* const source = static_cast<const char*>(task.source);
  // Whole vectors for each block but the last, so that blocks of one copy are aligned alike.
  const uint64_t share = (task.bytes / gridDim.x + 15) / 16 * 16;
  const uint64_t begin = share * blockIdx.x < task.bytes ? share * blockIdx.x : task.bytes;
  const uint64_t end = blockIdx.x + 1 == gridDim.x || task.bytes - begin < share ? task.bytes : begin + share;
  if (task.is_get != 0) {
    device::copy<device::FromPeer>(device::BlockScope(), destination + begin, source + begin, end - begin);
  } else {
    device::copy<device::ToPeer>(device::BlockScope(), destination + begin, source + begin, end - begin);
  }
  signal_after(task.signal, task.value, task.signal_op);
}

/// A signal alone, after what came before it in the stream.
__global__ void heddle_signal(heddle::CopyTask task) {
  device::fence_system();
  device::signal_release(task.signal, task.value, task.signal_op);
}

__global__ void heddle_strided(heddle::StridedTask task) {
  switch (task.element) {
    case 1:
      return strided<uint8_t>(task);
    case 2:
      return strided<uint16_t>(task);
    case 4:
      return strided<uint32_t>(task);
    case 8:
      return strided<uint64_t>(task);
    default: {
      // Elements of 16 bytes are as aligned as their program made them: two words each.
      auto* const destination = static_cast<Words*>(task.destination);
      const auto* const source = static_cast<const Words*>(task.source);
      for (uint64_t i = GridScope::rank(); i < task.count; i += GridScope::size()) {
        const Words* const from = source + static_cast<int64_t>(i) * task.source_stride;
        Words* const to = destination + static_cast<int64_t>(i) * task.destination_stride;
        device::store_peer(&to->low, device::load_peer(&from->low));
        device::store_peer(&to->high, device::load_peer(&from->high));
      }
    }
  }
}

__global__ void heddle_atomic(heddle::AtomicTask task) {
  uint64_t old = 0;
  switch (task.type) {
    case 0:
      old = apply_integer<uint32_t>(task);
      break;
    case 1:
      old = apply_integer<uint64_t>(task);
      break;
    case 2:
      old = apply_floating<device::Half>(task);
      break;
    case 3:
      old = apply_floating<float>(task);
      break;
    default:
      old = apply_floating<double>(task);
  }
  if (task.result != nullptr) *task.result = old;
}

__global__ void heddle_wait(heddle::WaitTask task) {
  const char* const call = "wait_until_on_stream";
  switch (task.element) {
    case 2:
      return task.is_signed != 0 ? wait<int16_t>(task, call) : wait<uint16_t>(task, call);
    case 4:
      return task.is_signed != 0 ? wait<int32_t>(task, call) : wait<uint32_t>(task, call);
    default:
      return task.is_signed != 0 ? wait<int64_t>(task, call) : wait<uint64_t>(task, call);
  }
}

__global__ void heddle_barrier() { (void)device::barrier_of_all("barrier_all_on_stream", device::BlockScope()); }

}  // extern "C"
