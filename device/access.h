// Loads, stores, fences and atomics with explicit memory order, at system scope: the one place that spells them out.
//
// Host: compiler atomics on shared memory (here). Kernels: PTX (access_ptx.h), the same names and meaning. Every object
// is naturally aligned and 1, 2, 4 or 8 bytes wide; vectors are 16 bytes.
#pragma once

#include "device/config.h"

namespace heddle::device {

/// The unsigned integer that has the size of T; floating types travel as their bits.
template <int kBytes>
struct WordOf;
template <>
struct WordOf<1> {
  using type = uint8_t;
};
template <>
struct WordOf<2> {
  using type = uint16_t;
};
template <>
struct WordOf<4> {
  using type = uint32_t;
};
template <>
struct WordOf<8> {
  using type = uint64_t;
};
template <class T>
using Word = typename WordOf<static_cast<int>(sizeof(T))>::type;

template <class T>
HEDDLE_HD HEDDLE_INLINE Word<T> to_word(const T& value) {
  Word<T> word;
  memcpy(&word, &value, sizeof word);
  return word;
}
template <class T>
HEDDLE_HD HEDDLE_INLINE T from_word(Word<T> word) {
  T value;
  memcpy(static_cast<void*>(&value), &word, sizeof value);
  return value;
}

/// What one memory instruction moves at most.
struct Vector {
  uint32_t word[4];
};

}  // namespace heddle::device

#if defined(__CUDA_ARCH__)
#include "device/access_ptx.h"
#else

namespace heddle::device {

/// Relaxed load: the value alone, no order.
template <class T>
HEDDLE_HD HEDDLE_INLINE T load_relaxed(const T* address) {
  return from_word<T>(__atomic_load_n(reinterpret_cast<const Word<T>*>(address), __ATOMIC_RELAXED));
}

/// Acquire load: later accesses see what the writer did before its release.
template <class T>
HEDDLE_HD HEDDLE_INLINE T load_acquire(const T* address) {
  return from_word<T>(__atomic_load_n(reinterpret_cast<const Word<T>*>(address), __ATOMIC_ACQUIRE));
}

/// Relaxed store: one element put, ordered by a later fence or quiet only.
template <class T>
HEDDLE_HD HEDDLE_INLINE void store_relaxed(T* address, const T& value) {
  __atomic_store_n(reinterpret_cast<Word<T>*>(address), to_word(value), __ATOMIC_RELAXED);
}

/// Release store: whoever acquires the value sees everything this thread did before.
template <class T>
HEDDLE_HD HEDDLE_INLINE void store_release(T* address, const T& value) {
  __atomic_store_n(reinterpret_cast<Word<T>*>(address), to_word(value), __ATOMIC_RELEASE);
}

/// Release add of a signal or counter.
HEDDLE_HD HEDDLE_INLINE void add_release(uint64_t* address, uint64_t value) {
  __atomic_fetch_add(address, value, __ATOMIC_RELEASE);
}

/// Orders this thread's earlier stores before its later ones (OpenSHMEM 1.5, 9.10 shmem_fence).
HEDDLE_HD HEDDLE_INLINE void fence_release() { __atomic_thread_fence(__ATOMIC_RELEASE); }

/// Earlier stores are visible to every PE before anything later happens (OpenSHMEM 1.5, 9.10 shmem_quiet): sequentially
/// consistent, because a get after a quiet must not overtake the puts before it.
HEDDLE_HD HEDDLE_INLINE void fence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// ---- the copy engine's accesses: unordered. `peer` sides are symmetric memory, `any` sides whatever this PE can
// address.

HEDDLE_HD HEDDLE_INLINE Vector load_any(const Vector* address) {
  Vector value;
  memcpy(&value, address, sizeof value);
  return value;
}
HEDDLE_HD HEDDLE_INLINE Vector load_peer(const Vector* address) { return load_any(address); }
HEDDLE_HD HEDDLE_INLINE void store_any(Vector* address, const Vector& value) { memcpy(address, &value, sizeof value); }
HEDDLE_HD HEDDLE_INLINE void store_peer(Vector* address, const Vector& value) { store_any(address, value); }

template <class T>
HEDDLE_HD HEDDLE_INLINE T load_any(const T* address) {
  return load_relaxed(address);
}
template <class T>
HEDDLE_HD HEDDLE_INLINE T load_peer(const T* address) {
  return load_relaxed(address);
}
template <class T>
HEDDLE_HD HEDDLE_INLINE void store_any(T* address, const T& value) {
  store_relaxed(address, value);
}
template <class T>
HEDDLE_HD HEDDLE_INLINE void store_peer(T* address, const T& value) {
  store_relaxed(address, value);
}

/// A hint that only kernels need.
HEDDLE_HD HEDDLE_INLINE int not_known(int value) { return value; }

/// Bits [bits, bits + 32) of high:low, for bits in [0, 32).
HEDDLE_HD HEDDLE_INLINE uint32_t funnel(uint32_t low, uint32_t high, uint32_t bits) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> bits);
}

// ---- atomics: relaxed, because OpenSHMEM's carry no order of their own (OpenSHMEM 1.5, 9.7); fence and quiet give it

template <class T>
HEDDLE_HD HEDDLE_INLINE T atomic_exchange(T* address, const T& value) {
  return from_word<T>(__atomic_exchange_n(reinterpret_cast<Word<T>*>(address), to_word(value), __ATOMIC_RELAXED));
}

/// Stores `value` when the object equals `expected`; the old value.
template <class T>
HEDDLE_HD HEDDLE_INLINE T atomic_compare_exchange(T* address, const T& expected, const T& value) {
  Word<T> old = to_word(expected);
  __atomic_compare_exchange_n(reinterpret_cast<Word<T>*>(address), &old, to_word(value), false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return from_word<T>(old);
}

/// Types whose bits cannot be added as an integer's.
template <class T>
inline constexpr bool kIsInteger = static_cast<T>(3) / static_cast<T>(2) == static_cast<T>(1);
struct Half;
template <>
inline constexpr bool kIsInteger<Half> = false;

/// Integer types wrap, floating types (double, float, half) add by compare-exchange.
template <class T>
HEDDLE_HD HEDDLE_INLINE T atomic_fetch_add(T* address, const T& value) {
  if constexpr (kIsInteger<T>) {
    return from_word<T>(
        __atomic_fetch_add(reinterpret_cast<Word<T>*>(address), static_cast<Word<T> >(value), __ATOMIC_RELAXED));
  } else {
    T old = load_relaxed(address);
    while (true) {
      const T seen = atomic_compare_exchange(address, old, static_cast<T>(old + value));
      if (to_word(seen) == to_word(old)) return old;
      old = seen;
    }
  }
}
template <class T>
HEDDLE_HD HEDDLE_INLINE T atomic_fetch_and(T* address, T value) {
  return from_word<T>(
      __atomic_fetch_and(reinterpret_cast<Word<T>*>(address), static_cast<Word<T> >(value), __ATOMIC_RELAXED));
}
template <class T>
HEDDLE_HD HEDDLE_INLINE T atomic_fetch_or(T* address, T value) {
  return from_word<T>(
      __atomic_fetch_or(reinterpret_cast<Word<T>*>(address), static_cast<Word<T> >(value), __ATOMIC_RELAXED));
}
template <class T>
HEDDLE_HD HEDDLE_INLINE T atomic_fetch_xor(T* address, T value) {
  return from_word<T>(
      __atomic_fetch_xor(reinterpret_cast<Word<T>*>(address), static_cast<Word<T> >(value), __ATOMIC_RELAXED));
}

}  // namespace heddle::device
#endif
