// The device calls on symmetric addresses, by scope: translate, then the algorithms of rma.h, signal.h, wait.h and
// sync.h. The C names (nvshmem_device.h) are one-liners over these.
//
// Barriers of group calls. Blocking calls meet first, because members may have written the source that others read, and
// last, because the source may be overwritten and the destination read by any of them. nbi calls do not meet first: the
// program orders its own writes to the source. They meet last, so that one member's fence, quiet or signal after it
// covers the whole group's stores.
//
// Define HEDDLE_CHECK=1 to have every call check its arguments: PE in range, addresses in the heap, natural alignment,
// known operators. A wrong call is recorded with its name, block and thread, and ends its threads. Barriers then look
// whether a thread of their grid has failed, and end instead of announcing a group that is not whole.
#pragma once

#include "device/failure.h"
#include "device/ranges.h"
#include "device/rma.h"
#include "device/scope.h"
#include "device/signal.h"
#include "device/state.h"
#include "device/sync.h"
#include "device/teams.h"
#include "device/wait.h"
#include "device/warpgroup.h"

#if defined(__CUDA_ARCH__)
namespace heddle::device {

/// Ends the thread when there is no world, or not on this GPU: both look the same here. Waits and barriers ask in every
/// build, as they would never end; other calls in checking builds.
HEDDLE_DEVICE HEDDLE_INLINE void require_world(const char* call, const void* address = nullptr) {
  if (HEDDLE_UNLIKELY(device_state().view.n_pes == 0)) give_up(call, DeviceError::kNotInitialized, -1, address, 0);
}
HEDDLE_DEVICE HEDDLE_INLINE void check_world(const char* call) {
  if constexpr (HEDDLE_CHECK != 0) require_world(call);
}

/// Ends the thread when the arguments are wrong, in checking builds.
HEDDLE_DEVICE HEDDLE_INLINE void check(const char* call, const void* address, uint64_t bytes, int pe,
                                       uint32_t alignment) {
  if constexpr (HEDDLE_CHECK != 0) {
    require_world(call, address);
    const HeapView& view = device_state().view;
    const DeviceError error = judge_range(view, address, bytes, pe, alignment);
    if (error == DeviceError::kNone) return;
    give_up(call, error, pe, address,
            error == DeviceError::kBadPe        ? static_cast<uint64_t>(view.n_pes)
            : error == DeviceError::kBadAddress ? bytes
                                                : alignment);
  }
}
/// The same for a buffer of the program's own, of which only this much can be asked.
HEDDLE_DEVICE HEDDLE_INLINE void check_local(const char* call, const void* buffer, uint64_t bytes, uint32_t alignment) {
  if constexpr (HEDDLE_CHECK != 0) {
    const DeviceError error = judge_local(buffer, bytes, alignment);
    if (error == DeviceError::kNone) return;
    give_up(call, error, -1, buffer, error == DeviceError::kNullBuffer ? bytes : alignment);
  }
}
/// The same for an object of this PE.
HEDDLE_DEVICE HEDDLE_INLINE void check_own(const char* call, const void* address, uint64_t bytes, uint32_t alignment) {
  check(call, address, bytes, device_state().view.my_pe, alignment);
}
HEDDLE_DEVICE HEDDLE_INLINE void check_signal_op(const char* call, int op, int pe, const void* address) {
  if constexpr (HEDDLE_CHECK != 0) {
    if (op == kSignalSet || op == kSignalAdd) return;
    give_up(call, DeviceError::kBadSignalOp, pe, address, static_cast<uint64_t>(op));
  }
}
HEDDLE_DEVICE HEDDLE_INLINE void check_strides(const char* call, ptrdiff_t dst, ptrdiff_t sst, int pe,
                                               const void* address) {
  if constexpr (HEDDLE_CHECK != 0) {
    if (dst >= 1 && sst >= 1) return;
    give_up(call, DeviceError::kBadStride, pe, address, static_cast<uint64_t>(dst < 1 ? dst : sst));
  }
}
/// Arguments of wait and test.
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE void check_compare(const char* call, const T* variables, size_t count, int cmp) {
  if constexpr (HEDDLE_CHECK != 0) {
    check_own(call, variables, bytes_of(count, sizeof(T)), sizeof(T));
    if (cmp < 0 || cmp > 5) give_up(call, DeviceError::kBadCompare, -1, variables, static_cast<uint64_t>(cmp));
  }
}

/// References of a wait or test: one value, or an array.
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE void check_references(const char*, const OneValue<T>&, size_t) {}
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE void check_references(const char* call, const T* references, size_t count) {
  check_local(call, references, bytes_of(count, sizeof(T)), sizeof(T));
}

/// Where this kernel reaches `pe`'s copy of a symmetric object.
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T* at_pe(const char* call, T* address, int pe) {
  check(call, address, sizeof(T), pe, sizeof(T));
  return translate(device_state().view, address, pe);
}
HEDDLE_DEVICE HEDDLE_INLINE char* at_pe(const char* call, void* address, uint64_t bytes, int pe, uint32_t alignment) {
  check(call, address, bytes, pe, alignment);
  return translate(device_state().view, static_cast<char*>(address), pe);
}
HEDDLE_DEVICE HEDDLE_INLINE const char* at_pe(const char* call, const void* address, uint64_t bytes, int pe,
                                              uint32_t alignment) {
  check(call, address, bytes, pe, alignment);
  return translate(device_state().view, static_cast<const char*>(address), pe);
}

// ---- put and get. `bytes` is a multiple of `element`.

/// kRound: with a short way for messages of a vector a member at most. nbi calls have none, as it costs registers.
template <class Sides, bool kRound, class Scope>
HEDDLE_DEVICE HEDDLE_INLINE void scope_copy(const Scope& scope, void* destination, const void* source, size_t bytes) {
  if constexpr (!Scope::kIsGroup) {
    copy_by_thread<Sides>(destination, source, bytes);
  } else {
    const auto to = static_cast<char*>(destination);
    const auto from = static_cast<const char*>(source);
    // Asked once for all ways: kernels with a put stay at 40 registers.
    const bool vectors = all_vectors(to, from, bytes);
    if (kRound && vectors && Sides::kInline && bytes <= static_cast<size_t>(scope.size()) * kVectorBytes) {
      copy_round<Sides>(scope, to, from, static_cast<uint32_t>(bytes));
    } else if (vectors && bulk_pays<Sides>(scope, to, from, bytes)) {
      copy_by_bulk<Sides>(scope, to, from, bytes);
    } else if (vectors && Sides::kInline) {
      copy_vectors<Sides>(scope, reinterpret_cast<Vector*>(to), reinterpret_cast<const Vector*>(from),
                          bytes / kVectorBytes);
    } else {
      copy_any<Sides>(scope, to, from, bytes);
    }
  }
}

template <class Scope, bool kBlocking>
HEDDLE_DEVICE HEDDLE_INLINE void put(const char* call, void* dest, const void* source, size_t bytes, uint32_t element,
                                     int pe) {
  const Scope scope;
  char* const remote = at_pe(call, dest, bytes, pe, min(element, 8));
  check_local(call, source, bytes, 1);
  if (kBlocking) scope.sync();
  scope_copy<ToPeer, kBlocking>(scope, remote, source, bytes);
  scope.sync();
}

template <class Scope, bool kBlocking>
HEDDLE_DEVICE HEDDLE_INLINE void get(const char* call, void* dest, const void* source, size_t bytes, uint32_t element,
                                     int pe) {
  const Scope scope;
  const char* const remote = at_pe(call, source, bytes, pe, min(element, 8));
  check_local(call, dest, bytes, 1);
  if (kBlocking) scope.sync();
  scope_copy<FromPeer, kBlocking>(scope, dest, remote, bytes);
  scope.sync();
}

/// What strided calls move: a word, or 16 bytes that are aligned to 8 at least.
template <int kBytes>
struct StridedElement : WordOf<kBytes> {};
template <>
struct StridedElement<16> {
  using type = Vector;
};

template <class Sides, class Scope, int kBytes>
HEDDLE_DEVICE HEDDLE_INLINE void strided(const Scope& scope, void* dest, const void* source, ptrdiff_t dst,
                                         ptrdiff_t sst, size_t count) {
  scope.sync();
  if constexpr (kBytes == 16) {
    if ((reinterpret_cast<uintptr_t>(dest) | reinterpret_cast<uintptr_t>(source)) % 16 != 0) {
      // Halves of elements, each half strided by twice as many halves.
      for (int half = 0; half < 2; ++half) {
        strided_copy_elements<Sides>(scope, static_cast<uint64_t*>(dest) + half,
                                     static_cast<const uint64_t*>(source) + half, 2 * dst, 2 * sst, count);
      }
      scope.sync();
      return;
    }
  }
  using T = typename StridedElement<kBytes>::type;
  strided_copy_elements<Sides>(scope, static_cast<T*>(dest), static_cast<const T*>(source), dst, sst, count);
  scope.sync();
}

template <class Scope, int kBytes>
HEDDLE_DEVICE HEDDLE_INLINE void iput(const char* call, void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst,
                                      size_t count, int pe) {
  check_strides(call, dst, sst, pe, dest);
  check_local(call, source, span_of(sst, count, kBytes), min(kBytes, 8));
  strided<ToPeer, Scope, kBytes>(Scope(), at_pe(call, dest, span_of(dst, count, kBytes), pe, min(kBytes, 8)), source,
                                 dst, sst, count);
}
template <class Scope, int kBytes>
HEDDLE_DEVICE HEDDLE_INLINE void iget(const char* call, void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst,
                                      size_t count, int pe) {
  check_strides(call, dst, sst, pe, source);
  check_local(call, dest, span_of(dst, count, kBytes), min(kBytes, 8));
  strided<FromPeer, Scope, kBytes>(Scope(), dest, at_pe(call, source, span_of(sst, count, kBytes), pe, min(kBytes, 8)),
                                   dst, sst, count);
}

// ---- signals

/// Stores, the group's barrier, then one release by one member: whoever acquires the signal sees the data.
template <class Scope, bool kBlocking>
HEDDLE_DEVICE HEDDLE_INLINE void put_signal(const char* call, void* dest, const void* source, size_t bytes,
                                            uint32_t element, uint64_t* sig_addr, uint64_t signal, int sig_op, int pe) {
  const Scope scope;
  char* const remote = at_pe(call, dest, bytes, pe, min(element, 8));
  check_local(call, source, bytes, 1);
  uint64_t* const remote_signal = at_pe(call, sig_addr, pe);
  check_signal_op(call, sig_op, pe, sig_addr);
  if (kBlocking) scope.sync();
  scope_copy<ToPeer, true>(scope, remote, source, bytes);
  scope.sync();
  if (scope.rank() == 0) signal_release(remote_signal, signal, sig_op);
}

HEDDLE_DEVICE inline uint64_t wait_for_signal(const char* call, const uint64_t* signal, int cmp, uint64_t reference) {
  require_world(call, signal);
  check_compare(call, signal, 1, cmp);
  WaitPause pause(call, signal);
  while (true) {
    const uint64_t value = load_acquire(signal);
    if (compare(value, cmp, reference)) return value;
    if (!pause()) exit_thread();
  }
}

HEDDLE_DEVICE inline void wait_for_counter(const char* call, const uint64_t* counter, uint64_t expected) {
  require_world(call, counter);
  check_own(call, counter, sizeof *counter, 256);
  WaitPause pause(call, counter);
  while (!counter_reached(load_acquire(counter), expected)) {
    if (!pause()) exit_thread();
  }
}

/// Status as NVSHMEMX_*: 0, or 1 for arguments that are wrong; the same in every thread. Checking builds record what is
/// wrong and end the threads.
HEDDLE_DEVICE inline int put_counted(const char* call, void* dest, const void* source, size_t bytes, uint64_t* counter,
                                     int pe) {
  const HeapView& view = device_state().view;
  check(call, dest, bytes, pe, kVectorBytes);
  check(call, counter, sizeof *counter, pe, 256);
  const DeviceError error = judge_counted(view, dest, source, bytes, counter, pe);
  if (error != DeviceError::kNone) {
    if constexpr (HEDDLE_CHECK != 0) {
      const void* const about = error == DeviceError::kOverlap ? static_cast<const void*>(counter) : source;
      give_up(call, error, pe, about, bytes);
    }
    return 1;
  }
  if (bytes == 0) return 0;
  const BlockScope scope;
  copy_vectors<ToPeer>(scope, reinterpret_cast<Vector*>(translate(view, static_cast<char*>(dest), pe)),
                       static_cast<const Vector*>(source), bytes / kVectorBytes);
  scope.sync();
  if (scope.rank() == 0) add_release(translate(view, counter, pe), bytes);
  return 0;
}

// ---- atomics

template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T fetch_add(T* remote, T value) {
  if constexpr (sizeof(T) == 2) {
    return atomic_fetch_add_half(remote, value);
  } else {
    return atomic_fetch_add(remote, value);
  }
}

// ---- wait and test: the forms of wait.h with the pause of kernels; giving up ends the thread

template <class T, class References>
HEDDLE_DEVICE inline void wait_all(const char* call, const T* ivars, size_t count, const int* status, int cmp,
                                   References references) {
  require_world(call, ivars);
  check_compare(call, ivars, count, cmp);
  check_references(call, references, count);
  WaitPause pause(call, ivars);
  if (!wait_until_all(ivars, count, status, cmp, references, pause)) exit_thread();
}
template <class T, class References>
HEDDLE_DEVICE inline size_t wait_any(const char* call, const T* ivars, size_t count, const int* status, int cmp,
                                     References references) {
  require_world(call, ivars);
  check_compare(call, ivars, count, cmp);
  check_references(call, references, count);
  WaitPause pause(call, ivars);
  const size_t index = wait_until_any(ivars, count, status, cmp, references, pause);
  if (index == kNone && !empty_set(count, status)) exit_thread();
  return index;
}
template <class T, class References>
HEDDLE_DEVICE inline size_t wait_some(const char* call, const T* ivars, size_t count, size_t* indices,
                                      const int* status, int cmp, References references) {
  require_world(call, ivars);
  check_compare(call, ivars, count, cmp);
  check_references(call, references, count);
  check_local(call, indices, bytes_of(count, sizeof *indices), sizeof *indices);
  WaitPause pause(call, ivars);
  const size_t found = wait_until_some(ivars, count, indices, status, cmp, references, pause);
  if (found == 0 && !empty_set(count, status)) exit_thread();
  return found;
}

// ---- barriers

HEDDLE_DEVICE HEDDLE_INLINE TeamView team_view(int team) { return team_view(device_state(), team); }

/// The group that meets in `call` for a team; whether its block can have such groups.
template <class Scope>
struct Group {
  static HEDDLE_DEVICE Scope of(const char*, int) { return Scope(); }
  static HEDDLE_DEVICE constexpr bool is_whole() { return true; }
};
template <>
struct Group<WarpgroupScope> {
  static HEDDLE_DEVICE WarpgroupScope of(const char* call, int team) { return WarpgroupScope(call, team); }
  static HEDDLE_DEVICE bool is_whole() { return WarpgroupScope::has_whole_groups(); }
};

/// barrier and sync of all PEs by a group; a wait that gives up ends its threads.
template <class Scope>
HEDDLE_DEVICE HEDDLE_INLINE void meet_all(const char* call, int team = 0) {
  const Scope scope = Group<Scope>::of(call, team);
  if constexpr (HEDDLE_CHECK != 0) {
    require_world(call);
    scope.sync();  // with the threads that are left: those that have failed said so before they ended
    if (scope.any(grid_has_failed())) give_up(call, DeviceError::kGridFailed, -1, nullptr, 0);
  }
  if (!barrier_of_all(call, scope)) exit_thread();
}

/// barrier and sync of a team. Status as NVSHMEMX_*: 1 for no such team or one without this PE, 3 for teams that
/// kernels cannot meet in yet.
template <class Scope>
HEDDLE_DEVICE HEDDLE_INLINE int meet_team(const char* call, int team) {
  require_world(call);
  const TeamView view = team_view(team);
  if (view.size == 0) return 1;
  if (!Group<Scope>::is_whole()) {
    give_up(call, DeviceError::kBadBlock, -1, nullptr, static_cast<uint64_t>(threads_of_block()));
  }
  if (view.size == device_state().view.n_pes) {
    meet_all<Scope>(call, team);
    return 0;
  }
  if (view.size != 1) return 3;
  Group<Scope>::of(call, team).sync();
  fence_system();
  return 0;
}

}  // namespace heddle::device
#endif
