// put, get and put_signal of kernels, against a model on the host: by thread, warp and block, every small size at every
// alignment, larger ones at random; sources and destinations in shared memory and on the stack. With "smem" every
// kernel gives shared memory to the library, so that bulk copies are used where NVSHMEM_TMA_POLICY says so; with
// "little-smem" as little as goes. With "quick" a sample of the cases, for tools that slow kernels down.
#include <algorithm>

#include "gpu.cuh"

namespace {

enum Form { kPut, kPutNbi, kGet, kGetNbi, kPutSignal, kForms };
const char* const kFormNames[] = {"putmem", "putmem_nbi", "getmem", "getmem_nbi", "putmem_signal"};
enum Scope { kThread, kWarp, kBlock };
const char* const kScopeNames[] = {"thread", "warp", "block"};

struct Case {
  uint32_t to, from, bytes;
};

__device__ void copy(int form, int scope, char* to, const char* from, size_t bytes, uint64_t* signal, int pe) {
  if (scope == kThread) {
    if (form == kPut) nvshmem_putmem(to, from, bytes, pe);
    if (form == kPutNbi) nvshmem_putmem_nbi(to, from, bytes, pe);
    if (form == kGet) nvshmem_getmem(to, from, bytes, pe);
    if (form == kGetNbi) nvshmem_getmem_nbi(to, from, bytes, pe);
    if (form == kPutSignal) nvshmem_putmem_signal(to, from, bytes, signal, 1, NVSHMEM_SIGNAL_ADD, pe);
  } else if (scope == kWarp) {
    if (form == kPut) nvshmemx_putmem_warp(to, from, bytes, pe);
    if (form == kPutNbi) nvshmemx_putmem_nbi_warp(to, from, bytes, pe);
    if (form == kGet) nvshmemx_getmem_warp(to, from, bytes, pe);
    if (form == kGetNbi) nvshmemx_getmem_nbi_warp(to, from, bytes, pe);
    if (form == kPutSignal) nvshmemx_putmem_signal_warp(to, from, bytes, signal, 1, NVSHMEM_SIGNAL_ADD, pe);
  } else {
    if (form == kPut) nvshmemx_putmem_block(to, from, bytes, pe);
    if (form == kPutNbi) nvshmemx_putmem_nbi_block(to, from, bytes, pe);
    if (form == kGet) nvshmemx_getmem_block(to, from, bytes, pe);
    if (form == kGetNbi) nvshmemx_getmem_nbi_block(to, from, bytes, pe);
    if (form == kPutSignal) nvshmemx_putmem_signal_block(to, from, bytes, signal, 1, NVSHMEM_SIGNAL_ADD, pe);
  }
}

/// Case i copies into slot i. Each thread, warp or block takes cases in turn.
__global__ void __launch_bounds__(1024)
    run_cases(int form, int scope, char* slots, size_t slot, const char* source, const Case* cases, int count,
              uint64_t* signal, int pe, unsigned smem_bytes) {
  extern __shared__ __align__(128) char smem[];
  if (smem_bytes != 0) {
    nvshmemx_give_smem(smem, smem_bytes);
    __syncthreads();
  }
  const int threads = static_cast<int>(blockDim.x);
  const int team = scope == kThread ? 1 : scope == kWarp ? 32 : threads;
  const int teams = (threads + team - 1) / team;  // in this block
  const int first = static_cast<int>(blockIdx.x) * teams + static_cast<int>(threadIdx.x) / team;
  for (int i = first; i < count; i += static_cast<int>(gridDim.x) * teams) {
    copy(form, scope, slots + i * slot + 32 + cases[i].to, source + cases[i].from, cases[i].bytes, signal, pe);
  }
  nvshmem_quiet();
  if (smem_bytes != 0) {
    __syncthreads();
    nvshmemx_release_smem();
  }
}

unsigned smem_bytes = 0;

void check_cases(const std::vector<Case>& cases, size_t slot, int form, int scope, int threads, const char* source,
                 size_t source_bytes, uint64_t* signal, char* slots) {
  const std::string name = std::string(kFormNames[form]) + " by " + kScopeNames[scope] + ", " +
                           std::to_string(threads) + " threads, " + std::to_string(cases.size()) + " cases";
  const bool getting = form == kGet || form == kGetNbi;
  const size_t bytes = cases.size() * slot;
  gpu::must(cudaMemset(slots, 0x5a, bytes), "clear");
  gpu::must(cudaMemset(signal, 0, 8), "clear");
  gpu::must(cudaDeviceSynchronize(), "clear");
  Case* const device_cases = gpu::on_gpu(cases);
  nvshmem_barrier_all();
  run_cases<<<264, threads, smem_bytes>>>(form, scope, slots, slot, source, device_cases,
                                          static_cast<int>(cases.size()), signal, gpu::right, smem_bytes);
  gpu::done(name.c_str());
  nvshmem_barrier_all();
  gpu::must(cudaFree(device_cases), "cudaFree");
  const std::vector<unsigned char> sent = gpu::patterns(source_bytes, getting ? gpu::right : gpu::left);
  std::vector<unsigned char> expected(bytes, 0x5a);
  for (size_t i = 0; i < cases.size(); ++i) {
    std::memcpy(&expected[i * slot + 32 + cases[i].to], &sent[cases[i].from], cases[i].bytes);
  }
  const std::vector<char> got = gpu::fetch(slots, bytes);
  size_t wrong = 0;
  while (wrong < bytes && static_cast<unsigned char>(got[wrong]) == expected[wrong]) ++wrong;
  std::string what = name;
  if (wrong < bytes) {
    const size_t i = wrong / slot;
    what += ": case to +" + std::to_string(cases[i].to) + ", from +" + std::to_string(cases[i].from) + ", " +
            std::to_string(cases[i].bytes) + " bytes, wrong at byte " +
            std::to_string(static_cast<long>(wrong % slot) - 32 - static_cast<long>(cases[i].to));
  }
  gpu::that(wrong == bytes, what);
  if (form == kPutSignal) gpu::that(gpu::fetch(signal, 1)[0] == cases.size(), name + ": signals");
}

// ---- local sides in shared memory and on the stack

constexpr int kLocal = 600;

__global__ void local_sides(char* slots, const char* source, int scope, int pe) {
  __shared__ __align__(16) char shared[2 * kLocal + 64];
  char stack[200];
  const int at = static_cast<int>(blockIdx.x) % 16, slot = static_cast<int>(blockIdx.x) * 4 * kLocal;
  const int rank = static_cast<int>(threadIdx.x), size = static_cast<int>(blockDim.x);
  // From shared memory at every alignment; into shared memory, and from there to the peer.
  for (int i = rank; i < kLocal; i += size) shared[at + i] = source[i];
  __syncthreads();
  if (scope == kBlock) {
    nvshmemx_putmem_block(slots + slot, shared + at, kLocal, pe);
    nvshmemx_getmem_block(shared + kLocal + 16 + at, source, kLocal, pe);
  } else if (scope == kWarp) {
    if (rank < 32) nvshmemx_putmem_warp(slots + slot, shared + at, kLocal, pe);
    if (rank < 32) nvshmemx_getmem_warp(shared + kLocal + 16 + at, source, kLocal, pe);
  } else {
    if (rank == 0) nvshmem_putmem(slots + slot, shared + at, kLocal, pe);
    if (rank == 0) nvshmem_getmem(shared + kLocal + 16 + at, source, kLocal, pe);
  }
  __syncthreads();
  for (int i = rank; i < kLocal; i += size) nvshmem_char_p(slots + slot + kLocal + i, shared[kLocal + 16 + at + i], pe);
  // From and to the stacks of several threads that call together: each has its own.
  if (rank < 3) {
    for (int i = 0; i < 200; ++i) stack[i] = static_cast<char>(source[i] + rank);
    nvshmem_putmem(slots + slot + 2 * kLocal + 200 * rank, stack, 200, pe);
    nvshmem_getmem(stack, source + rank, 200, pe);
    for (int i = 0; i < 200; ++i) nvshmem_char_p(slots + slot + 3 * kLocal + 200 * rank + i, stack[i], pe);
  }
  nvshmem_quiet();
}

void check_local_sides(char* slots, const char* source, int scope) {
  nvshmem_barrier_all();
  local_sides<<<32, 64>>>(slots, source, scope, gpu::right);
  gpu::done("local_sides");
  nvshmem_barrier_all();
  // The left PE has sent its own bytes, and what it had got from here.
  const std::vector<char> got = gpu::fetch(slots, 32 * 4 * kLocal);
  bool from_shared = true, into_shared = true, from_stack = true, into_stack = true;
  for (size_t block = 0; block < 32; ++block) {
    const char* const slot = got.data() + block * 4 * kLocal;
    for (size_t i = 0; i < kLocal; ++i) {
      from_shared &= slot[i] == static_cast<char>(gpu::pattern(i, gpu::left));
      into_shared &= slot[kLocal + i] == static_cast<char>(gpu::pattern(i, gpu::me));
      const size_t thread = i / 200, at = i % 200;
      from_stack &= slot[2 * kLocal + i] == static_cast<char>(gpu::pattern(at, gpu::left) + thread);
      into_stack &= slot[3 * kLocal + i] == static_cast<char>(gpu::pattern(at + thread, gpu::me));
    }
  }
  const std::string by = std::string(" by ") + kScopeNames[scope];
  gpu::that(from_shared, "put from shared memory" + by);
  gpu::that(into_shared, "get into shared memory" + by);
  gpu::that(from_stack, "put from the stack" + by);
  gpu::that(into_stack, "get into the stack" + by);
}

}  // namespace

int main(int argc, char** argv) {
  gpu::start();
  const auto given = [&](const char* word) {
    return std::any_of(argv + 1, argv + argc, [&](const char* one) { return std::strcmp(one, word) == 0; });
  };
  const bool little = given("little-smem"), quick = given("quick");
  if (little || given("smem")) {
    smem_bytes = static_cast<unsigned>(nvshmemx_ask_smem(little ? NVSHMEMX_SMEM_MINIMUM : NVSHMEMX_SMEM_RECOMMENDED));
    gpu::must(
        cudaFuncSetAttribute(run_cases, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem_bytes)),
        "dynamic shared memory");
  }
  constexpr size_t kSourceBytes = 600 * 1024, kSlotBytes = 48 << 20;
  char* const source = gpu::allocate<char>(kSourceBytes);
  char* const slots = gpu::allocate<char>(kSlotBytes);
  uint64_t* const signal = gpu::allocate<uint64_t>(1);
  const std::vector<unsigned char> mine = gpu::patterns(kSourceBytes, gpu::me);
  gpu::must(cudaMemcpy(source, mine.data(), kSourceBytes, cudaMemcpyHostToDevice), "copy to the GPU");
  nvshmem_barrier_all();

  std::vector<Case> small;
  const uint32_t step = quick ? 5 : 1;
  for (uint32_t bytes = 0; bytes <= 80; bytes += step) {
    for (uint32_t to = 0; to < 32; to += step) {
      for (uint32_t from = 0; from < 32; from += step) small.push_back({to, from, bytes});
    }
  }
  std::vector<Case> medium, large;
  std::mt19937 random(3);  // the same on every PE
  for (uint32_t to = 0; to < 16; to += step) {
    for (uint32_t from = 0; from < 16; from += step) {
      for (int i = 0; i < 4; ++i) medium.push_back({to, from, static_cast<uint32_t>(random() % 2500)});
    }
  }
  for (int i = 0; i < (quick ? 4 : 64); ++i) {
    const auto bytes = static_cast<uint32_t>(random() % (quick ? 64 * 1024 : 512 * 1024));
    if (i % 2 == 0) {
      large.push_back({16, 32, bytes & ~15u});  // what bulk copies take
    } else {
      large.push_back({static_cast<uint32_t>(random() % 16), static_cast<uint32_t>(random() % 16), bytes});
    }
  }
  for (int form = 0; form < kForms; ++form) {
    for (int scope = kThread; scope <= kBlock; ++scope) {
      for (const int threads : {64, 1024}) {
        if (quick && threads != 64) continue;
        check_cases(small, 160, form, scope, threads, source, kSourceBytes, signal, slots);
        check_cases(medium, 2624, form, scope, threads, source, kSourceBytes, signal, slots);
        check_cases(large, 513 * 1024, form, scope, threads, source, kSourceBytes, signal, slots);
      }
    }
    // Blocks whose last warp is not full, and less than a warp.
    for (const int threads : {1, 20, 100}) {
      check_cases(medium, 2624, form, kBlock, threads, source, kSourceBytes, signal, slots);
    }
  }
  if (smem_bytes == 0) {
    for (int scope = kThread; scope <= kBlock; ++scope) check_local_sides(slots, source, scope);
  }
  nvshmem_barrier_all();
  nvshmem_free(signal);
  nvshmem_free(slots);
  nvshmem_free(source);
  return gpu::finish("copies");
}
