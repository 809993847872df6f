// The names of a queue: every typed call of kernels, by thread, warp and block, with a handle of nvshmemx_qp_create,
// and what fence and quiet of queues order.
#include "gpu.cuh"

namespace {

using Queue = nvshmemx_qp_handle_t;

// ---- put, get, p, g and put_signal of each type. One block of 64 threads fills a box at the right PE, one zone for
// each form, and a box of its own by gets. Zone z holds as many elements as its form moves, from element z of the
// source on.

constexpr int kZone = 64;
constexpr int kFew = 5, kSome = 33, kMost = 61;  // moved by thread, warp and block
constexpr int kPutZones[] = {kFew, kFew, 1, kFew, kFew, kSome, kSome, kSome, kSome, kMost, kMost, kMost, kMost};
constexpr int kGetZones[] = {kFew, kFew, 1, kSome, kSome, kMost, kMost};
constexpr int kSignals = 7;  // the last one says that all is there
constexpr size_t kElements = kZone * (sizeof kPutZones / sizeof kPutZones[0]);

#define KERNELS(NAME, TYPE)                                                                                            \
  __global__ void put_##NAME(TYPE* box, const TYPE* source, uint64_t* signals, int pe, Queue* queues) {                \
    const int rank = static_cast<int>(threadIdx.x);                                                                    \
    const Queue queue = queues[1];                                                                                     \
    if (rank == 0) {                                                                                                   \
      nvshmemx_qp_##NAME##_put(box, source, kFew, pe, queue);                                                          \
      nvshmemx_qp_##NAME##_put_nbi(box + kZone, source + 1, kFew, pe, NVSHMEMX_QP_ANY);                                \
      nvshmemx_qp_##NAME##_p(box + 2 * kZone, source[2], pe, NVSHMEMX_QP_DEFAULT);                                     \
      nvshmemx_qp_##NAME##_put_signal(box + 3 * kZone, source + 3, kFew, signals, 3, NVSHMEM_SIGNAL_SET, pe, queue);   \
      nvshmemx_qp_##NAME##_put_signal_nbi(box + 4 * kZone, source + 4, kFew, signals + 1, 4, NVSHMEM_SIGNAL_ADD, pe,   \
                                          queue);                                                                      \
    }                                                                                                                  \
    if (rank < 32) {                                                                                                   \
      nvshmemx_qp_##NAME##_put_warp(box + 5 * kZone, source + 5, kSome, pe, queue);                                    \
      nvshmemx_qp_##NAME##_put_nbi_warp(box + 6 * kZone, source + 6, kSome, pe, queue);                                \
      nvshmemx_qp_##NAME##_put_signal_warp(box + 7 * kZone, source + 7, kSome, signals + 2, 5, NVSHMEM_SIGNAL_SET, pe, \
                                           queue);                                                                     \
      nvshmemx_qp_##NAME##_put_signal_nbi_warp(box + 8 * kZone, source + 8, kSome, signals + 3, 6, NVSHMEM_SIGNAL_ADD, \
                                               pe, queue);                                                             \
    }                                                                                                                  \
    nvshmemx_qp_##NAME##_put_block(box + 9 * kZone, source + 9, kMost, pe, queue);                                     \
    nvshmemx_qp_##NAME##_put_nbi_block(box + 10 * kZone, source + 10, kMost, pe, queue);                               \
    nvshmemx_qp_##NAME##_put_signal_block(box + 11 * kZone, source + 11, kMost, signals + 4, 7, NVSHMEM_SIGNAL_SET,    \
                                          pe, queue);                                                                  \
    nvshmemx_qp_##NAME##_put_signal_nbi_block(box + 12 * kZone, source + 12, kMost, signals + 5, 8,                    \
                                              NVSHMEM_SIGNAL_ADD, pe, queue);                                          \
    nvshmemx_qp_quiet_block(pe, queues, 2);                                                                            \
    if (rank == 0) nvshmemx_qp_signal_op(signals + 6, 9, NVSHMEM_SIGNAL_ADD, pe, queue);                               \
  }                                                                                                                    \
  __global__ void get_##NAME(TYPE* box, const TYPE* source, int pe, Queue* queues) {                                   \
    const int rank = static_cast<int>(threadIdx.x);                                                                    \
    const Queue queue = queues[0];                                                                                     \
    if (rank == 0) {                                                                                                   \
      nvshmemx_qp_##NAME##_get(box, source, kFew, pe, queue);                                                          \
      nvshmemx_qp_##NAME##_get_nbi(box + kZone, source + 1, kFew, pe, queue);                                          \
      box[2 * kZone] = nvshmemx_qp_##NAME##_g(source + 2, pe, NVSHMEMX_QP_DEFAULT);                                    \
    }                                                                                                                  \
    if (rank < 32) {                                                                                                   \
      nvshmemx_qp_##NAME##_get_warp(box + 3 * kZone, source + 3, kSome, pe, queue);                                    \
      nvshmemx_qp_##NAME##_get_nbi_warp(box + 4 * kZone, source + 4, kSome, pe, NVSHMEMX_QP_ANY);                      \
    }                                                                                                                  \
    nvshmemx_qp_##NAME##_get_block(box + 5 * kZone, source + 5, kMost, pe, queue);                                     \
    nvshmemx_qp_##NAME##_get_nbi_block(box + 6 * kZone, source + 6, kMost, pe, queue);                                 \
    nvshmemx_qp_quiet_block(NVSHMEMX_PE_ALL, queues, 2);                                                               \
  }
HEDDLE_RMA_TYPES(KERNELS)

__global__ void wait_for(uint64_t* signal, uint64_t value) { nvshmem_signal_wait_until(signal, NVSHMEM_CMP_EQ, value); }

struct Boxes {
  char *put, *get, *source;
  uint64_t* signals;
};

template <size_t kZones>
bool as_expected(const char* device, const int (&moved)[kZones], size_t element, int sender) {
  const std::vector<char> box = gpu::fetch(device, element * kZone * kZones);
  for (size_t zone = 0; zone < kZones; ++zone) {
    for (size_t byte = 0; byte < kZone * element; ++byte) {
      const bool filled = byte < static_cast<size_t>(moved[zone]) * element;
      const char expected = filled ? static_cast<char>(gpu::pattern(zone * element + byte, sender)) : char{0x33};
      if (box[zone * kZone * element + byte] != expected) {
        std::fprintf(stderr, "PE %d: zone %zu, byte %zu\n", gpu::me, zone, byte);
        return false;
      }
    }
  }
  return true;
}

template <class T>
void check_type(const char* name, const Boxes& boxes, Queue* queues, void (*put)(T*, const T*, uint64_t*, int, Queue*),
                void (*get)(T*, const T*, int, Queue*)) {
  gpu::must(cudaMemset(boxes.put, 0x33, kElements * sizeof(T)), "clear");
  gpu::must(cudaMemset(boxes.get, 0x33, kElements * sizeof(T)), "clear");
  gpu::must(cudaMemset(boxes.signals, 0, kSignals * sizeof(uint64_t)), "clear");
  gpu::done("clear");
  nvshmem_barrier_all();
  const T* const source = reinterpret_cast<const T*>(boxes.source);
  put<<<1, 64>>>(reinterpret_cast<T*>(boxes.put), source, boxes.signals, gpu::right, queues);
  get<<<1, 64>>>(reinterpret_cast<T*>(boxes.get), source, gpu::right, queues);
  wait_for<<<1, 1>>>(boxes.signals + kSignals - 1, 9);
  gpu::done(name);
  // Without a barrier before it: the signal after quiet says that all is there.
  gpu::that(as_expected(boxes.put, kPutZones, sizeof(T), gpu::left), std::string("puts of ") + name);
  gpu::that(gpu::fetch(boxes.signals, kSignals) == std::vector<uint64_t>{3, 4, 5, 6, 7, 8, 9},
            std::string("signals of ") + name);
  gpu::that(as_expected(boxes.get, kGetZones, sizeof(T), gpu::right), std::string("gets of ") + name);
  nvshmem_barrier_all();
}

// ---- order. In each round a group writes its words to the right PE, fences or quiets, and one thread of it signals:
// the signal must not overtake the words of any of them.

enum class Order { kFence, kFenceWarp, kFenceBlock, kQuiet, kQuietWarp, kQuietBlock };

template <Order kOrder>
__device__ void order(int pe, Queue* queues) {
  if constexpr (kOrder == Order::kFence) nvshmemx_qp_fence(pe, queues, 2);
  if constexpr (kOrder == Order::kFenceWarp) nvshmemx_qp_fence_warp(pe, queues, 2);
  if constexpr (kOrder == Order::kFenceBlock) nvshmemx_qp_fence_block(pe, queues, 2);
  if constexpr (kOrder == Order::kQuiet) nvshmemx_qp_quiet(pe, queues, 2);
  if constexpr (kOrder == Order::kQuietWarp) nvshmemx_qp_quiet_warp(pe, queues, 2);
  if constexpr (kOrder == Order::kQuietBlock) nvshmemx_qp_quiet_block(pe, queues, 2);
}

constexpr int kRounds = 500;

template <Order kOrder>
__global__ void exchange(int* words, uint64_t* signal, uint64_t* seen, int right, int left, Queue* queues, int* wrong) {
  const int rank = static_cast<int>(threadIdx.x);
  for (int round = 1; round <= kRounds; ++round) {
    nvshmemx_qp_int_p(words + rank * 33, round, right, queues[round % 2]);
    order<kOrder>(right, queues);
    if (rank == 0) {
      nvshmemx_qp_signal_op(signal, static_cast<uint64_t>(round), NVSHMEM_SIGNAL_SET, right, queues[round % 2]);
      nvshmem_signal_wait_until(signal, NVSHMEM_CMP_GE, static_cast<uint64_t>(round));
    }
    __syncthreads();
    if (words[rank * 33] != round) atomicAdd(wrong, 1);
    __syncthreads();  // all have looked
    if (rank == 0) {
      nvshmemx_qp_signal_op(seen, static_cast<uint64_t>(round), NVSHMEM_SIGNAL_SET, left, NVSHMEMX_QP_DEFAULT);
      nvshmem_signal_wait_until(seen, NVSHMEM_CMP_GE, static_cast<uint64_t>(round));
    }
    __syncthreads();
  }
}

template <Order kOrder>
void check_order(const char* name, int threads, int* words, uint64_t* signals, Queue* queues, int* wrong) {
  gpu::must(cudaMemset(words, 0, 64 * 33 * sizeof(int)), "clear");
  gpu::must(cudaMemset(signals, 0, 2 * sizeof(uint64_t)), "clear");
  gpu::must(cudaMemset(wrong, 0, sizeof(int)), "clear");
  gpu::done("clear");
  nvshmem_barrier_all();
  exchange<kOrder><<<1, threads>>>(words, signals, signals + 1, gpu::right, gpu::left, queues, wrong);
  gpu::done(name);
  gpu::that(gpu::fetch(wrong, 1)[0] == 0, std::string(name) + ": no signal before its words");
  gpu::that(gpu::fetch(signals, 1)[0] == kRounds, std::string(name) + ": all rounds");
  nvshmem_barrier_all();
}

}  // namespace

int main() {
  gpu::start();
  Queue* created = nullptr;
  if (!gpu::that(nvshmemx_qp_create(2, &created) == 0 && created != nullptr, "qp_create")) return 1;
  Queue* const queues = gpu::on_gpu(std::vector<Queue>(created, created + 2));

  constexpr size_t kBytes = kElements * sizeof(uint64_t);
  const Boxes boxes{gpu::allocate<char>(kBytes), gpu::allocate<char>(kBytes), gpu::allocate<char>(kBytes),
                    gpu::allocate<uint64_t>(kSignals)};
  gpu::give(reinterpret_cast<unsigned char*>(boxes.source), gpu::patterns(kBytes, gpu::me));
  nvshmem_barrier_all();
#define CHECK(NAME, TYPE) check_type<TYPE>(#NAME, boxes, queues, put_##NAME, get_##NAME);
  HEDDLE_RMA_TYPES(CHECK)

  int* const words = gpu::allocate<int>(64 * 33);
  int* const wrong = gpu::on_gpu(std::vector<int>{0});
  check_order<Order::kFence>("qp_fence", 1, words, boxes.signals, queues, wrong);
  check_order<Order::kFenceWarp>("qp_fence_warp", 32, words, boxes.signals, queues, wrong);
  check_order<Order::kFenceBlock>("qp_fence_block", 64, words, boxes.signals, queues, wrong);
  check_order<Order::kQuiet>("qp_quiet", 1, words, boxes.signals, queues, wrong);
  check_order<Order::kQuietWarp>("qp_quiet_warp", 32, words, boxes.signals, queues, wrong);
  check_order<Order::kQuietBlock>("qp_quiet_block", 64, words, boxes.signals, queues, wrong);

  gpu::must(cudaFree(wrong), "cudaFree");
  gpu::must(cudaFree(queues), "cudaFree");
  for (void* const block :
       {static_cast<void*>(words), static_cast<void*>(boxes.signals), static_cast<void*>(boxes.source),
        static_cast<void*>(boxes.get), static_cast<void*>(boxes.put)}) {
    nvshmem_free(block);
  }
  const int code = gpu::finish("queues");
  std::free(created);
  return code;
}
