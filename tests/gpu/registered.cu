// Memory of cuMemCreate that becomes symmetric: host calls, kernels and calls on streams reach it, and what cannot
// become so is refused on all PEs with a remedy. Two PEs.
//
//   registered          everything
//   registered host     without what needs the other PE's heap mapped: for HEDDLE_FAULT
//   registered use      without refusals: the driver's failing calls in them show in tools
//   registered refused  on heaps by cudaMalloc, where nothing can be registered
#include <cuda.h>

#include <initializer_list>
#include <memory>

#include "tests/gpu/gpu.cuh"

namespace {

using gpu::left;
using gpu::me;
using gpu::must;
using gpu::right;
using gpu::that;

constexpr size_t kUnit = size_t{2} << 20;
cudaStream_t stream;
int device;  // of this PE

/// A function of the driver, without a link to it.
template <class Function>
Function driver(const char* name) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  must(cudaGetDriverEntryPointByVersion(name, &entry, 12000, cudaEnableDefault, &found), name);
  return reinterpret_cast<Function>(entry);
}
#define DRIVER(NAME) driver<decltype(&NAME)>(#NAME)

void must_do(CUresult code, const char* what) {
  if (code == CUDA_SUCCESS) return;
  std::fprintf(stderr, "PE %d: FAILED: %s: CUresult %d\n", me, what, static_cast<int>(code));
  std::_Exit(1);
}

/// Allocations of the program's own, one behind the other, and nothing behind them.
class Memory {
 public:
  Memory(int on, CUmemAllocationHandleType type, std::initializer_list<size_t> sizes) {
    for (const size_t size : sizes) bytes_ += size;
    must_do(DRIVER(cuMemAddressReserve)(&base_, bytes_ + kUnit, kUnit, 0, 0), "cuMemAddressReserve");
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = type;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = on;
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUdeviceptr at = base_;
    for (const size_t size : sizes) {
      CUmemGenericAllocationHandle handle = 0;
      must_do(DRIVER(cuMemCreate)(&handle, size, &properties, 0), "cuMemCreate");
      must_do(DRIVER(cuMemMap)(at, size, 0, handle, 0), "cuMemMap");
      must_do(DRIVER(cuMemSetAccess)(at, size, &access, 1), "cuMemSetAccess");
      must_do(DRIVER(cuMemRelease)(handle), "cuMemRelease");
      at += size;
    }
  }
  explicit Memory(std::initializer_list<size_t> sizes)
      : Memory(device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, sizes) {}
  ~Memory() {
    must_do(DRIVER(cuMemUnmap)(base_, bytes_), "cuMemUnmap");
    must_do(DRIVER(cuMemAddressFree)(base_, bytes_ + kUnit), "cuMemAddressFree");
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  unsigned char* get() const { return reinterpret_cast<unsigned char*>(base_); }
  size_t bytes() const { return bytes_; }

 private:
  CUdeviceptr base_ = 0;
  size_t bytes_ = 0;
};

unsigned char* add(const Memory& memory) {
  return static_cast<unsigned char*>(nvshmemx_buffer_register_symmetric(memory.get(), memory.bytes(), 0));
}

/// The last error has all `words`; forgets it.
void said(const char* what, std::initializer_list<const char*> words) {
  const std::string text = heddle_last_error();
  for (const char* word : words) {
    that(text.find(word) != std::string::npos, std::string(what) + ": no \"" + word + "\" in \"" + text + "\"");
  }
  if (me == 0) std::printf("registered: %s: %s\n", what, text.c_str());
  heddle_clear_error();
}

// ---- what reaches a buffer. It is used in halves: others write into the lower one, the upper one is their source. The
// last 64 bytes of the lower one are words.

struct Halves {
  explicit Halves(unsigned char* alias, const Memory& memory)
      : in(alias), out(alias + memory.bytes() / 2), bytes(memory.bytes() / 2 - 64) {
    words = reinterpret_cast<uint64_t*>(in + bytes);
  }
  unsigned char *in, *out;
  size_t bytes;
  uint64_t* words;
};

/// Own patterns in the upper half, zeroes in the lower one, by the program's own address.
void fill(const Memory& memory) {
  gpu::give(memory.get() + memory.bytes() / 2, gpu::patterns(memory.bytes() / 2 - 64, me));
  must(cudaMemset(memory.get(), 0, memory.bytes() / 2), "clear");
  must(cudaDeviceSynchronize(), "fill");
  nvshmem_barrier_all();
}

/// The left neighbour's pattern, by the program's own address.
void check_arrival(const Memory& memory, const std::string& what) {
  const size_t bytes = memory.bytes() / 2 - 64;
  that(gpu::fetch(memory.get(), bytes) == gpu::patterns(bytes, left), what + ": what arrived, by the own address");
}

void use_by_host(const Memory& memory, unsigned char* alias) {
  const Halves halves(alias, memory);
  fill(memory);
  nvshmem_putmem_signal(halves.in, halves.out, halves.bytes, halves.words, 5, NVSHMEM_SIGNAL_SET, right);
  that(nvshmem_signal_wait_until(halves.words, NVSHMEM_CMP_EQ, 5) == 5, "put_signal of the host");
  nvshmem_barrier_all();
  check_arrival(memory, "put_signal of the host");
  that(nvshmem_uint64_atomic_fetch_add(halves.words + 1, 7, right) == 0, "fetch_add");
  nvshmem_uint64_p(halves.words + 2, 11, right);
  nvshmem_barrier_all();
  that(nvshmem_uint64_g(halves.words + 1, me) == 7 && nvshmem_uint64_g(halves.words + 2, right) == 11, "words");
  std::vector<unsigned char> got(halves.bytes);
  nvshmem_getmem(got.data(), halves.out, halves.bytes, right);
  that(got == gpu::patterns(halves.bytes, right), "get");
  nvshmem_barrier_all();
}

void use_by_stream(const Memory& memory, unsigned char* alias) {
  const Halves halves(alias, memory);
  fill(memory);
  nvshmemx_putmem_signal_on_stream(halves.in, halves.out, halves.bytes, halves.words, 3, NVSHMEM_SIGNAL_SET, right,
                                   stream);
  nvshmemx_signal_wait_until_on_stream(halves.words, NVSHMEM_CMP_EQ, 3, stream);
  nvshmemx_barrier_all_on_stream(stream);
  must(cudaStreamSynchronize(stream), "put_signal_on_stream");
  check_arrival(memory, "put_signal_on_stream");
  // The program's own address is the local side.
  must(cudaMemset(memory.get(), 0, halves.bytes), "clear");
  must(cudaDeviceSynchronize(), "clear");
  nvshmemx_getmem_on_stream(memory.get(), halves.out, halves.bytes, left, stream);
  nvshmemx_barrier_all_on_stream(stream);
  must(cudaStreamSynchronize(stream), "getmem_on_stream");
  check_arrival(memory, "getmem_on_stream");
  nvshmem_barrier_all();
}

/// Puts the upper half into the right neighbour's lower half with a signal, waits for the left one's, compares with
/// what that PE has in its upper half, and reads and adds words.
__global__ void exchange(Halves halves, uint64_t round, int* wrong) {
  const int pe = nvshmem_my_pe(), n = nvshmem_n_pes(), to = (pe + 1) % n, from = (pe + n - 1) % n;
  nvshmemx_putmem_signal_block(halves.in, halves.out, halves.bytes, halves.words, round, NVSHMEM_SIGNAL_SET, to);
  if (threadIdx.x == 0) nvshmem_signal_wait_until(halves.words, NVSHMEM_CMP_EQ, round);
  __syncthreads();
  const volatile unsigned char* const in = halves.in;
  for (size_t i = threadIdx.x; i < halves.bytes; i += blockDim.x) {
    if (in[i] != gpu::pattern(i, from)) atomicAdd(wrong, 1);
  }
  if (threadIdx.x == 0) {
    nvshmem_uint64_atomic_add(halves.words + 1, 100, to);
    if (nvshmem_uchar_g(halves.out + 1000, to) != gpu::pattern(1000, to)) atomicAdd(wrong, 1);
    const auto* const mapped = static_cast<const unsigned char*>(nvshmem_ptr(halves.out, to));
    if (mapped == nullptr || mapped[2000] != gpu::pattern(2000, to)) atomicAdd(wrong, 1);
  }
  nvshmemx_barrier_all_block();
}

void use_by_kernels(const Memory& memory, unsigned char* alias) {
  const Halves halves(alias, memory);
  int* const wrong = gpu::on_gpu(std::vector<int>{0});
  for (uint64_t round = 1; round <= 3; ++round) {
    fill(memory);
    exchange<<<1, 256, 0, stream>>>(halves, round, wrong);
    gpu::done("exchange");
    that(gpu::fetch(wrong, 1)[0] == 0, "put_signal, wait, g and ptr in a kernel");
    that(gpu::fetch(halves.words, 2) == std::vector<uint64_t>{round, 100}, "signal and atomic of kernels");
    check_arrival(memory, "kernels");
    nvshmem_barrier_all();
  }
  must(cudaFree(wrong), "cudaFree");
}

void use(const Memory& memory, unsigned char* alias, bool mapped) {
  use_by_host(memory, alias);
  if (!mapped) return;
  use_by_stream(memory, alias);
  use_by_kernels(memory, alias);
}

void test_use(bool mapped) {
  const Memory memory({3 * kUnit, kUnit});
  const auto physical = [] {
    struct heddle_heap_info info {};
    info.size = sizeof info;
    that(heddle_heap_info(&info) == 0, "heap_info");
    return info.physical;
  };
  const uint64_t before = physical();
  gpu::give(memory.get() + 5, std::vector<unsigned char>{77});
  unsigned char* alias = add(memory);
  if (!that(alias != nullptr && alias != memory.get(), "register")) return;
  that(gpu::fetch(alias + 5, 1)[0] == 77, "contents stay");
  that(physical() == before + memory.bytes(), "counted as memory");
  that(nvshmem_ptr(alias, me) == alias && (nvshmem_ptr(alias, right) != nullptr) == (mapped || gpu::n == 1), "ptr");
  use(memory, alias, mapped);

  // The heap grows beside it, and both work on.
  auto* const block = gpu::allocate<unsigned char>(64 * kUnit);
  nvshmem_uint64_p(reinterpret_cast<uint64_t*>(block), 9, right);
  nvshmem_barrier_all();
  that(nvshmem_uint64_g(reinterpret_cast<uint64_t*>(block), me) == 9, "a block beside it");
  use(memory, alias, mapped);
  nvshmem_free(alias);
  said("free of a registered buffer", {"lies in a registered buffer", "nvshmemx_buffer_unregister_symmetric"});
  that(nvshmemx_buffer_unregister_symmetric(alias, kUnit) == NVSHMEMX_ERROR_INVALID_VALUE, "another size");
  said("unregister with another size", {"was registered with 8388608 bytes"});

  // A second buffer beside the first, whose own mapping goes before it is unregistered.
  unsigned char* other = nullptr;
  {
    const Memory second({2 * kUnit});
    other = add(second);
    that(other != nullptr && other != alias, "a second buffer");
    use(second, other, mapped);
    use(memory, alias, mapped);
    nvshmem_barrier_all();
  }
  nvshmem_uint64_p(reinterpret_cast<uint64_t*>(other + kUnit), 123, right);
  nvshmem_barrier_all();
  that(nvshmem_uint64_g(reinterpret_cast<uint64_t*>(other + kUnit), me) == 123, "without the program's mapping");
  that(nvshmemx_buffer_unregister_symmetric(other, 2 * kUnit) == 0, "unregister the second");
  use(memory, alias, mapped);
  nvshmem_free(block);

  that(nvshmemx_buffer_unregister_symmetric(alias, memory.bytes()) == 0, "unregister");
  that(physical() <= before + 16 * kUnit, "memory afterwards, but for a spare chunk");
  check_arrival(memory, "the own mapping after unregister");
  that(nvshmemx_buffer_unregister_symmetric(alias, memory.bytes()) == NVSHMEMX_ERROR_INVALID_VALUE, "twice");
  said("unregister twice", {"registered now"});
  for (int round = 0; round < 3; ++round) {
    alias = add(memory);
    if (!that(alias != nullptr, "register again")) return;
    use(memory, alias, mapped && round == 2);
    that(nvshmemx_buffer_unregister_symmetric(alias, memory.bytes()) == 0, "unregister again");
  }

  // At a place of the program's choice.
  unsigned char* const place = alias + 16 * kUnit;
  const auto add_at = [](const Memory& what, void* at) {
    return nvshmemx_buffer_register_symmetric_at_preferred_address(what.get(), what.bytes(), at, 0);
  };
  that(add_at(memory, place) == place, "register at an address");
  use(memory, place, mapped);
  const Memory second({2 * kUnit});
  that(add_at(second, place) == nullptr, "a taken address");
  said("a preferred address that is taken", {"meet memory of the heap or another registered buffer"});
  that(nvshmemx_buffer_unregister_symmetric(place, memory.bytes()) == 0, "unregister there");
  that(*heddle_last_error() == '\0', "no error is left");
}

// ---- what is refused

void test_refusals() {
  const Memory good({2 * kUnit});
  const Memory hidden(device, CU_MEM_HANDLE_TYPE_NONE, {kUnit});
  const Memory large({size_t{512} << 20});
  unsigned char* classic = nullptr;
  must(cudaMalloc(&classic, 4 * kUnit), "cudaMalloc");
  const auto aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(classic) + kUnit - 1) / kUnit * kUnit);
  unsigned char* const block = gpu::allocate<unsigned char>(kUnit);
  // PE 1 alone, or the only one, passes what is wrong.
  const int culprit = gpu::n > 1 ? 1 : 0;
  const std::string name = "PE " + std::to_string(culprit) + ": ";
  const auto refused = [&](const char* what, void* buffer, size_t bytes, std::initializer_list<const char*> words) {
    void* const alias = me == culprit ? nvshmemx_buffer_register_symmetric(buffer, bytes, 0)
                                      : nvshmemx_buffer_register_symmetric(good.get(), good.bytes(), 0);
    that(alias == nullptr, what);
    said(what, words);
  };
  refused("NULL", nullptr, kUnit, {name.c_str(), "is empty"});
  refused("0 bytes", good.get(), 0, {name.c_str(), "is empty"});
  refused("misaligned address", good.get() + 4096, kUnit, {name.c_str(), "multiples of 2097152"});
  refused("misaligned size", good.get(), kUnit + 64, {name.c_str(), "multiples of 2097152"});
  refused("cudaMalloc", aligned, kUnit, {name.c_str(), "is not CUDA VMM memory", "cuMemCreate"});
  refused("not exportable", hidden.get(), kUnit, {name.c_str(), "requestedHandleTypes", "POSIX_FILE_DESCRIPTOR"});
  refused("more than there is", good.get(), good.bytes() + kUnit, {name.c_str(), "is not CUDA VMM memory"});
  refused("the middle of a mapping", large.get() + kUnit, kUnit, {name.c_str(), "from the start of its mapping"});
  refused("the heap's own memory", reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(block) / kUnit * kUnit), kUnit,
          {name.c_str(), "meets the symmetric heaps"});
  std::vector<unsigned char> on_host(3 * kUnit);
  refused("memory of the host",
          reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(on_host.data()) + kUnit - 1) / kUnit * kUnit), kUnit,
          {name.c_str(), "is not CUDA VMM memory"});
  if (gpu::n > 1) refused("different sizes", good.get(), kUnit, {"size in bytes differs: 4194304 on PE 0"});
  int devices = 0;
  must(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  if (devices > 1) {
    const Memory elsewhere((device + 1) % devices, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, {kUnit});
    refused("another GPU", elsewhere.get(), kUnit, {name.c_str(), "the heap of this PE on GPU", "location.id"});
  } else {
    std::printf("registered: one GPU is visible, so memory of another one was not tried\n");
  }
  that(add(large) == nullptr, "no room");
  said("no room", {"no room for a buffer of 536870912 bytes", "NVSHMEM_SYMMETRIC_SIZE"});
  that(nvshmemx_buffer_register_symmetric(good.get(), good.bytes(), 1) == nullptr, "flags");
  said("flags", {"flags 1", "pass 0"});
  must(cudaFree(classic), "cudaFree");
  nvshmem_free(block);
  must(cudaDeviceSynchronize(), "nothing broke the GPU");
}

void test_heap_by_cuda_malloc() {
  const Memory memory({kUnit});
  that(add(memory) == nullptr, "register");
  said("a heap by cudaMalloc", {"only CUDA VMM memory", "with heaps by cudaMalloc", "NVSHMEM_DISABLE_CUDA_VMM"});
  that(nvshmemx_buffer_unregister_symmetric(memory.get(), kUnit) == NVSHMEMX_ERROR_NOT_SUPPORTED, "unregister");
  heddle_clear_error();
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  gpu::start();
  must(cudaGetDevice(&device), "cudaGetDevice");
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  if (mode == "refused") {
    test_heap_by_cuda_malloc();
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return gpu::finish("registered refused");
  }
  test_use(mode != "host");
  if (mode != "use") {
    test_refusals();
    test_use(mode != "host");
  }
  must(cudaStreamDestroy(stream), "cudaStreamDestroy");
  // One is left to finalize, and the program's own mapping goes only after that.
  const Memory rest({kUnit});
  that(add(rest) != nullptr, "what is left at the end");
  const int code = gpu::finish("registered");
  must(cudaDeviceSynchronize(), "after finalize");
  const bool stays = gpu::fetch(rest.get(), 1).size() == 1;
  return stays ? code : 1;
}
