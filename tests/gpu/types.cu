// Every typed and sized call of kernels, by thread, warp and block, and every atomic, against models on the host.
#include <limits>

#include "gpu.cuh"

namespace {

// ---- put, get, iput, iget, p, g and put_signal of each type and size. One block of 64 threads fills a box at the
// right PE, zone by zone, and a box of its own by gets.

constexpr int kZone = 64, kZones = 10;           // elements
constexpr int kFew = 5, kSome = 33, kMost = 61;  // moved by thread, warp and block

/// Where element i of a zone comes from: its source index, or -1 for none.
int source_of(int zone, int i) {
  switch (zone) {
    case 0:
    case 7:
      return i < kFew ? i : -1;
    case 1:
      return i < kSome ? i + 1 : -1;
    case 2:
    case 8:
      return i < kMost ? i + 2 : -1;
    case 3:
      return i % 3 == 0 && i / 3 < kFew ? 2 * (i / 3) : -1;
    case 4:
      return i % 2 == 0 && i / 2 < 17 ? 3 * (i / 2) : -1;
    case 5:
      return i % 3 == 0 && i / 3 < 20 ? i / 3 : -1;
    case 6:
      return i == 0 ? 9 : -1;
    default:
      return i < kSome ? i : -1;
  }
}

#define TYPED_KERNELS(NAME, TYPE)                                                                                    \
  __global__ void put_##NAME(TYPE* box, const TYPE* source, uint64_t* signals, int pe) {                             \
    const int rank = static_cast<int>(threadIdx.x);                                                                  \
    if (rank == 0) {                                                                                                 \
      nvshmem_##NAME##_put(box, source, kFew, pe);                                                                   \
      nvshmem_##NAME##_iput(box + 3 * kZone, source, 3, 2, kFew, pe);                                                \
      nvshmem_##NAME##_p(box + 6 * kZone, source[9], pe);                                                            \
      nvshmem_##NAME##_put_signal(box + 7 * kZone, source, kFew, signals, 3, NVSHMEM_SIGNAL_SET, pe);                \
    }                                                                                                                \
    if (rank < 32) {                                                                                                 \
      nvshmemx_##NAME##_put_nbi_warp(box + kZone, source + 1, kSome, pe);                                            \
      nvshmemx_##NAME##_iput_warp(box + 4 * kZone, source, 2, 3, 17, pe);                                            \
      nvshmemx_##NAME##_put_signal_nbi_warp(box + 9 * kZone, source, kSome, signals + 1, 4, NVSHMEM_SIGNAL_ADD, pe); \
    }                                                                                                                \
    nvshmemx_##NAME##_put_block(box + 2 * kZone, source + 2, kMost, pe);                                             \
    nvshmemx_##NAME##_iput_block(box + 5 * kZone, source, 3, 1, 20, pe);                                             \
    nvshmemx_##NAME##_put_signal_block(box + 8 * kZone, source + 2, kMost, signals + 2, 5, NVSHMEM_SIGNAL_ADD, pe);  \
  }                                                                                                                  \
  __global__ void get_##NAME(TYPE* box, const TYPE* source, int pe) {                                                \
    const int rank = static_cast<int>(threadIdx.x);                                                                  \
    if (rank == 0) {                                                                                                 \
      nvshmem_##NAME##_get(box, source, kFew, pe);                                                                   \
      nvshmem_##NAME##_iget(box + 3 * kZone, source, 3, 2, kFew, pe);                                                \
      box[6 * kZone] = nvshmem_##NAME##_g(source + 9, pe);                                                           \
      nvshmem_##NAME##_get_nbi(box + 7 * kZone, source, kFew, pe);                                                   \
    }                                                                                                                \
    if (rank < 32) {                                                                                                 \
      nvshmemx_##NAME##_get_nbi_warp(box + kZone, source + 1, kSome, pe);                                            \
      nvshmemx_##NAME##_iget_warp(box + 4 * kZone, source, 2, 3, 17, pe);                                            \
      nvshmemx_##NAME##_get_warp(box + 9 * kZone, source, kSome, pe);                                                \
    }                                                                                                                \
    nvshmemx_##NAME##_get_block(box + 2 * kZone, source + 2, kMost, pe);                                             \
    nvshmemx_##NAME##_iget_block(box + 5 * kZone, source, 3, 1, 20, pe);                                             \
    nvshmemx_##NAME##_get_nbi_block(box + 8 * kZone, source + 2, kMost, pe);                                         \
    nvshmem_quiet();                                                                                                 \
  }
HEDDLE_RMA_TYPES(TYPED_KERNELS)

#define AT(ADDRESS, INDEX) (static_cast<char*>(ADDRESS) + (INDEX)*kBytes)
#define SIZED_KERNELS(BITS)                                                                                            \
  __global__ void put_sized_##BITS(void* box, const void* source, uint64_t* signals, int pe) {                         \
    constexpr int kBytes = BITS / 8;                                                                                   \
    const int rank = static_cast<int>(threadIdx.x);                                                                    \
    const char* const from = static_cast<const char*>(source);                                                         \
    if (rank == 0) {                                                                                                   \
      nvshmem_put##BITS(box, source, kFew, pe);                                                                        \
      nvshmem_iput##BITS(AT(box, 3 * kZone), source, 3, 2, kFew, pe);                                                  \
      nvshmem_put##BITS##_nbi(AT(box, 6 * kZone), from + 9 * kBytes, 1, pe);                                           \
      nvshmem_put##BITS##_signal(AT(box, 7 * kZone), source, kFew, signals, 3, NVSHMEM_SIGNAL_SET, pe);                \
    }                                                                                                                  \
    if (rank < 32) {                                                                                                   \
      nvshmemx_put##BITS##_nbi_warp(AT(box, kZone), from + kBytes, kSome, pe);                                         \
      nvshmemx_iput##BITS##_warp(AT(box, 4 * kZone), source, 2, 3, 17, pe);                                            \
      nvshmemx_put##BITS##_signal_nbi_warp(AT(box, 9 * kZone), source, kSome, signals + 1, 4, NVSHMEM_SIGNAL_ADD, pe); \
    }                                                                                                                  \
    nvshmemx_put##BITS##_block(AT(box, 2 * kZone), from + 2 * kBytes, kMost, pe);                                      \
    nvshmemx_iput##BITS##_block(AT(box, 5 * kZone), source, 3, 1, 20, pe);                                             \
    nvshmemx_put##BITS##_signal_block(AT(box, 8 * kZone), from + 2 * kBytes, kMost, signals + 2, 5,                    \
                                      NVSHMEM_SIGNAL_ADD, pe);                                                         \
  }                                                                                                                    \
  __global__ void get_sized_##BITS(void* box, const void* source, int pe) {                                            \
    constexpr int kBytes = BITS / 8;                                                                                   \
    const int rank = static_cast<int>(threadIdx.x);                                                                    \
    const char* const from = static_cast<const char*>(source);                                                         \
    if (rank == 0) {                                                                                                   \
      nvshmem_get##BITS(box, source, kFew, pe);                                                                        \
      nvshmem_iget##BITS(AT(box, 3 * kZone), source, 3, 2, kFew, pe);                                                  \
      nvshmem_get##BITS##_nbi(AT(box, 6 * kZone), from + 9 * kBytes, 1, pe);                                           \
      nvshmem_get##BITS(AT(box, 7 * kZone), source, kFew, pe);                                                         \
    }                                                                                                                  \
    if (rank < 32) {                                                                                                   \
      nvshmemx_get##BITS##_nbi_warp(AT(box, kZone), from + kBytes, kSome, pe);                                         \
      nvshmemx_iget##BITS##_warp(AT(box, 4 * kZone), source, 2, 3, 17, pe);                                            \
      nvshmemx_get##BITS##_warp(AT(box, 9 * kZone), source, kSome, pe);                                                \
    }                                                                                                                  \
    nvshmemx_get##BITS##_block(AT(box, 2 * kZone), from + 2 * kBytes, kMost, pe);                                      \
    nvshmemx_iget##BITS##_block(AT(box, 5 * kZone), source, 3, 1, 20, pe);                                             \
    nvshmemx_get##BITS##_nbi_block(AT(box, 8 * kZone), from + 2 * kBytes, kMost, pe);                                  \
    nvshmem_quiet();                                                                                                   \
  }
HEDDLE_SIZES(SIZED_KERNELS)

struct Boxes {
  char *put, *get, *source;
  uint64_t* signals;
};

bool as_expected(const char* device, size_t element, int sender) {
  const std::vector<char> box = gpu::fetch(device, element * kZone * kZones);
  for (int zone = 0; zone < kZones; ++zone) {
    for (int i = 0; i < kZone; ++i) {
      const int from = source_of(zone, i);
      for (size_t byte = 0; byte < element; ++byte) {
        const auto at = (static_cast<size_t>(zone) * kZone + static_cast<size_t>(i)) * element + byte;
        const char expected =
            from < 0 ? 0x33 : static_cast<char>(gpu::pattern(static_cast<size_t>(from) * element + byte, sender));
        if (box[at] != expected) {
          std::fprintf(stderr, "PE %d: zone %d, element %d, byte %zu\n", gpu::me, zone, i, byte);
          return false;
        }
      }
    }
  }
  return true;
}

template <class T>
void check_type(const char* name, const Boxes& boxes, size_t element, void (*put)(T*, const T*, uint64_t*, int),
                void (*get)(T*, const T*, int)) {
  const size_t bytes = element * kZone * kZones;
  gpu::must(cudaMemset(boxes.put, 0x33, bytes), "clear");
  gpu::must(cudaMemset(boxes.get, 0x33, bytes), "clear");
  gpu::must(cudaMemset(boxes.signals, 0, 3 * sizeof(uint64_t)), "clear");
  gpu::done("clear");
  nvshmem_barrier_all();
  put<<<1, 64>>>(reinterpret_cast<T*>(boxes.put), reinterpret_cast<const T*>(boxes.source), boxes.signals, gpu::right);
  get<<<1, 64>>>(reinterpret_cast<T*>(boxes.get), reinterpret_cast<const T*>(boxes.source), gpu::right);
  gpu::done(name);
  nvshmem_barrier_all();
  gpu::that(as_expected(boxes.put, element, gpu::left), std::string("puts of ") + name);
  gpu::that(as_expected(boxes.get, element, gpu::right), std::string("gets of ") + name);
  gpu::that(gpu::fetch(boxes.signals, 3) == std::vector<uint64_t>{3, 4, 5}, std::string("signals of ") + name);
}

void check_types(const Boxes& boxes) {
#define CHECK_TYPE(NAME, TYPE) check_type<TYPE>(#NAME, boxes, sizeof(TYPE), put_##NAME, get_##NAME);
  HEDDLE_RMA_TYPES(CHECK_TYPE)
#define CHECK_SIZE(BITS) check_type<void>(#BITS " bits", boxes, BITS / 8, put_sized_##BITS, get_sized_##BITS);
  HEDDLE_SIZES(CHECK_SIZE)
}

// ---- atomics. One thread goes through all operations on a word at the right PE; then all threads of all PEs work on
// one word of PE 0.

constexpr int kResults = 16;

#define ATOMIC_SEQUENCE_EXTENDED(NAME, TYPE)            \
  nvshmem_##NAME##_atomic_set(word, values[0], pe);     \
  results[0] = nvshmem_##NAME##_atomic_fetch(word, pe); \
  results[1] = nvshmem_##NAME##_atomic_swap(word, values[1], pe);
#define ATOMIC_SEQUENCE_STANDARD(NAME, TYPE)                                         \
  results[2] = nvshmem_##NAME##_atomic_compare_swap(word, values[0], values[2], pe); \
  results[3] = nvshmem_##NAME##_atomic_compare_swap(word, values[1], values[2], pe); \
  nvshmem_##NAME##_atomic_inc(word, pe);                                             \
  results[4] = nvshmem_##NAME##_atomic_fetch_inc(word, pe);                          \
  nvshmem_##NAME##_atomic_add(word, values[1], pe);                                  \
  results[5] = nvshmem_##NAME##_atomic_fetch_add(word, values[0], pe);
#define ATOMIC_SEQUENCE_BITWISE(NAME, TYPE)                            \
  nvshmem_##NAME##_atomic_and(word, values[3], pe);                    \
  results[6] = nvshmem_##NAME##_atomic_fetch_and(word, values[1], pe); \
  nvshmem_##NAME##_atomic_or(word, values[0], pe);                     \
  results[7] = nvshmem_##NAME##_atomic_fetch_or(word, values[2], pe);  \
  nvshmem_##NAME##_atomic_xor(word, values[1], pe);                    \
  results[8] = nvshmem_##NAME##_atomic_fetch_xor(word, values[3], pe);

#define STANDARD_KERNEL(NAME, TYPE)                                                       \
  __global__ void atomics_##NAME(TYPE* word, const TYPE* values, TYPE* results, int pe) { \
    ATOMIC_SEQUENCE_EXTENDED(NAME, TYPE)                                                  \
    ATOMIC_SEQUENCE_STANDARD(NAME, TYPE)                                                  \
    results[9] = nvshmem_##NAME##_g(word, pe);                                            \
  }                                                                                       \
  __global__ void crowd_##NAME(TYPE* words, TYPE* tickets) {                              \
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;                        \
    nvshmem_##NAME##_atomic_inc(&words[0], 0);                                            \
    nvshmem_##NAME##_atomic_add(&words[1], static_cast<TYPE>(3), 0);                      \
    nvshmem_##NAME##_atomic_fetch_add(&words[1], static_cast<TYPE>(2), 0);                \
    tickets[thread] = nvshmem_##NAME##_atomic_fetch_inc(&words[2], 0);                    \
  }
HEDDLE_AMO_STANDARD_TYPES(STANDARD_KERNEL)
#define BITWISE_KERNEL(NAME, TYPE)                                                     \
  __global__ void bits_##NAME(TYPE* word, const TYPE* values, TYPE* results, int pe) { \
    nvshmem_##NAME##_atomic_set(word, values[2], pe);                                  \
    ATOMIC_SEQUENCE_BITWISE(NAME, TYPE)                                                \
    results[9] = nvshmem_##NAME##_g(word, pe);                                         \
  }
HEDDLE_AMO_BITWISE_TYPES(BITWISE_KERNEL)
#define FLOAT_KERNEL(NAME, TYPE)                                                         \
  __global__ void floats_##NAME(TYPE* word, const TYPE* values, TYPE* results, int pe) { \
    ATOMIC_SEQUENCE_EXTENDED(NAME, TYPE)                                                 \
    nvshmemx_##NAME##_atomic_add(word, values[0], pe);                                   \
    results[2] = nvshmemx_##NAME##_atomic_fetch_add(word, values[2], pe);                \
    results[3] = nvshmem_##NAME##_g(word, pe);                                           \
  }                                                                                      \
  __global__ void float_crowd_##NAME(TYPE* word, const TYPE* one) {                      \
    nvshmemx_##NAME##_atomic_add(word, *one, 0);                                         \
    nvshmemx_##NAME##_atomic_fetch_add(word, *one, 0);                                   \
  }
HEDDLE_AMO_FLOAT_TYPES(FLOAT_KERNEL)

/// Values with bits in every half, so that a narrower atomic would lose some.
template <class T>
std::vector<T> amo_values() {
  std::vector<T> values(4);
  const uint64_t seeds[] = {0x0123456789abcdefu, 0x7edcba9876543210u, 0x0f0f1e1e2d2d3c3cu, 0x7ffffffffff0ff0fu};
  for (size_t i = 0; i < 4; ++i) values[i] = static_cast<T>(seeds[i]);
  return values;
}

template <class T>
T wrapping_sum(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

template <class T>
void check_standard(const char* name, void* word, void (*sequence)(T*, const T*, T*, int), void (*crowd)(T*, T*)) {
  const std::vector<T> v = amo_values<T>();
  T* const values = gpu::on_gpu(v);
  T* const results = gpu::on_gpu(std::vector<T>(kResults, T{0}));
  gpu::must(cudaMemset(word, 0, 64), "clear");
  gpu::done("clear");
  nvshmem_barrier_all();
  sequence<<<1, 1>>>(static_cast<T*>(word), values, results, gpu::right);
  gpu::done(name);
  const std::vector<T> got = gpu::fetch(results, kResults);
  std::vector<T> expected(kResults, T{0});
  T now = v[0];
  expected[0] = now;
  expected[1] = now;
  now = v[1];
  expected[2] = now;  // no match
  expected[3] = now;
  now = wrapping_sum(v[2], T{1});
  expected[4] = now;
  now = wrapping_sum(wrapping_sum(now, T{1}), v[1]);
  expected[5] = now;
  expected[9] = wrapping_sum(now, v[0]);
  gpu::that(got == expected, std::string("atomics of ") + name);
  nvshmem_barrier_all();

  constexpr size_t kThreads = 64 * 256;
  gpu::must(cudaMemset(word, 0, 64), "clear");
  gpu::done("clear");
  T* const tickets = gpu::on_gpu(std::vector<T>(kThreads, T{0}));
  nvshmem_barrier_all();
  crowd<<<64, 256>>>(static_cast<T*>(word), tickets);
  gpu::done(name);
  nvshmem_barrier_all();
  const auto all = static_cast<T>(kThreads * static_cast<size_t>(gpu::n));
  if (gpu::me == 0) {
    const std::vector<T> words = gpu::fetch(static_cast<T*>(word), 3);
    gpu::that(words[0] == all && words[1] == static_cast<T>(5 * all) && words[2] == all,
              std::string("atomics of all threads on ") + name);
  }
  // No ticket is given twice: those of each PE differ, and their sum over all PEs shows the rest.
  std::vector<T> mine = gpu::fetch(tickets, kThreads);
  std::vector<bool> seen(kThreads * static_cast<size_t>(gpu::n), false);
  bool unique = true;
  for (const T ticket : mine) {
    const auto at = static_cast<size_t>(ticket);
    unique = unique && at < seen.size() && !seen[at];
    if (at < seen.size()) seen[at] = true;
  }
  gpu::that(unique, std::string("tickets of ") + name);
  for (T* const block : {values, results, tickets}) gpu::must(cudaFree(block), "cudaFree");
  nvshmem_barrier_all();
}

template <class T>
void check_bitwise(const char* name, void* word, void (*sequence)(T*, const T*, T*, int)) {
  const std::vector<T> v = amo_values<T>();
  T* const values = gpu::on_gpu(v);
  T* const results = gpu::on_gpu(std::vector<T>(kResults, T{0}));
  nvshmem_barrier_all();
  sequence<<<1, 1>>>(static_cast<T*>(word), values, results, gpu::right);
  gpu::done(name);
  std::vector<T> expected(kResults, T{0});
  T now = static_cast<T>(v[2] & v[3]);
  expected[6] = now;
  now = static_cast<T>((now & v[1]) | v[0]);
  expected[7] = now;
  now = static_cast<T>((now | v[2]) ^ v[1]);
  expected[8] = now;
  expected[9] = static_cast<T>(now ^ v[3]);
  gpu::that(gpu::fetch(results, kResults) == expected, std::string("and, or, xor of ") + name);
  gpu::must(cudaFree(values), "cudaFree");
  gpu::must(cudaFree(results), "cudaFree");
  nvshmem_barrier_all();
}

template <class T>
void check_float(const char* name, void* word, void (*sequence)(T*, const T*, T*, int), void (*crowd)(T*, const T*)) {
  // Sums that are exact in half precision.
  T* const values = gpu::on_gpu(std::vector<T>{static_cast<T>(1.5f), static_cast<T>(-2.25f), static_cast<T>(64.0f)});
  T* const results = gpu::on_gpu(std::vector<T>(4, static_cast<T>(0.0f)));
  T* const one = gpu::on_gpu(std::vector<T>{static_cast<T>(1.0f)});
  nvshmem_barrier_all();
  sequence<<<1, 1>>>(static_cast<T*>(word), values, results, gpu::right);
  gpu::done(name);
  const std::vector<T> got = gpu::fetch(results, 4);
  const float expected[] = {1.5f, 1.5f, -0.75f, 63.25f};
  bool good = true;
  for (size_t i = 0; i < 4; ++i) good = good && static_cast<float>(got[i]) == expected[i];
  gpu::that(good, std::string("atomics of ") + name);
  nvshmem_barrier_all();
  gpu::must(cudaMemset(word, 0, 8), "clear");
  gpu::done("clear");
  nvshmem_barrier_all();
  crowd<<<4, 64>>>(static_cast<T*>(word), one);  // 512 additions a PE: halves count to 2048
  gpu::done(name);
  nvshmem_barrier_all();
  if (gpu::me == 0 && gpu::n <= 4) {
    const float sum = static_cast<float>(gpu::fetch(static_cast<T*>(word), 1)[0]);
    gpu::that(sum == 512.0f * static_cast<float>(gpu::n), std::string("additions of all threads to ") + name);
  }
  for (T* const block : {values, results, one}) gpu::must(cudaFree(block), "cudaFree");
  nvshmem_barrier_all();
}

void check_atomics(void* word) {
#define CHECK_STANDARD(NAME, TYPE) check_standard<TYPE>(#NAME, word, atomics_##NAME, crowd_##NAME);
  HEDDLE_AMO_STANDARD_TYPES(CHECK_STANDARD)
#define CHECK_BITWISE(NAME, TYPE) check_bitwise<TYPE>(#NAME, word, bits_##NAME);
  HEDDLE_AMO_BITWISE_TYPES(CHECK_BITWISE)
#define CHECK_FLOAT(NAME, TYPE) check_float<TYPE>(#NAME, word, floats_##NAME, float_crowd_##NAME);
  HEDDLE_AMO_FLOAT_TYPES(CHECK_FLOAT)
}

}  // namespace

int main() {
  gpu::start();
  const size_t bytes = 16 * kZone * kZones;
  const Boxes boxes{gpu::allocate<char>(bytes), gpu::allocate<char>(bytes), gpu::allocate<char>(bytes),
                    gpu::allocate<uint64_t>(8)};
  const std::vector<unsigned char> mine = gpu::patterns(bytes, gpu::me);
  gpu::must(cudaMemcpy(boxes.source, mine.data(), bytes, cudaMemcpyHostToDevice), "copy to the GPU");
  nvshmem_barrier_all();
  check_types(boxes);
  check_atomics(boxes.signals);
  nvshmem_free(boxes.signals);
  nvshmem_free(boxes.source);
  nvshmem_free(boxes.get);
  nvshmem_free(boxes.put);
  return gpu::finish("types");
}
