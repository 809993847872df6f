// The few PGAS calls that the tests use, over NVSHMEM's API or, with PERFTEST_OSHMEM, over OpenSHMEM's: one source,
// measured on both. Each is one inlined call of the library.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef PERFTEST_OSHMEM
#include <shmem.h>
#define PERFTEST_CALL(name) shmem_##name
#else
#include <nvshmem.h>
#include <nvshmemx.h>
#define PERFTEST_CALL(name) nvshmem_##name
#if __has_include(<heddle.h>)
#include <heddle.h>
#endif
#endif

namespace pgas {

inline void init() { PERFTEST_CALL(init)(); }
inline void finalize() { PERFTEST_CALL(finalize)(); }
inline int my_pe() { return PERFTEST_CALL(my_pe)(); }
inline int n_pes() { return PERFTEST_CALL(n_pes)(); }
inline void* allocate(size_t bytes) { return PERFTEST_CALL(malloc)(bytes); }
inline void release(void* memory) { PERFTEST_CALL(free)(memory); }
inline void* ptr(void* memory, int pe) { return PERFTEST_CALL(ptr)(memory, pe); }

inline void put(void* to, const void* from, size_t bytes, int pe) { PERFTEST_CALL(putmem)(to, from, bytes, pe); }
inline void put_nbi(void* to, const void* from, size_t bytes, int pe) {
  PERFTEST_CALL(putmem_nbi)(to, from, bytes, pe);
}
inline void get(void* to, const void* from, size_t bytes, int pe) { PERFTEST_CALL(getmem)(to, from, bytes, pe); }
inline void get_nbi(void* to, const void* from, size_t bytes, int pe) {
  PERFTEST_CALL(getmem_nbi)(to, from, bytes, pe);
}
inline void quiet() { PERFTEST_CALL(quiet)(); }
inline void barrier_all() { PERFTEST_CALL(barrier_all)(); }

inline void p(uint64_t* to, uint64_t value, int pe) { PERFTEST_CALL(uint64_p)(to, value, pe); }
inline uint64_t g(const uint64_t* from, int pe) { return PERFTEST_CALL(uint64_g)(from, pe); }

// OpenSHMEM has the extended atomics for unsigned long, NVSHMEM for uint64: the same 8 bytes here.
#ifdef PERFTEST_OSHMEM
using Word = unsigned long;
#define PERFTEST_ATOMIC(name) shmem_ulong_atomic_##name
#else
using Word = uint64_t;
#define PERFTEST_ATOMIC(name) nvshmem_uint64_atomic_##name
#endif
static_assert(sizeof(Word) == 8, "these tests measure 8-byte atomics");
inline Word fetch_add(Word* at, Word value, int pe) { return PERFTEST_ATOMIC(fetch_add)(at, value, pe); }
inline Word fetch_inc(Word* at, int pe) { return PERFTEST_ATOMIC(fetch_inc)(at, pe); }
inline void add(Word* at, Word value, int pe) { PERFTEST_ATOMIC(add)(at, value, pe); }
inline Word swap(Word* at, Word value, int pe) { return PERFTEST_ATOMIC(swap)(at, value, pe); }
inline Word compare_swap(Word* at, Word expected, Word value, int pe) {
  return PERFTEST_ATOMIC(compare_swap)(at, expected, value, pe);
}
inline Word fetch(Word* at, int pe) { return PERFTEST_ATOMIC(fetch)(at, pe); }
inline void set(Word* at, Word value, int pe) { PERFTEST_ATOMIC(set)(at, value, pe); }

#ifdef PERFTEST_OSHMEM
inline void wait_until_equal(uint64_t* at, uint64_t value) { shmem_uint64_wait_until(at, SHMEM_CMP_EQ, value); }
inline const char* fabric() { return "oshmem"; }
#else
inline void wait_until_equal(uint64_t* at, uint64_t value) { nvshmem_uint64_wait_until(at, NVSHMEM_CMP_EQ, value); }
inline void signal_set(uint64_t* signal, uint64_t value, int pe) {
  nvshmemx_signal_op(signal, value, NVSHMEM_SIGNAL_SET, pe);
}
inline void signal_wait_equal(uint64_t* signal, uint64_t value) {
  nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, value);
}
inline void put_signal(void* to, const void* from, size_t bytes, uint64_t* signal, uint64_t value, int pe) {
  nvshmem_putmem_signal(to, from, bytes, signal, value, NVSHMEM_SIGNAL_SET, pe);
}
#ifdef HEDDLE_VERSION_STRING
inline const char* fabric() { return heddle_fabric_name(); }
#else
inline const char* fabric() { return "nvshmem"; }
#endif
#endif

}  // namespace pgas
