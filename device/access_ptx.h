// The kernel side of access.h: PTX for sm_70 and up (CUDA PTX ISA, 8 Memory consistency model). Include access.h.
//
// Symmetric memory is global memory, whose generic and global addresses are the same numbers; the conversions cost
// nothing. Every access tells the compiler that memory changes, so that it keeps program order with plain accesses.
#pragma once

namespace heddle::device {

HEDDLE_DEVICE HEDDLE_INLINE size_t global_address(const void* address) { return __cvta_generic_to_global(address); }

/// Loads and stores of one width, with the operand register that PTX wants for it.
template <int kBytes>
struct Ptx;
#define HEDDLE_PTX_WIDTH(BYTES, BITS, CONSTRAINT, REGISTER)                                                       \
  template <>                                                                                                     \
  struct Ptx<BYTES> {                                                                                             \
    using Register = REGISTER;                                                                                    \
    static HEDDLE_DEVICE HEDDLE_INLINE Register load_relaxed(const void* address) {                               \
      Register value;                                                                                             \
      asm volatile("ld.relaxed.sys.global.u" #BITS " %0, [%1];"                                                   \
                   : "=" CONSTRAINT(value)                                                                        \
                   : "l"(global_address(address))                                                                 \
                   : "memory");                                                                                   \
      return value;                                                                                               \
    }                                                                                                             \
    static HEDDLE_DEVICE HEDDLE_INLINE Register load_acquire(const void* address) {                               \
      Register value;                                                                                             \
      asm volatile("ld.acquire.sys.global.u" #BITS " %0, [%1];"                                                   \
                   : "=" CONSTRAINT(value)                                                                        \
                   : "l"(global_address(address))                                                                 \
                   : "memory");                                                                                   \
      return value;                                                                                               \
    }                                                                                                             \
    static HEDDLE_DEVICE HEDDLE_INLINE Register load_any(const void* address) {                                   \
      Register value;                                                                                             \
      asm volatile("ld.u" #BITS " %0, [%1];" : "=" CONSTRAINT(value) : "l"(address) : "memory");                  \
      return value;                                                                                               \
    }                                                                                                             \
    static HEDDLE_DEVICE HEDDLE_INLINE void store_relaxed(void* address, Register value) {                        \
      asm volatile("st.relaxed.sys.global.u" #BITS " [%0], %1;" ::"l"(global_address(address)), CONSTRAINT(value) \
                   : "memory");                                                                                   \
    }                                                                                                             \
    static HEDDLE_DEVICE HEDDLE_INLINE void store_release(void* address, Register value) {                        \
      asm volatile("st.release.sys.global.u" #BITS " [%0], %1;" ::"l"(global_address(address)), CONSTRAINT(value) \
                   : "memory");                                                                                   \
    }                                                                                                             \
    static HEDDLE_DEVICE HEDDLE_INLINE void store_any(void* address, Register value) {                            \
      asm volatile("st.u" #BITS " [%0], %1;" ::"l"(address), CONSTRAINT(value) : "memory");                       \
    }                                                                                                             \
  };
HEDDLE_PTX_WIDTH(1, 8, "r", uint32_t)
HEDDLE_PTX_WIDTH(2, 16, "h", uint16_t)
HEDDLE_PTX_WIDTH(4, 32, "r", uint32_t)
HEDDLE_PTX_WIDTH(8, 64, "l", uint64_t)
#undef HEDDLE_PTX_WIDTH
template <class T>
using PtxOf = Ptx<static_cast<int>(sizeof(T))>;

template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T load_relaxed(const T* address) {
  return from_word<T>(static_cast<Word<T>>(PtxOf<T>::load_relaxed(address)));
}
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T load_acquire(const T* address) {
  return from_word<T>(static_cast<Word<T>>(PtxOf<T>::load_acquire(address)));
}
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE void store_relaxed(T* address, const T& value) {
  PtxOf<T>::store_relaxed(address, to_word(value));
}
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE void store_release(T* address, const T& value) {
  PtxOf<T>::store_release(address, to_word(value));
}
/// Two neighbouring words at a multiple of 16 bytes, that only the caller's block writes. A weak load: the block's
/// barriers order it after the block's writes, and looks after the first are answered by L1. Of words of other blocks
/// it may see anything that they once held; each word for itself is never torn.
HEDDLE_DEVICE HEDDLE_INLINE void load_own_pair(const uint64_t* address, uint64_t* first, uint64_t* second) {
  asm volatile("ld.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(*first), "=l"(*second)
               : "l"(global_address(address))
               : "memory");
}
HEDDLE_DEVICE HEDDLE_INLINE void add_release(uint64_t* address, uint64_t value) {
  asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(global_address(address)), "l"(value) : "memory");
}

/// Acquire and release: what shmem_fence asks, and what a release store would do itself.
HEDDLE_DEVICE HEDDLE_INLINE void fence_release() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
/// Sequentially consistent: only this keeps a later load of another PE's memory behind earlier stores.
HEDDLE_DEVICE HEDDLE_INLINE void fence_system() { asm volatile("fence.sc.sys;" ::: "memory"); }

// ---- the copy engine's accesses. Reads of a peer are relaxed at system scope, so that each get reads the peer anew
// and none is answered from this SM's L1 cache; the rest is weak, and ordered by the fences and signals around it.

HEDDLE_DEVICE HEDDLE_INLINE Vector load_any(const Vector* address) {
  Vector value;
  asm volatile("ld.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
               : "l"(address)
               : "memory");
  return value;
}
HEDDLE_DEVICE HEDDLE_INLINE Vector load_peer(const Vector* address) {
  Vector value;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.word[0]), "=r"(value.word[1]), "=r"(value.word[2]), "=r"(value.word[3])
               : "l"(global_address(address))
               : "memory");
  return value;
}
HEDDLE_DEVICE HEDDLE_INLINE void store_any(Vector* address, const Vector& value) {
  asm volatile("st.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.word[0]), "r"(value.word[1]),
               "r"(value.word[2]), "r"(value.word[3])
               : "memory");
}
HEDDLE_DEVICE HEDDLE_INLINE void store_peer(Vector* address, const Vector& value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(global_address(address)), "r"(value.word[0]),
               "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
               : "memory");
}

template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T load_any(const T* address) {
  return from_word<T>(static_cast<Word<T>>(PtxOf<T>::load_any(address)));
}
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T load_peer(const T* address) {
  return load_relaxed(address);
}
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE void store_any(T* address, const T& value) {
  PtxOf<T>::store_any(address, to_word(value));
}
/// Relaxed: an element of a put is never torn.
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE void store_peer(T* address, const T& value) {
  store_relaxed(address, value);
}

/// `value`, of which the compiler knows nothing any more.
HEDDLE_DEVICE HEDDLE_INLINE int not_known(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

HEDDLE_DEVICE HEDDLE_INLINE uint32_t funnel(uint32_t low, uint32_t high, uint32_t bits) {
  return __funnelshift_r(low, high, bits);
}

// ---- atomics

/// Read-modify-write of 4 and 8 bytes, each naming its PTX type.
#define HEDDLE_PTX_ATOMIC(NAME, OP, BITS, CONSTRAINT, WORD)                        \
  HEDDLE_DEVICE HEDDLE_INLINE WORD atomic_word_##NAME(WORD* address, WORD value) { \
    WORD old;                                                                      \
    asm volatile("atom.relaxed.sys.global." OP #BITS " %0, [%1], %2;"              \
                 : "=" CONSTRAINT(old)                                             \
                 : "l"(global_address(address)), CONSTRAINT(value)                 \
                 : "memory");                                                      \
    return old;                                                                    \
  }
#define HEDDLE_PTX_ATOMICS(NAME, OP)             \
  HEDDLE_PTX_ATOMIC(NAME, OP, 32, "r", uint32_t) \
  HEDDLE_PTX_ATOMIC(NAME, OP, 64, "l", uint64_t)
HEDDLE_PTX_ATOMICS(exchange, "exch.b")
HEDDLE_PTX_ATOMICS(add, "add.u")
HEDDLE_PTX_ATOMICS(and, "and.b")
HEDDLE_PTX_ATOMICS(or, "or.b")
HEDDLE_PTX_ATOMICS(xor, "xor.b")
#undef HEDDLE_PTX_ATOMICS
#undef HEDDLE_PTX_ATOMIC

HEDDLE_DEVICE HEDDLE_INLINE uint16_t atomic_word_cas(uint16_t* address, uint16_t expected, uint16_t value) {
  uint16_t old;
  asm volatile("atom.relaxed.sys.global.cas.b16 %0, [%1], %2, %3;"
               : "=h"(old)
               : "l"(global_address(address)), "h"(expected), "h"(value)
               : "memory");
  return old;
}
HEDDLE_DEVICE HEDDLE_INLINE uint32_t atomic_word_cas(uint32_t* address, uint32_t expected, uint32_t value) {
  uint32_t old;
  asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(global_address(address)), "r"(expected), "r"(value)
               : "memory");
  return old;
}
HEDDLE_DEVICE HEDDLE_INLINE uint64_t atomic_word_cas(uint64_t* address, uint64_t expected, uint64_t value) {
  uint64_t old;
  asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : "l"(global_address(address)), "l"(expected), "l"(value)
               : "memory");
  return old;
}
/// PTX exchanges no 16 bits: by compare-exchange.
HEDDLE_DEVICE inline uint16_t atomic_word_exchange(uint16_t* address, uint16_t value) {
  uint16_t old = load_relaxed(address);
  while (true) {
    const uint16_t seen = atomic_word_cas(address, old, value);
    if (seen == old) return old;
    old = seen;
  }
}

template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T atomic_exchange(T* address, const T& value) {
  return from_word<T>(atomic_word_exchange(reinterpret_cast<Word<T>*>(address), to_word(value)));
}
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T atomic_compare_exchange(T* address, const T& expected, const T& value) {
  return from_word<T>(atomic_word_cas(reinterpret_cast<Word<T>*>(address), to_word(expected), to_word(value)));
}
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T atomic_fetch_and(T* address, T value) {
  return from_word<T>(atomic_word_and(reinterpret_cast<Word<T>*>(address), to_word(value)));
}
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T atomic_fetch_or(T* address, T value) {
  return from_word<T>(atomic_word_or(reinterpret_cast<Word<T>*>(address), to_word(value)));
}
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T atomic_fetch_xor(T* address, T value) {
  return from_word<T>(atomic_word_xor(reinterpret_cast<Word<T>*>(address), to_word(value)));
}

/// Integers wrap.
template <class T>
HEDDLE_DEVICE HEDDLE_INLINE T atomic_fetch_add(T* address, const T& value) {
  return from_word<T>(atomic_word_add(reinterpret_cast<Word<T>*>(address), to_word(value)));
}
HEDDLE_DEVICE HEDDLE_INLINE float atomic_fetch_add(float* address, const float& value) {
  float old;
  asm volatile("atom.relaxed.sys.global.add.f32 %0, [%1], %2;"
               : "=f"(old)
               : "l"(global_address(address)), "f"(value)
               : "memory");
  return old;
}
HEDDLE_DEVICE HEDDLE_INLINE double atomic_fetch_add(double* address, const double& value) {
  double old;
  asm volatile("atom.relaxed.sys.global.add.f64 %0, [%1], %2;"
               : "=d"(old)
               : "l"(global_address(address)), "d"(value)
               : "memory");
  return old;
}
struct Half;
/// Halves as their bits; subnormals are kept.
template <class HalfType>
HEDDLE_DEVICE HEDDLE_INLINE HalfType atomic_fetch_add_half(HalfType* address, const HalfType& value) {
  uint16_t old;
  asm volatile("atom.relaxed.sys.global.add.noftz.f16 %0, [%1], %2;"
               : "=h"(old)
               : "l"(global_address(address)), "h"(to_word(value))
               : "memory");
  return from_word<HalfType>(old);
}

// ---- what else only kernels can ask for

/// Ends the calling thread; the others of its block go on, and barriers no longer wait for it.
HEDDLE_DEVICE HEDDLE_INLINE void exit_thread() { asm volatile("exit;"); }
HEDDLE_DEVICE HEDDLE_INLINE uint32_t lane_id() {
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
/// Whether a generic address is the calling thread's own stack.
HEDDLE_DEVICE HEDDLE_INLINE bool is_own_memory(const void* address) { return __isLocal(address) != 0; }
/// Nanoseconds of the GPU's clock.
HEDDLE_DEVICE HEDDLE_INLINE uint64_t clock_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
/// Tells this grid from every other of the context.
HEDDLE_DEVICE HEDDLE_INLINE uint64_t grid_id() {
  uint64_t id;
  asm volatile("mov.u64 %0, %%gridid;" : "=l"(id));
  return id;
}
/// Bytes of shared memory that a block of this kernel has, static and dynamic, without the system's own.
HEDDLE_DEVICE HEDDLE_INLINE uint32_t shared_memory_size() {
  uint32_t bytes;
  asm("mov.u32 %0, %%total_smem_size;" : "=r"(bytes));
  return bytes;
}

}  // namespace heddle::device
