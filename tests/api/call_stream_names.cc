// Calls every on_stream name and checks what it did. With a heap in host memory and no CUDA driver, which is where this
// runs, the calls do their work at once. Any number of PEs.
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "../multi/check.h"

namespace {

int me, n, right, left;
uint64_t* signal_word;  // symmetric
constexpr int kCount = 12;

/// A value of any type, told apart by its bytes.
template <class T>
T value(int number) {
  T result;
  std::memset(static_cast<void*>(&result), number & 0x3f, sizeof result);
  return result;
}

template <class T>
bool holds(const T* array, int step, int count, int number) {
  const T expected = value<T>(number);
  for (int i = 0; i < count; ++i) {
    if (std::memcmp(array + i * step, &expected, sizeof expected) != 0) return false;
  }
  return true;
}

template <class T>
struct Calls {
  void (*put[2])(T*, const T*, size_t, int, cudaStream_t);
  void (*get[2])(T*, const T*, size_t, int, cudaStream_t);
  void (*iput)(T*, const T*, ptrdiff_t, ptrdiff_t, size_t, int, cudaStream_t);
  void (*iget)(T*, const T*, ptrdiff_t, ptrdiff_t, size_t, int, cudaStream_t);
  void (*put_signal[2])(T*, const T*, size_t, uint64_t*, uint64_t, int, int, cudaStream_t);
};

void meet() { nvshmemx_barrier_all_on_stream(nullptr); }

template <class T>
void test(const std::string& name, const Calls<T>& calls) {
  T* const there = static_cast<T*>(nvshmem_calloc(2 * kCount, sizeof(T)));
  if (!check::that(there != nullptr, name + ": calloc")) return;
  const std::vector<T> mine(kCount, value<T>(me + 1));
  std::vector<T> got(2 * kCount, value<T>(0));
  for (int nbi = 0; nbi < 2; ++nbi) {
    calls.put[nbi](there + nbi, mine.data(), kCount - 2, right, nullptr);
    nvshmemx_quiet_on_stream(nullptr);
    meet();
    check::that(holds(there + nbi, 1, kCount - 2, left + 1), name + ": put");
    calls.get[nbi](got.data(), there + nbi, kCount - 2, right, nullptr);
    nvshmemx_quiet_on_stream(nullptr);
    check::that(holds(got.data(), 1, kCount - 2, me + 1) && holds(got.data() + kCount - 2, 1, 2, 0), name + ": get");
    meet();
  }
  std::memset(static_cast<void*>(there), 0, 2 * kCount * sizeof(T));
  meet();
  calls.iput(there, mine.data(), 3, 2, 5, right, nullptr);
  meet();
  check::that(holds(there, 3, 5, left + 1) && holds(there + 1, 3, 5, 0), name + ": iput");
  got.assign(2 * kCount, value<T>(0));
  calls.iget(got.data(), there, 2, 3, 5, right, nullptr);
  check::that(holds(got.data(), 2, 5, me + 1) && holds(got.data() + 1, 2, 5, 0), name + ": iget");
  meet();
  for (int nbi = 0; nbi < 2; ++nbi) {
    *signal_word = 0;
    meet();
    calls.put_signal[nbi](there, mine.data(), kCount, signal_word, 5, NVSHMEM_SIGNAL_SET, right, nullptr);
    nvshmemx_signal_wait_until_on_stream(signal_word, NVSHMEM_CMP_EQ, 5, nullptr);
    check::that(holds(there, 1, kCount, left + 1), name + ": put_signal");
    meet();
  }
  nvshmem_free(there);
}

template <class T>
void test_element(const std::string& name, void (*p)(T*, T, int, cudaStream_t), T (*g)(const T*, int, cudaStream_t)) {
  T* const there = static_cast<T*>(nvshmem_calloc(1, sizeof(T)));
  p(there, value<T>(me + 3), right, nullptr);
  meet();
  check::that(holds(there, 1, 1, left + 3), name + ": p");
  const T seen = g(there, right, nullptr);
  check::that(holds(&seen, 1, 1, me + 3), name + ": g");
  meet();
  nvshmem_free(there);
}

template <class T>
void test_wait(const std::string& name, void (*wait)(T*, int, T, cudaStream_t),
               void (*all)(T*, size_t, const int*, int, T, cudaStream_t),
               void (*vector)(T*, size_t, const int*, int, T*, cudaStream_t)) {
  T* const there = static_cast<T*>(nvshmem_calloc(4, sizeof(T)));
  const T values[4] = {7, 8, 9, 1};
  nvshmem_putmem(there, values, sizeof values, right);
  wait(there, NVSHMEM_CMP_EQ, T{7}, nullptr);
  const int status[4] = {0, 0, 0, 1};
  all(there, 4, status, NVSHMEM_CMP_GE, T{7}, nullptr);
  check::that(there[0] == 7 && there[1] == 8 && there[2] == 9, name + ": wait_until_all");
  T references[4] = {7, 8, 9, 1};
  vector(there, 4, nullptr, NVSHMEM_CMP_EQ, references, nullptr);
  check::that(there[3] == 1, name + ": wait_until_all_vector");
  meet();
  nvshmem_free(there);
}

/// The calls without types, as those of bytes.
using Byte = unsigned char;

void test_rest() {
  *signal_word = 0;
  meet();
  nvshmemx_signal_op_on_stream(signal_word, 4, NVSHMEM_SIGNAL_ADD, right, nullptr);
  nvshmemx_signal_op_on_stream(signal_word, 5, NVSHMEM_SIGNAL_ADD, right, nullptr);
  nvshmemx_signal_wait_until_on_stream(signal_word, NVSHMEM_CMP_EQ, 9, nullptr);
  check::that(*signal_word == 9, "signal_op");
  nvshmemx_flush_on_stream(nullptr);
  nvshmemx_sync_all_on_stream(nullptr);
  check::that(nvshmemx_barrier_on_stream(NVSHMEM_TEAM_WORLD, nullptr) == 0, "barrier");
  check::that(nvshmemx_team_sync_on_stream(NVSHMEM_TEAM_WORLD, nullptr) == 0, "team_sync");
  check::that(nvshmemx_team_sync_on_stream(NVSHMEM_TEAM_MC_SHARED, nullptr) == 0, "team_sync of one PE");
}

/// Without a heap in GPU memory there is no state for modules: refused with the reason, after the quiet part.
void test_modules() {
  check::that(nvshmemx_cumodule_init(nullptr) != 0, "cumodule_init");
  check::that(nvshmemx_cumodule_finalize(nullptr) != 0, "cumodule_finalize");
  check::that(nvshmemx_culibrary_init(nullptr) != 0, "culibrary_init");
  check::that(nvshmemx_culibrary_finalize(nullptr) != 0, "culibrary_finalize");
}

}  // namespace

#define TEST_TYPE(NAME, TYPE)                                                                                \
  test<TYPE>(#NAME, {{nvshmemx_##NAME##_put_on_stream, nvshmemx_##NAME##_put_nbi_on_stream},                 \
                     {nvshmemx_##NAME##_get_on_stream, nvshmemx_##NAME##_get_nbi_on_stream},                 \
                     nvshmemx_##NAME##_iput_on_stream,                                                       \
                     nvshmemx_##NAME##_iget_on_stream,                                                       \
                     {nvshmemx_##NAME##_put_signal_on_stream, nvshmemx_##NAME##_put_signal_nbi_on_stream}}); \
  test_element<TYPE>(#NAME, nvshmemx_##NAME##_p_on_stream, nvshmemx_##NAME##_g_on_stream);
#define TEST_WAIT(NAME, TYPE)                                                                                \
  test_wait<TYPE>(#NAME, nvshmemx_##NAME##_wait_until_on_stream, nvshmemx_##NAME##_wait_until_all_on_stream, \
                  nvshmemx_##NAME##_wait_until_all_vector_on_stream);
#define TEST_SIZE(BITS)                                                                                              \
  {                                                                                                                  \
    struct Element {                                                                                                 \
      Byte bytes[(BITS) / 8];                                                                                        \
    };                                                                                                               \
    test<Element>(                                                                                                   \
        #BITS, {{[](Element* to, const Element* from, size_t count, int pe, cudaStream_t stream) {                   \
                   nvshmemx_put##BITS##_on_stream(to, from, count, pe, stream);                                      \
                 },                                                                                                  \
                 [](Element* to, const Element* from, size_t count, int pe, cudaStream_t stream) {                   \
                   nvshmemx_put##BITS##_nbi_on_stream(to, from, count, pe, stream);                                  \
                 }},                                                                                                 \
                {[](Element* to, const Element* from, size_t count, int pe, cudaStream_t stream) {                   \
                   nvshmemx_get##BITS##_on_stream(to, from, count, pe, stream);                                      \
                 },                                                                                                  \
                 [](Element* to, const Element* from, size_t count, int pe, cudaStream_t stream) {                   \
                   nvshmemx_get##BITS##_nbi_on_stream(to, from, count, pe, stream);                                  \
                 }},                                                                                                 \
                [](Element* to, const Element* from, ptrdiff_t dst, ptrdiff_t sst, size_t count, int pe,             \
                   cudaStream_t stream) { nvshmemx_iput##BITS##_on_stream(to, from, dst, sst, count, pe, stream); }, \
                [](Element* to, const Element* from, ptrdiff_t dst, ptrdiff_t sst, size_t count, int pe,             \
                   cudaStream_t stream) { nvshmemx_iget##BITS##_on_stream(to, from, dst, sst, count, pe, stream); }, \
                {[](Element* to, const Element* from, size_t count, uint64_t* sig, uint64_t signal, int op, int pe,  \
                    cudaStream_t stream) {                                                                           \
                   nvshmemx_put##BITS##_signal_on_stream(to, from, count, sig, signal, op, pe, stream);              \
                 },                                                                                                  \
                 [](Element* to, const Element* from, size_t count, uint64_t* sig, uint64_t signal, int op, int pe,  \
                    cudaStream_t stream) {                                                                           \
                   nvshmemx_put##BITS##_signal_nbi_on_stream(to, from, count, sig, signal, op, pe, stream);          \
                 }}});                                                                                               \
  }

int main(int argc, char** argv) {
  if (dlopen("libcuda.so.1", RTLD_NOW) != nullptr) {
    std::puts("skipped, because this machine has a CUDA driver: its streams have work of their own");
    return 77;
  }
  nvshmem_init();
  me = nvshmem_my_pe();
  n = nvshmem_n_pes();
  right = (me + 1) % n;
  left = (me + n - 1) % n;
  signal_word = static_cast<uint64_t*>(nvshmem_calloc(1, sizeof(uint64_t)));
  HEDDLE_RMA_TYPES(TEST_TYPE)
  HEDDLE_WAIT_TYPES(TEST_WAIT)
  HEDDLE_SIZES(TEST_SIZE)
  test<Byte>(
      "mem",
      {{[](Byte* to, const Byte* from, size_t bytes, int pe, cudaStream_t stream) {
          nvshmemx_putmem_on_stream(to, from, bytes, pe, stream);
        },
        [](Byte* to, const Byte* from, size_t bytes, int pe, cudaStream_t stream) {
          nvshmemx_putmem_nbi_on_stream(to, from, bytes, pe, stream);
        }},
       {[](Byte* to, const Byte* from, size_t bytes, int pe, cudaStream_t stream) {
          nvshmemx_getmem_on_stream(to, from, bytes, pe, stream);
        },
        [](Byte* to, const Byte* from, size_t bytes, int pe, cudaStream_t stream) {
          nvshmemx_getmem_nbi_on_stream(to, from, bytes, pe, stream);
        }},
       nvshmemx_uchar_iput_on_stream,
       nvshmemx_uchar_iget_on_stream,
       {[](Byte* to, const Byte* from, size_t bytes, uint64_t* sig, uint64_t signal, int op, int pe,
           cudaStream_t stream) { nvshmemx_putmem_signal_on_stream(to, from, bytes, sig, signal, op, pe, stream); },
        [](Byte* to, const Byte* from, size_t bytes, uint64_t* sig, uint64_t signal, int op, int pe,
           cudaStream_t stream) {
          nvshmemx_putmem_signal_nbi_on_stream(to, from, bytes, sig, signal, op, pe, stream);
        }}});
  test_rest();
  if (argc > 1 && std::string(argv[1]) == "modules") test_modules();
  meet();
  nvshmem_free(signal_word);
  return check::finish("call_stream_names");
}
