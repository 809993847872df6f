// The data calls of the C API: put, get, atomics, signals, order, wait and test, generated from
// include/nvshmem_names.h.
//
// A call loads the world, checks, and runs the inline algorithm; everything else is out of line and cold.
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>

#include "device/half_convert.h"
#include "include/nvshmem_host.h"
#include "runtime/global.h"
#include "runtime/host_rma.h"

// By the ABI they travel like an unsigned short, whether they are CUDA's or our stand-ins.
static_assert(sizeof(__half) == 2 && std::is_trivially_copyable_v<__half>);
static_assert(sizeof(__nv_bfloat16) == 2 && std::is_trivially_copyable_v<__nv_bfloat16>);

namespace heddle {
namespace {

/// `count` elements in bytes; a product that overflows becomes a size that no heap holds, and so fails the range check.
HEDDLE_INLINE size_t bytes_of(size_t count, size_t element) {
  return HEDDLE_LIKELY(count <= SIZE_MAX / element) ? count * element : SIZE_MAX;
}

// ---- put and get

/// The cold end of p: `word` holds the value, so that the hot path needs no stack.
[[gnu::cold, gnu::noinline]] void p_unmapped(const char* call, void* dest, uint64_t word, size_t bytes, int pe) {
  if (World* const w = world(); w != nullptr) return host::put_word_unmapped(*w, call, dest, word, bytes, pe);
  report_no_world(call);
}

template <class T>
HEDDLE_INLINE void p(const char* call, T* dest, T value, int pe) {
  if (World* const w = world(); HEDDLE_LIKELY(w != nullptr)) {
    if (T* const remote = host::mapped(*w, dest, sizeof(T), pe); HEDDLE_LIKELY(remote != nullptr)) {
      return device::store_relaxed(remote, value);
    }
  }
  p_unmapped(call, dest, device::to_word(value), sizeof(T), pe);
}

/// The cold end of g and fetch: the value in the low bytes.
[[gnu::cold, gnu::noinline]] uint64_t g_unmapped(const char* call, const void* source, size_t bytes, int pe) {
  if (World* const w = world(); w != nullptr) return host::get_word_unmapped(*w, call, source, bytes, pe);
  report_no_world(call);
  return 0;
}

template <class T>
HEDDLE_INLINE T g(const char* call, const T* source, int pe) {
  if (World* const w = world(); HEDDLE_LIKELY(w != nullptr)) {
    if (const T* const remote = host::mapped(*w, source, sizeof(T), pe); HEDDLE_LIKELY(remote != nullptr)) {
      return device::load_relaxed(remote);
    }
  }
  return device::from_word<T>(static_cast<device::Word<T>>(g_unmapped(call, source, sizeof(T), pe)));
}

HEDDLE_INLINE void put(const char* call, void* dest, const void* source, size_t bytes, int pe, bool nbi = false) {
  if (World* const w = world(); HEDDLE_LIKELY(w != nullptr)) return host::put(*w, call, dest, source, bytes, pe, nbi);
  report_no_world(call);
}

HEDDLE_INLINE void get(const char* call, void* dest, const void* source, size_t bytes, int pe, bool nbi = false) {
  if (World* const w = world(); HEDDLE_LIKELY(w != nullptr)) return host::get(*w, call, dest, source, bytes, pe, nbi);
  report_no_world(call);
}

/// What strided calls move: words up to 8 bytes, and 16 bytes that need no alignment.
template <int kBytes>
struct ElementOf : device::WordOf<kBytes> {};
template <>
struct ElementOf<16> {
  struct [[gnu::packed]] type {
    uint64_t low, high;
  };
};
template <size_t kBytes>
using Element = typename ElementOf<static_cast<int>(kBytes)>::type;

/// True, and reported, when `count` elements at `stride` do not fit into an address space.
bool reported_bad_span(const char* call, ptrdiff_t stride, size_t count, size_t element) {
  uint64_t span = 0;
  if (stride < 1 || count == 0) return false;  // the stride is checked later, with its own text
  if (!__builtin_mul_overflow(static_cast<uint64_t>(stride), count, &span) && span <= (UINT64_MAX >> 1) / element) {
    return false;
  }
  (void)report(call, error(Code::kInvalidValue, "%zu elements of %zu bytes at stride %td span more than all addresses",
                           count, element, stride));
  return true;
}

template <size_t kBytes>
void iput(const char* call, void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t count, int pe) {
  using T = Element<kBytes>;
  World* const w = world();
  if (w == nullptr) return report_no_world(call);
  if (reported_bad_span(call, dst, count, kBytes) || reported_bad_span(call, sst, count, kBytes)) return;
  host::iput(*w, call, static_cast<T*>(dest), static_cast<const T*>(source), dst, sst, count, pe);
}

template <size_t kBytes>
void iget(const char* call, void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t count, int pe) {
  using T = Element<kBytes>;
  World* const w = world();
  if (w == nullptr) return report_no_world(call);
  if (reported_bad_span(call, dst, count, kBytes) || reported_bad_span(call, sst, count, kBytes)) return;
  host::iget(*w, call, static_cast<T*>(dest), static_cast<const T*>(source), dst, sst, count, pe);
}

// ---- atomics

/// The type that arithmetic is done in: half as our own, so that it works without CUDA's operators.
template <class T>
struct CarrierOf {
  using type = T;
};
template <>
struct CarrierOf<__half> {
  using type = device::Half;
};
template <class T>
using Carrier = typename CarrierOf<T>::type;

template <class T>
HEDDLE_INLINE Carrier<T> carried(const T& value) {
  return device::from_word<Carrier<T>>(device::to_word(value));
}

template <class T>
constexpr Carrier<T> one() {
  return Carrier<T>{1};
}

/// The cold end of atomics: words hold the values, so that the hot path needs no stack.
[[gnu::cold, gnu::noinline]] uint64_t atomic_unmapped(const char* call, AtomicOp op, AtomicType type, bool fetching,
                                                      void* dest, uint64_t operand, uint64_t compare, int pe) {
  uint64_t old = 0;
  if (World* const w = world(); w != nullptr) {
    host::atomic_unmapped(*w, call, op, type, dest, operand, compare, fetching ? &old : nullptr, pe);
  } else {
    report_no_world(call);
  }
  return old;
}

/// Values come as carriers, made by carried() or one(); the old value when `kFetching`.
template <AtomicOp kOp, bool kFetching, class T>
HEDDLE_INLINE T atomic(const char* call, T* dest, Carrier<T> operand, Carrier<T> compare, int pe) {
  const auto at = reinterpret_cast<Carrier<T>*>(dest);
  if (World* const w = world(); HEDDLE_LIKELY(w != nullptr)) {
    if (Carrier<T>* const remote = host::mapped(*w, at, sizeof(T), pe); HEDDLE_LIKELY(remote != nullptr)) {
      return device::from_word<T>(device::to_word(host::atomic_mapped<kOp>(remote, operand, compare)));
    }
  }
  const uint64_t old = atomic_unmapped(call, kOp, host::atomic_type<Carrier<T>>(), kFetching, dest,
                                       device::to_word(operand), device::to_word(compare), pe);
  return device::from_word<T>(static_cast<device::Word<T>>(old));
}

// ---- signals

HEDDLE_INLINE void put_signal(const char* call, void* dest, const void* source, size_t bytes, uint64_t* sig_addr,
                              uint64_t signal, int sig_op, int pe) {
  if (World* const w = world(); HEDDLE_LIKELY(w != nullptr)) {
    return host::put_signal(*w, call, dest, source, bytes, sig_addr, signal, sig_op, pe);
  }
  report_no_world(call);
}

// ---- wait and test: the variables are this PE's own

/// The world, when the arguments of a wait or test are good; else nullptr, and the reason is reported.
[[gnu::cold, gnu::noinline]] World* refuse_look(const char* call, const void* variables, size_t bytes, int cmp) {
  World* const w = world();
  if (w == nullptr) {
    report_no_world(call);
  } else if (cmp < NVSHMEM_CMP_EQ || cmp > NVSHMEM_CMP_GE) {
    (void)report(call,
                 error(Code::kInvalidValue, "comparison %d is none of NVSHMEM_CMP_EQ (0) to NVSHMEM_CMP_GE (5)", cmp));
  } else {
    (void)report(call, host::check_range(*w, variables, bytes, w->my_pe()));
  }
  return nullptr;
}

/// This PE's variables where host code can look at them: themselves, or, on a device heap, copies that refresh()
/// renews.
template <class T>
class Look {
 public:
  Look(World& w, const char* call, const T* variables, size_t count)
      : world_(w), call_(call), variables_(variables), count_(count) {
    if (HEDDLE_LIKELY(w.has_host_memory() || count == 0)) return;
    copies_.reset(new (std::nothrow) T[count]);
    if (copies_ == nullptr) {
      (void)report(call, error(Code::kOutOfMemory,
                               "no memory for copies of %zu variables of %zu bytes, by which host "
                               "code looks at GPU memory; wait for fewer at once",
                               count, sizeof(T)));
      is_good_ = false;
      return;
    }
    refresh();
  }
  /// False, and reported, when the variables could not be read: there is nothing to look at then.
  bool is_good() const { return HEDDLE_LIKELY(is_good_); }
  const T* data() const { return HEDDLE_LIKELY(copies_ == nullptr) ? variables_ : copies_.get(); }
  /// is_good() after another read.
  bool refresh() {
    if (HEDDLE_UNLIKELY(copies_ != nullptr)) {
      is_good_ = host::get_unmapped(world_, call_, copies_.get(), variables_, count_ * sizeof(T), world_.my_pe());
    }
    return is_good_;
  }

 private:
  World& world_;
  const char* const call_;
  const T* const variables_;
  const size_t count_;
  std::unique_ptr<T[]> copies_;
  bool is_good_ = true;
};

HEDDLE_INLINE World* may_look(const char* call, const void* variables, size_t bytes, int cmp) {
  World* const w = world();
  const bool good =
      w != nullptr && static_cast<unsigned>(cmp) <= NVSHMEM_CMP_GE && device::in_heap(w->view(), variables, bytes);
  return HEDDLE_LIKELY(good) ? w : refuse_look(call, variables, bytes, cmp);
}

using host::reported_null;
template <class T>
bool reported_null(const char*, const char*, const device::OneValue<T>&, size_t) {
  return false;
}

/// Reports a wait that gave up; one that could not look has been reported already.
template <class T, class References>
HEDDLE_INLINE void report_given_up(World& w, const char* call, const Waiter& pause, const T* variables,
                                   const Look<T>& look, size_t count, const int* status, int cmp,
                                   References references) {
  if (HEDDLE_UNLIKELY(pause.verdict() != Code::kOk)) {
    host::report_wait(w, call, pause, variables, look.data(), count, status, cmp, references);
  }
}

template <class T, class References>
void wait_until_all(const char* call, const T* ivars, size_t count, const int* status, int cmp, References references) {
  World* const w = may_look(call, ivars, bytes_of(count, sizeof(T)), cmp);
  if (w == nullptr || reported_null(call, "cmp_values", references, count)) return;
  Waiter pause(w->wait_context());
  Look<T> look(*w, call, ivars, count);
  if (!look.is_good()) return;
  device::wait_until_all(look.data(), count, status, cmp, references, [&] { return pause() && look.refresh(); });
  report_given_up(*w, call, pause, ivars, look, count, status, cmp, references);
}

template <class T, class References>
size_t wait_until_any(const char* call, const T* ivars, size_t count, const int* status, int cmp,
                      References references) {
  World* const w = may_look(call, ivars, bytes_of(count, sizeof(T)), cmp);
  if (w == nullptr || reported_null(call, "cmp_values", references, count)) return device::kNone;
  Waiter pause(w->wait_context());
  Look<T> look(*w, call, ivars, count);
  if (!look.is_good()) return device::kNone;
  const size_t index =
      device::wait_until_any(look.data(), count, status, cmp, references, [&] { return pause() && look.refresh(); });
  if (index == device::kNone) report_given_up(*w, call, pause, ivars, look, count, status, cmp, references);
  return index;
}

template <class T, class References>
size_t wait_until_some(const char* call, const T* ivars, size_t count, size_t* indices, const int* status, int cmp,
                       References references) {
  World* const w = may_look(call, ivars, bytes_of(count, sizeof(T)), cmp);
  if (w == nullptr || reported_null(call, "cmp_values", references, count) ||
      reported_null(call, "indices", indices, count)) {
    return 0;
  }
  Waiter pause(w->wait_context());
  Look<T> look(*w, call, ivars, count);
  if (!look.is_good()) return 0;
  const size_t found = device::wait_until_some(look.data(), count, indices, status, cmp, references,
                                               [&] { return pause() && look.refresh(); });
  if (found == 0) report_given_up(*w, call, pause, ivars, look, count, status, cmp, references);
  return found;
}

template <class T, class References>
int test_all(const char* call, const T* ivars, size_t count, const int* status, int cmp, References references) {
  World* const w = may_look(call, ivars, bytes_of(count, sizeof(T)), cmp);
  if (w == nullptr || reported_null(call, "cmp_values", references, count)) return 0;
  const Look<T> look(*w, call, ivars, count);
  return look.is_good() && device::test_all(look.data(), count, status, cmp, references) ? 1 : 0;
}

template <class T, class References>
size_t test_any(const char* call, const T* ivars, size_t count, const int* status, int cmp, References references) {
  World* const w = may_look(call, ivars, bytes_of(count, sizeof(T)), cmp);
  if (w == nullptr || reported_null(call, "cmp_values", references, count)) return device::kNone;
  const Look<T> look(*w, call, ivars, count);
  return look.is_good() ? device::test_any(look.data(), count, status, cmp, references) : device::kNone;
}

template <class T, class References>
size_t test_some(const char* call, const T* ivars, size_t count, size_t* indices, const int* status, int cmp,
                 References references) {
  World* const w = may_look(call, ivars, bytes_of(count, sizeof(T)), cmp);
  if (w == nullptr || reported_null(call, "cmp_values", references, count) ||
      reported_null(call, "indices", indices, count)) {
    return 0;
  }
  const Look<T> look(*w, call, ivars, count);
  return look.is_good() ? device::test_some(look.data(), count, indices, status, cmp, references) : 0;
}

template <class T>
device::OneValue<T> one_value(T value) {
  return {value};
}

[[gnu::cold, gnu::noinline]] void fence_unmapped(const char* call, World* w, bool complete) {
  if (w == nullptr) return report_no_world(call);
  (void)report(call, complete ? w->quiet() : w->fence());
}

}  // namespace
}  // namespace heddle

using heddle::AtomicOp;
using heddle::bytes_of;
using heddle::carried;
using heddle::one;
using heddle::one_value;
using heddle::World;

// ---- put and get

#define HEDDLE_DEFINE_RMA(NAME, TYPE)                                                                                  \
  void nvshmem_##NAME##_put(TYPE* dest, const TYPE* source, size_t nelems, int pe) {                                   \
    heddle::put(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), pe);                                           \
  }                                                                                                                    \
  void nvshmem_##NAME##_put_nbi(TYPE* dest, const TYPE* source, size_t nelems, int pe) {                               \
    heddle::put(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), pe, true);                                     \
  }                                                                                                                    \
  void nvshmem_##NAME##_get(TYPE* dest, const TYPE* source, size_t nelems, int pe) {                                   \
    heddle::get(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), pe);                                           \
  }                                                                                                                    \
  void nvshmem_##NAME##_get_nbi(TYPE* dest, const TYPE* source, size_t nelems, int pe) {                               \
    heddle::get(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), pe, true);                                     \
  }                                                                                                                    \
  void nvshmem_##NAME##_iput(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe) {    \
    heddle::iput<sizeof(TYPE)>(__func__, dest, source, dst, sst, nelems, pe);                                          \
  }                                                                                                                    \
  void nvshmem_##NAME##_iget(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe) {    \
    heddle::iget<sizeof(TYPE)>(__func__, dest, source, dst, sst, nelems, pe);                                          \
  }                                                                                                                    \
  void nvshmem_##NAME##_p(TYPE* dest, const TYPE value, int pe) { heddle::p<TYPE>(__func__, dest, value, pe); }        \
  TYPE nvshmem_##NAME##_g(const TYPE* src, int pe) { return heddle::g(__func__, src, pe); }                            \
  void nvshmem_##NAME##_put_signal(TYPE* dest, const TYPE* source, size_t nelems, uint64_t* sig_addr, uint64_t signal, \
                                   int sig_op, int pe) {                                                               \
    heddle::put_signal(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), sig_addr, signal, sig_op, pe);          \
  }                                                                                                                    \
  void nvshmem_##NAME##_put_signal_nbi(TYPE* dest, const TYPE* source, size_t nelems, uint64_t* sig_addr,              \
                                       uint64_t signal, int sig_op, int pe) {                                          \
    heddle::put_signal(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), sig_addr, signal, sig_op, pe);          \
  }
HEDDLE_RMA_TYPES(HEDDLE_DEFINE_RMA)

#define HEDDLE_DEFINE_SIZED(BITS)                                                                                     \
  void nvshmem_put##BITS(void* dest, const void* source, size_t nelems, int pe) {                                     \
    heddle::put(__func__, dest, source, bytes_of(nelems, (BITS) / 8), pe);                                            \
  }                                                                                                                   \
  void nvshmem_put##BITS##_nbi(void* dest, const void* source, size_t nelems, int pe) {                               \
    heddle::put(__func__, dest, source, bytes_of(nelems, (BITS) / 8), pe, true);                                      \
  }                                                                                                                   \
  void nvshmem_get##BITS(void* dest, const void* source, size_t nelems, int pe) {                                     \
    heddle::get(__func__, dest, source, bytes_of(nelems, (BITS) / 8), pe);                                            \
  }                                                                                                                   \
  void nvshmem_get##BITS##_nbi(void* dest, const void* source, size_t nelems, int pe) {                               \
    heddle::get(__func__, dest, source, bytes_of(nelems, (BITS) / 8), pe, true);                                      \
  }                                                                                                                   \
  void nvshmem_iput##BITS(void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe) {      \
    heddle::iput<(BITS) / 8>(__func__, dest, source, dst, sst, nelems, pe);                                           \
  }                                                                                                                   \
  void nvshmem_iget##BITS(void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, int pe) {      \
    heddle::iget<(BITS) / 8>(__func__, dest, source, dst, sst, nelems, pe);                                           \
  }                                                                                                                   \
  void nvshmem_put##BITS##_signal(void* dest, const void* source, size_t nelems, uint64_t* sig_addr, uint64_t signal, \
                                  int sig_op, int pe) {                                                               \
    heddle::put_signal(__func__, dest, source, bytes_of(nelems, (BITS) / 8), sig_addr, signal, sig_op, pe);           \
  }                                                                                                                   \
  void nvshmem_put##BITS##_signal_nbi(void* dest, const void* source, size_t nelems, uint64_t* sig_addr,              \
                                      uint64_t signal, int sig_op, int pe) {                                          \
    heddle::put_signal(__func__, dest, source, bytes_of(nelems, (BITS) / 8), sig_addr, signal, sig_op, pe);           \
  }
HEDDLE_SIZES(HEDDLE_DEFINE_SIZED)

void nvshmem_putmem(void* dest, const void* source, size_t bytes, int pe) {
  heddle::put(__func__, dest, source, bytes, pe);
}
void nvshmem_putmem_nbi(void* dest, const void* source, size_t bytes, int pe) {
  heddle::put(__func__, dest, source, bytes, pe, true);
}
void nvshmem_getmem(void* dest, const void* source, size_t bytes, int pe) {
  heddle::get(__func__, dest, source, bytes, pe);
}
void nvshmem_getmem_nbi(void* dest, const void* source, size_t bytes, int pe) {
  heddle::get(__func__, dest, source, bytes, pe, true);
}
void nvshmem_putmem_signal(void* dest, const void* source, size_t bytes, uint64_t* sig_addr, uint64_t signal,
                           int sig_op, int pe) {
  heddle::put_signal(__func__, dest, source, bytes, sig_addr, signal, sig_op, pe);
}
void nvshmem_putmem_signal_nbi(void* dest, const void* source, size_t bytes, uint64_t* sig_addr, uint64_t signal,
                               int sig_op, int pe) {
  heddle::put_signal(__func__, dest, source, bytes, sig_addr, signal, sig_op, pe);
}

// ---- atomics

#define HEDDLE_DEFINE_EXTENDED(NAME, TYPE)                                                        \
  TYPE nvshmem_##NAME##_atomic_fetch(const TYPE* dest, int pe) {                                  \
    return heddle::atomic<AtomicOp::kFetch, true>(__func__, const_cast<TYPE*>(dest), {}, {}, pe); \
  }                                                                                               \
  void nvshmem_##NAME##_atomic_set(TYPE* dest, TYPE value, int pe) {                              \
    heddle::atomic<AtomicOp::kSet, false>(__func__, dest, carried(value), {}, pe);                \
  }                                                                                               \
  TYPE nvshmem_##NAME##_atomic_swap(TYPE* dest, TYPE value, int pe) {                             \
    return heddle::atomic<AtomicOp::kSwap, true>(__func__, dest, carried(value), {}, pe);         \
  }
HEDDLE_AMO_EXTENDED_TYPES(HEDDLE_DEFINE_EXTENDED)

#define HEDDLE_DEFINE_STANDARD(NAME, TYPE)                                                                  \
  void nvshmem_##NAME##_atomic_inc(TYPE* dest, int pe) {                                                    \
    heddle::atomic<AtomicOp::kAdd, false>(__func__, dest, one<TYPE>(), {}, pe);                             \
  }                                                                                                         \
  TYPE nvshmem_##NAME##_atomic_fetch_inc(TYPE* dest, int pe) {                                              \
    return heddle::atomic<AtomicOp::kAdd, true>(__func__, dest, one<TYPE>(), {}, pe);                       \
  }                                                                                                         \
  void nvshmem_##NAME##_atomic_add(TYPE* dest, TYPE value, int pe) {                                        \
    heddle::atomic<AtomicOp::kAdd, false>(__func__, dest, carried(value), {}, pe);                          \
  }                                                                                                         \
  TYPE nvshmem_##NAME##_atomic_fetch_add(TYPE* dest, TYPE value, int pe) {                                  \
    return heddle::atomic<AtomicOp::kAdd, true>(__func__, dest, carried(value), {}, pe);                    \
  }                                                                                                         \
  TYPE nvshmem_##NAME##_atomic_compare_swap(TYPE* dest, TYPE cond, TYPE value, int pe) {                    \
    return heddle::atomic<AtomicOp::kCompareSwap, true>(__func__, dest, carried(value), carried(cond), pe); \
  }
HEDDLE_AMO_STANDARD_TYPES(HEDDLE_DEFINE_STANDARD)

#define HEDDLE_DEFINE_BITWISE_OP(NAME, TYPE, OP, CODE)                                   \
  void nvshmem_##NAME##_atomic_##OP(TYPE* dest, TYPE value, int pe) {                    \
    heddle::atomic<AtomicOp::CODE, false>(__func__, dest, carried(value), {}, pe);       \
  }                                                                                      \
  TYPE nvshmem_##NAME##_atomic_fetch_##OP(TYPE* dest, TYPE value, int pe) {              \
    return heddle::atomic<AtomicOp::CODE, true>(__func__, dest, carried(value), {}, pe); \
  }
#define HEDDLE_DEFINE_BITWISE(NAME, TYPE)         \
  HEDDLE_DEFINE_BITWISE_OP(NAME, TYPE, and, kAnd) \
  HEDDLE_DEFINE_BITWISE_OP(NAME, TYPE, or, kOr)   \
  HEDDLE_DEFINE_BITWISE_OP(NAME, TYPE, xor, kXor)
HEDDLE_AMO_BITWISE_TYPES(HEDDLE_DEFINE_BITWISE)

#define HEDDLE_DEFINE_FLOAT(NAME, TYPE)                                                  \
  void nvshmemx_##NAME##_atomic_add(TYPE* dest, TYPE value, int pe) {                    \
    heddle::atomic<AtomicOp::kAdd, false>(__func__, dest, carried(value), {}, pe);       \
  }                                                                                      \
  TYPE nvshmemx_##NAME##_atomic_fetch_add(TYPE* dest, TYPE value, int pe) {              \
    return heddle::atomic<AtomicOp::kAdd, true>(__func__, dest, carried(value), {}, pe); \
  }
HEDDLE_AMO_FLOAT_TYPES(HEDDLE_DEFINE_FLOAT)

// ---- signals

void nvshmemx_signal_op(uint64_t* sig_addr, uint64_t signal, int sig_op, int pe) {
  World* const w = heddle::world();
  if (HEDDLE_UNLIKELY(w == nullptr)) return heddle::report_no_world(__func__);
  heddle::host::signal_op(*w, __func__, sig_addr, signal, sig_op, pe);
}

uint64_t nvshmem_signal_fetch(uint64_t* sig_addr) {
  World* const w = heddle::may_look(__func__, sig_addr, sizeof *sig_addr, NVSHMEM_CMP_EQ);
  if (w == nullptr) return 0;
  // acquire: programs poll with it, and then read what was put before the signal (OpenSHMEM 1.5, 9.8.3)
  const heddle::Look<uint64_t> look(*w, __func__, sig_addr, 1);
  return look.is_good() ? heddle::device::load_acquire(look.data()) : 0;
}

uint64_t nvshmem_signal_wait_until(uint64_t* sig_addr, int cmp, uint64_t cmp_val) {
  World* const w = heddle::may_look(__func__, sig_addr, sizeof *sig_addr, cmp);
  if (w == nullptr) return 0;
  heddle::Waiter pause(w->wait_context());
  heddle::Look<uint64_t> look(*w, __func__, sig_addr, 1);
  if (!look.is_good()) return 0;
  while (true) {
    // The value that compared true is returned, not a second look: the signal may have moved on.
    const uint64_t value = heddle::device::load_acquire(look.data());
    if (heddle::device::compare(value, cmp, cmp_val)) return value;
    if (pause() && look.refresh()) continue;
    heddle::report_given_up(*w, __func__, pause, sig_addr, look, 1, nullptr, cmp,
                            heddle::device::OneValue<uint64_t>{cmp_val});
    return value;
  }
}

int nvshmemx_putmem_signal_counted_nbi(void* dest, const void* source, size_t bytes, uint64_t* signal_addr, int pe) {
  World* const w = heddle::world();
  if (w == nullptr) return heddle::report_no_world(__func__), heddle::kNoWorldCode;
  const heddle::Status status = heddle::host::put_counted(*w, dest, source, bytes, signal_addr, pe);
  return HEDDLE_LIKELY(status.is_ok()) ? NVSHMEMX_SUCCESS : heddle::report(__func__, status).nvshmem_code();
}

uint64_t nvshmemx_signal_counted_load(const uint64_t* signal_addr) {
  World* const w = heddle::may_look(__func__, signal_addr, sizeof *signal_addr, NVSHMEM_CMP_EQ);
  if (w == nullptr) return 0;
  const heddle::Look<uint64_t> look(*w, __func__, signal_addr, 1);
  return look.is_good() ? heddle::device::load_relaxed(look.data()) : 0;  // relaxed: this call promises no order
}

void nvshmemx_signal_counted_wait_until(const uint64_t* signal_addr, uint64_t expected) {
  World* const w = heddle::may_look(__func__, signal_addr, sizeof *signal_addr, NVSHMEM_CMP_EQ);
  if (w == nullptr) return;
  heddle::Waiter pause(w->wait_context());
  heddle::Look<uint64_t> look(*w, __func__, signal_addr, 1);
  if (!look.is_good()) return;
  while (!heddle::device::counter_reached(heddle::device::load_acquire(look.data()), expected)) {
    if (pause() && look.refresh()) continue;
    return heddle::report_given_up(*w, __func__, pause, signal_addr, look, 1, nullptr, NVSHMEM_CMP_GE,
                                   heddle::device::OneValue<uint64_t>{expected});
  }
}

void nvshmemx_signal_counted_reset(uint64_t* signal_addr) {
  World* const w = heddle::may_look(__func__, signal_addr, sizeof *signal_addr, NVSHMEM_CMP_EQ);
  if (w == nullptr) return;
  if (HEDDLE_UNLIKELY(!w->has_host_memory())) {
    const uint64_t zero = 0;
    heddle::host::put_unmapped(*w, __func__, signal_addr, &zero, sizeof zero, w->my_pe());
    return heddle::fence_unmapped(__func__, w, true);
  }
  // relaxed: whoever may add again learns of the reset by a signal or barrier, which orders it
  heddle::device::store_relaxed(signal_addr, uint64_t{0});
}

// ---- order

void nvshmem_fence(void) {
  World* const w = heddle::world();
  if (HEDDLE_LIKELY(w != nullptr && w->view().direct != 0)) return heddle::device::fence_release();
  heddle::fence_unmapped(__func__, w, false);
}

void nvshmem_quiet(void) {
  World* const w = heddle::world();
  if (HEDDLE_LIKELY(w != nullptr && w->view().direct != 0)) return heddle::device::fence_system();
  heddle::fence_unmapped(__func__, w, true);
}

void nvshmemx_flush(void) {
  World* const w = heddle::world();
  // On mapped host memory every put has read its source when it returns. Elsewhere completion is what says so.
  if (HEDDLE_UNLIKELY(w == nullptr || !w->has_host_memory())) heddle::fence_unmapped(__func__, w, true);
}

// ---- wait and test

#define HEDDLE_DEFINE_WAIT(NAME, TYPE)                                                                                \
  void nvshmem_##NAME##_wait_until(TYPE* ivar, int cmp, TYPE cmp_value) {                                             \
    heddle::wait_until_all(__func__, ivar, 1, nullptr, cmp, one_value(cmp_value));                                    \
  }                                                                                                                   \
  void nvshmem_##NAME##_wait_until_all(TYPE* ivars, size_t nelems, const int* status, int cmp, TYPE cmp_value) {      \
    heddle::wait_until_all(__func__, ivars, nelems, status, cmp, one_value(cmp_value));                               \
  }                                                                                                                   \
  size_t nvshmem_##NAME##_wait_until_any(TYPE* ivars, size_t nelems, const int* status, int cmp, TYPE cmp_value) {    \
    return heddle::wait_until_any(__func__, ivars, nelems, status, cmp, one_value(cmp_value));                        \
  }                                                                                                                   \
  size_t nvshmem_##NAME##_wait_until_some(TYPE* ivars, size_t nelems, size_t* indices, const int* status, int cmp,    \
                                          TYPE cmp_value) {                                                           \
    return heddle::wait_until_some(__func__, ivars, nelems, indices, status, cmp, one_value(cmp_value));              \
  }                                                                                                                   \
  void nvshmem_##NAME##_wait_until_all_vector(TYPE* ivars, size_t nelems, const int* status, int cmp,                 \
                                              TYPE* cmp_values) {                                                     \
    heddle::wait_until_all(__func__, ivars, nelems, status, cmp, cmp_values);                                         \
  }                                                                                                                   \
  size_t nvshmem_##NAME##_wait_until_any_vector(TYPE* ivars, size_t nelems, const int* status, int cmp,               \
                                                TYPE* cmp_values) {                                                   \
    return heddle::wait_until_any(__func__, ivars, nelems, status, cmp, cmp_values);                                  \
  }                                                                                                                   \
  size_t nvshmem_##NAME##_wait_until_some_vector(TYPE* ivars, size_t nelems, size_t* indices, const int* status,      \
                                                 int cmp, TYPE* cmp_values) {                                         \
    return heddle::wait_until_some(__func__, ivars, nelems, indices, status, cmp, cmp_values);                        \
  }                                                                                                                   \
  int nvshmem_##NAME##_test(TYPE* ivar, int cmp, TYPE cmp_value) {                                                    \
    return heddle::test_all(__func__, ivar, 1, nullptr, cmp, one_value(cmp_value));                                   \
  }                                                                                                                   \
  int nvshmem_##NAME##_test_all(TYPE* ivars, size_t nelems, const int* status, int cmp, TYPE cmp_value) {             \
    return heddle::test_all(__func__, ivars, nelems, status, cmp, one_value(cmp_value));                              \
  }                                                                                                                   \
  size_t nvshmem_##NAME##_test_any(TYPE* ivars, size_t nelems, const int* status, int cmp, TYPE cmp_value) {          \
    return heddle::test_any(__func__, ivars, nelems, status, cmp, one_value(cmp_value));                              \
  }                                                                                                                   \
  size_t nvshmem_##NAME##_test_some(TYPE* ivars, size_t nelems, size_t* indices, const int* status, int cmp,          \
                                    TYPE cmp_value) {                                                                 \
    return heddle::test_some(__func__, ivars, nelems, indices, status, cmp, one_value(cmp_value));                    \
  }                                                                                                                   \
  int nvshmem_##NAME##_test_all_vector(TYPE* ivars, size_t nelems, const int* status, int cmp, TYPE* cmp_values) {    \
    return heddle::test_all(__func__, ivars, nelems, status, cmp, cmp_values);                                        \
  }                                                                                                                   \
  size_t nvshmem_##NAME##_test_any_vector(TYPE* ivars, size_t nelems, const int* status, int cmp, TYPE* cmp_values) { \
    return heddle::test_any(__func__, ivars, nelems, status, cmp, cmp_values);                                        \
  }                                                                                                                   \
  size_t nvshmem_##NAME##_test_some_vector(TYPE* ivars, size_t nelems, size_t* indices, const int* status, int cmp,   \
                                           TYPE* cmp_values) {                                                        \
    return heddle::test_some(__func__, ivars, nelems, indices, status, cmp, cmp_values);                              \
  }
HEDDLE_WAIT_TYPES(HEDDLE_DEFINE_WAIT)
