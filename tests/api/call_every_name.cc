// Calls every host name of the API and checks what it did, on both sides. Any number of PEs.
//
//   call_every_name             all of it; PE 0 prints "N passed, N failed"
//   call_every_name exit CODE   ends the job with nvshmem_global_exit(CODE) from the last PE
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "../multi/check.h"

namespace {

int me, n, right, left;

// ---- values that every type holds exactly

/// The bits of a half (5 exponent bits) or bfloat16 (8) that holds `number`, 0 to 255.
unsigned short small_float_bits(int number, int exponent_bits) {
  if (number == 0) return 0;
  int exponent = 0;
  while (number >> (exponent + 1) != 0) ++exponent;
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  return static_cast<unsigned short>((exponent + bias) << fraction_bits |
                                     (((number << fraction_bits) >> exponent) & ((1 << fraction_bits) - 1)));
}

template <class T>
T value(int number) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(number & 0x7f);
  } else if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>) {
    const unsigned short bits = small_float_bits(number & 0x7f, std::is_same_v<T, __half> ? 5 : 8);
    T result;
    std::memcpy(static_cast<void*>(&result), &bits, sizeof bits);
    return result;
  } else {
    T result;
    for (size_t i = 0; i < sizeof result; ++i) result.bytes[i] = static_cast<unsigned char>(number + 3 * i);
    return result;
  }
}

template <class T>
bool same(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

/// An element of a sized or mem call.
template <int kBytes>
struct Blob {
  unsigned char bytes[kBytes];
};

// ---- put, get, p, g, strided, put_signal

template <class T>
struct RmaCalls {
  void (*put[2])(T*, const T*, size_t, int);  // blocking, nbi
  void (*get[2])(T*, const T*, size_t, int);
  void (*iput)(T*, const T*, ptrdiff_t, ptrdiff_t, size_t, int);
  void (*iget)(T*, const T*, ptrdiff_t, ptrdiff_t, size_t, int);
  void (*p)(T*, T, int);
  T (*g)(const T*, int);
  void (*put_signal[2])(T*, const T*, size_t, uint64_t*, uint64_t, int, int);
};

constexpr int kCount = 29;
uint64_t* signal_word;  // symmetric

template <class T>
void fill(T* array, int first, int step = 1) {
  for (int i = 0; i < kCount; ++i) array[i] = value<T>(first + step * i);
}

/// Whether array[i] is value(first + i) inside [from, to) and value(outside) elsewhere.
template <class T>
bool holds(const T* array, int from, int to, int first, int outside) {
  for (int i = 0; i < kCount; ++i) {
    if (!same(array[i], value<T>(i >= from && i < to ? first + i : outside))) return false;
  }
  return true;
}

template <class T>
void test_rma(const std::string& name, const RmaCalls<T>& calls) {
  auto* there = static_cast<T*>(nvshmem_malloc(kCount * sizeof(T)));
  if (!check::that(there != nullptr, name + " malloc")) return;
  std::vector<T> local(kCount);

  for (const auto put : calls.put) {
    fill(there, 1, 0);
    nvshmem_barrier_all();
    fill(local.data(), 5 + me);
    put(there + 2, local.data() + 2, kCount - 5, right);
    put(there, local.data(), 0, right);
    fill(local.data(), 99, 0);  // the source may be reused at once
    nvshmem_barrier_all();
    check::that(holds(there, 2, kCount - 3, 5 + left, 1), name + " put");
    nvshmem_barrier_all();
  }
  for (const auto get : calls.get) {
    fill(there, 7 + me);
    fill(local.data(), 1, 0);
    nvshmem_barrier_all();
    get(local.data() + 1, there + 1, kCount - 2, left);
    nvshmem_quiet();
    check::that(holds(local.data(), 1, kCount - 1, 7 + left, 1), name + " get");
    nvshmem_barrier_all();
  }
  if (calls.iput != nullptr) {
    constexpr int kStrided = kCount / 3;
    fill(there, 1, 0);
    nvshmem_barrier_all();
    fill(local.data(), 3 + me);
    calls.iput(there, local.data(), 3, 2, kStrided, right);
    nvshmem_barrier_all();
    bool good = true;
    for (int i = 0; i < kCount; ++i) {
      const bool written = i % 3 == 0 && i / 3 < kStrided;
      good = good && same(there[i], value<T>(written ? 3 + left + 2 * (i / 3) : 1));
    }
    check::that(good, name + " iput");
    nvshmem_barrier_all();
    fill(there, 3 + me);
    fill(local.data(), 1, 0);
    nvshmem_barrier_all();
    calls.iget(local.data(), there, 2, 3, kStrided, left);
    good = true;
    for (int i = 0; i < kCount; ++i) {
      const bool written = i % 2 == 0 && i / 2 < kStrided;
      good = good && same(local[static_cast<size_t>(i)], value<T>(written ? 3 + left + 3 * (i / 2) : 1));
    }
    check::that(good, name + " iget");
    nvshmem_barrier_all();
  }
  if (calls.p != nullptr) {
    fill(there, 1, 0);
    nvshmem_barrier_all();
    for (int i = 4; i < 12; ++i) calls.p(there + i, value<T>(9 + me + i), right);
    nvshmem_barrier_all();
    check::that(holds(there, 4, 12, 9 + left, 1), name + " p");
    check::that(same(calls.g(there + 5, right), value<T>(9 + me + 5)), name + " g");
    nvshmem_barrier_all();
  }
  for (int nbi = 0; nbi < 2; ++nbi) {
    fill(there, 1, 0);
    *signal_word = 100;
    nvshmem_barrier_all();
    fill(local.data(), 5 + me);
    const int op = nbi == 0 ? NVSHMEM_SIGNAL_SET : NVSHMEM_SIGNAL_ADD;
    calls.put_signal[nbi](there + 2, local.data() + 2, kCount - 5, signal_word, 7, op, right);
    const uint64_t expected = nbi == 0 ? 7 : 107;
    const uint64_t seen = nvshmem_signal_wait_until(signal_word, NVSHMEM_CMP_EQ, expected);
    // No barrier: whoever sees the signal sees the data.
    check::that(seen == expected && holds(there, 2, kCount - 3, 5 + left, 1), name + " put_signal");
    nvshmem_barrier_all();
  }
  nvshmem_free(there);
}

#define TYPED(NAME, TYPE)                                                  \
  test_rma<TYPE>(#NAME, {{nvshmem_##NAME##_put, nvshmem_##NAME##_put_nbi}, \
                         {nvshmem_##NAME##_get, nvshmem_##NAME##_get_nbi}, \
                         nvshmem_##NAME##_iput,                            \
                         nvshmem_##NAME##_iget,                            \
                         nvshmem_##NAME##_p,                               \
                         nvshmem_##NAME##_g,                               \
                         {nvshmem_##NAME##_put_signal, nvshmem_##NAME##_put_signal_nbi}});

#define FORWARD_COPY(FUNCTION, SCALE) \
  [](T* dest, const T* source, size_t count, int pe) { FUNCTION(dest, source, count*(SCALE), pe); }
#define FORWARD_STRIDED(FUNCTION)                                                    \
  [](T* dest, const T* source, ptrdiff_t dst, ptrdiff_t sst, size_t count, int pe) { \
    FUNCTION(dest, source, dst, sst, count, pe);                                     \
  }
#define FORWARD_SIGNAL(FUNCTION, SCALE)                                                         \
  [](T* dest, const T* source, size_t count, uint64_t* word, uint64_t signal, int op, int pe) { \
    FUNCTION(dest, source, count*(SCALE), word, signal, op, pe);                                \
  }
#define SIZED(BITS)                                                                                                    \
  {                                                                                                                    \
    using T = Blob<(BITS) / 8>;                                                                                        \
    test_rma<T>(#BITS,                                                                                                 \
                {{FORWARD_COPY(nvshmem_put##BITS, 1), FORWARD_COPY(nvshmem_put##BITS##_nbi, 1)},                       \
                 {FORWARD_COPY(nvshmem_get##BITS, 1), FORWARD_COPY(nvshmem_get##BITS##_nbi, 1)},                       \
                 FORWARD_STRIDED(nvshmem_iput##BITS),                                                                  \
                 FORWARD_STRIDED(nvshmem_iget##BITS),                                                                  \
                 nullptr,                                                                                              \
                 nullptr,                                                                                              \
                 {FORWARD_SIGNAL(nvshmem_put##BITS##_signal, 1), FORWARD_SIGNAL(nvshmem_put##BITS##_signal_nbi, 1)}}); \
  }

void test_all_rma() {
  HEDDLE_RMA_TYPES(TYPED)
  HEDDLE_SIZES(SIZED)
  using T = Blob<7>;
  test_rma<T>("mem", {{FORWARD_COPY(nvshmem_putmem, 7), FORWARD_COPY(nvshmem_putmem_nbi, 7)},
                      {FORWARD_COPY(nvshmem_getmem, 7), FORWARD_COPY(nvshmem_getmem_nbi, 7)},
                      nullptr,
                      nullptr,
                      nullptr,
                      nullptr,
                      {FORWARD_SIGNAL(nvshmem_putmem_signal, 7), FORWARD_SIGNAL(nvshmem_putmem_signal_nbi, 7)}});
}

// ---- atomics

/// A value that needs all bits of an integer type.
template <class T>
constexpr T wide(int number) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>((std::numeric_limits<T>::max() >> 2) + static_cast<T>(number));
  } else {
    return static_cast<T>(number) + static_cast<T>(0.25);
  }
}
template <>
__half wide<__half>(int number) {
  return value<__half>(number);
}

template <class T>
void test_extended(const std::string& name, T (*fetch)(const T*, int), void (*set)(T*, T, int), T (*swap)(T*, T, int)) {
  auto* object = static_cast<T*>(nvshmem_calloc(1, sizeof(T)));
  if (!check::that(object != nullptr, name + " calloc")) return;
  check::that(same(fetch(object, right), value<T>(0)), name + " fetch of zeroed memory");
  set(object, wide<T>(3 + me), right);
  check::that(same(fetch(object, right), wide<T>(3 + me)), name + " set, fetch");
  check::that(same(swap(object, wide<T>(9 + me), right), wide<T>(3 + me)), name + " swap gives the old value");
  nvshmem_barrier_all();
  check::that(same(*object, wide<T>(9 + left)), name + " swap stores the new value");
  nvshmem_barrier_all();
  nvshmem_free(object);
}

template <class T>
struct StandardCalls {
  void (*inc)(T*, int);
  T (*fetch_inc)(T*, int);
  void (*add)(T*, T, int);
  T (*fetch_add)(T*, T, int);
  T (*compare_swap)(T*, T, T, int);
};

constexpr int kRounds = 20;

template <class T>
void test_standard(const std::string& name, const StandardCalls<T>& calls) {
  using Unsigned = std::make_unsigned_t<T>;
  const auto plus = [](T a, T b) { return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)); };
  auto* objects = static_cast<T*>(nvshmem_calloc(2, sizeof(T)));
  auto* marks = static_cast<int*>(nvshmem_calloc(static_cast<size_t>(n * kRounds), sizeof(int)));
  if (!check::that(objects != nullptr && marks != nullptr, name + " calloc")) return;

  // Alone at the right neighbour's object: values that use all bits, and a sum that wraps.
  const T big = wide<T>(me), most = std::numeric_limits<T>::max();
  calls.add(objects, big, right);
  check::that(calls.fetch_add(objects, most, right) == big, name + " add, fetch_add");
  T now = plus(big, most);
  check::that(calls.fetch_inc(objects, right) == now, name + " fetch_add wraps");
  calls.inc(objects, right);
  now = plus(now, 2);
  check::that(calls.compare_swap(objects, plus(now, 1), 5, right) == now, name + " compare_swap without a match");
  check::that(calls.compare_swap(objects, now, big, right) == now, name + " compare_swap with a match");
  nvshmem_barrier_all();
  check::that(objects[0] == wide<T>(left), name + " compare_swap stores");

  // All at PE 0's: every old value comes once.
  for (int i = 0; i < kRounds; ++i) {
    const T old = calls.fetch_inc(objects + 1, 0);
    if (check::that(old >= 0 && old < static_cast<T>(n * kRounds), name + " fetch_inc in range")) {
      nvshmem_int_atomic_inc(marks + old, 0);
    }
  }
  nvshmem_barrier_all();
  if (me == 0) {
    bool once = true;
    for (int i = 0; i < n * kRounds; ++i) once = once && marks[i] == 1;
    check::that(once, name + " fetch_inc gives every value once");
  }
  nvshmem_barrier_all();
  for (int i = 0; i < kRounds; ++i) calls.add(objects + 1, 3, 0);
  nvshmem_barrier_all();
  if (me == 0) check::that(objects[1] == static_cast<T>(4 * n * kRounds), name + " add by all");
  nvshmem_barrier_all();
  nvshmem_free(marks);
  nvshmem_free(objects);
}

template <class T>
struct BitwiseCalls {
  void (*plain[3])(T*, T, int);  // and, or, xor
  T (*fetching[3])(T*, T, int);
};

template <class T>
void test_bitwise(const std::string& name, const BitwiseCalls<T>& calls) {
  auto* object = static_cast<T*>(nvshmem_malloc(sizeof(T)));
  if (!check::that(object != nullptr, name + " malloc")) return;
  const auto compute = [](int op, T a, T b) { return op == 0 ? a & b : op == 1 ? a | b : a ^ b; };
  const T top = static_cast<T>(T{1} << (8 * sizeof(T) - 2));
  T now = static_cast<T>(top | 0x5a);
  *object = now;
  nvshmem_barrier_all();
  for (int op : {1, 0, 2}) {
    const T operand = static_cast<T>(top | (0x33 << op));
    calls.plain[op](object, operand, right);
    now = compute(op, now, operand);
    const T other = static_cast<T>(top | (0x66 << op));
    check::that(calls.fetching[op](object, other, right) == now, name + " bitwise " + std::to_string(op));
    now = compute(op, now, other);
  }
  nvshmem_barrier_all();
  check::that(*object == now, name + " bitwise result");
  nvshmem_barrier_all();
  // Every PE its own bit of PE 0's word.
  *object = 0;
  nvshmem_barrier_all();
  calls.plain[1](object, static_cast<T>(T{1} << (me % 30)), 0);
  nvshmem_barrier_all();
  if (me == 0 && n < 30) check::that(*object == static_cast<T>((T{1} << n) - 1), name + " or by all");
  nvshmem_barrier_all();
  nvshmem_free(object);
}

template <class T>
void test_float(const std::string& name, void (*add)(T*, T, int), T (*fetch_add)(T*, T, int)) {
  auto* objects = static_cast<T*>(nvshmem_calloc(2, sizeof(T)));
  if (!check::that(objects != nullptr, name + " calloc")) return;
  add(objects, value<T>(5 + me), right);
  check::that(same(fetch_add(objects, value<T>(4), right), value<T>(5 + me)), name + " add, fetch_add");
  for (int i = 0; i < 4; ++i) add(objects + 1, value<T>(1), 0);
  nvshmem_barrier_all();
  check::that(same(objects[0], value<T>(9 + left)), name + " fetch_add adds");
  if (me == 0) check::that(same(objects[1], value<T>(4 * n)), name + " add by all");
  nvshmem_barrier_all();
  nvshmem_free(objects);
}

#define EXTENDED(NAME, TYPE) \
  test_extended<TYPE>(#NAME, nvshmem_##NAME##_atomic_fetch, nvshmem_##NAME##_atomic_set, nvshmem_##NAME##_atomic_swap);
#define STANDARD(NAME, TYPE)                                                                                        \
  test_standard<TYPE>(#NAME,                                                                                        \
                      {nvshmem_##NAME##_atomic_inc, nvshmem_##NAME##_atomic_fetch_inc, nvshmem_##NAME##_atomic_add, \
                       nvshmem_##NAME##_atomic_fetch_add, nvshmem_##NAME##_atomic_compare_swap});
#define BITWISE(NAME, TYPE)                                                                                          \
  test_bitwise<TYPE>(#NAME, {{nvshmem_##NAME##_atomic_and, nvshmem_##NAME##_atomic_or, nvshmem_##NAME##_atomic_xor}, \
                             {nvshmem_##NAME##_atomic_fetch_and, nvshmem_##NAME##_atomic_fetch_or,                   \
                              nvshmem_##NAME##_atomic_fetch_xor}});
#define FLOAT(NAME, TYPE) test_float<TYPE>(#NAME, nvshmemx_##NAME##_atomic_add, nvshmemx_##NAME##_atomic_fetch_add);

void test_all_atomics() {
  HEDDLE_AMO_EXTENDED_TYPES(EXTENDED)
  HEDDLE_AMO_STANDARD_TYPES(STANDARD)
  HEDDLE_AMO_BITWISE_TYPES(BITWISE)
  HEDDLE_AMO_FLOAT_TYPES(FLOAT)
}

}  // namespace

void test_waits();         // call_waits.cc
void test_the_rest();      // call_rest.cc: memory, signals, order, teams, ...
void test_second_world();  // call_rest.cc: inits are counted; leave, and join again by a unique id

int main(int argc, char** argv) {
  nvshmem_init();
  if (nvshmemx_init_status() != NVSHMEM_STATUS_IS_INITIALIZED) {
    std::fprintf(stderr, "nvshmem_init failed: %s\n", heddle_last_error());
    return 1;
  }
  me = nvshmem_my_pe();
  n = nvshmem_n_pes();
  right = (me + 1) % n;
  left = (me + n - 1) % n;
  if (argc == 3 && std::strcmp(argv[1], "exit") == 0) {
    nvshmem_barrier_all();
    if (me == n - 1) {
      std::printf("leaving without a newline");  // must be flushed
      nvshmem_global_exit(std::atoi(argv[2]));
    }
    nvshmem_barrier_all();  // the others end in here
    nvshmem_barrier_all();
    return 99;
  }
  signal_word = static_cast<uint64_t*>(nvshmem_calloc(1, sizeof(uint64_t)));
  if (check::that(signal_word != nullptr, "calloc of a signal")) {
    test_all_rma();
    test_all_atomics();
    test_waits();
    test_the_rest();
    nvshmem_free(signal_word);
    test_second_world();
  }
  return check::finish("call_every_name");
}
