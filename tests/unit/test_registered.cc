// Memory of the program that becomes symmetric: what reaches it, what is refused and with which words, what is left
// after failures. On the driver in host memory, threads as PEs.
#include <cstdint>
#include <initializer_list>

#include "include/nvshmem_types.h"
#include "runtime/stream_ops.h"
#include "unit/gpu_world.h"

using namespace heddle;        // NOLINT
using namespace heddle::test;  // NOLINT

namespace {

constexpr uint64_t kUnit = FakeCuda::kGranularity;
const char* const kByFabric = "NVSHMEM_CUMEM_HANDLE_TYPE=FABRIC";
const char* const kWithFaults = "HEDDLE_FAULT=fail=1000000";

CUmemAllocationHandleType handles_of(const World& world) {
  return world.settings().cumem_handle_type == "FABRIC" ? static_cast<CUmemAllocationHandleType>(8)
                                                        : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

/// Allocations of the program's own, one behind the other.
class UserMemory {
 public:
  UserMemory(int gpu, CUmemAllocationHandleType type, std::initializer_list<uint64_t> sizes) {
    const cuda::Driver& driver = FakeCuda::the().table();
    for (const uint64_t size : sizes) bytes_ += size;
    must(driver.MemAddressReserve(&base_, bytes_, kUnit, 0, 0));
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = type;
    properties.location = {};
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = gpu;
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUdeviceptr at = base_;
    for (const uint64_t size : sizes) {
      CUmemGenericAllocationHandle handle = 0;
      must(driver.MemCreate(&handle, size, &properties, 0));
      must(driver.MemMap(at, size, 0, handle, 0));
      must(driver.MemSetAccess(at, size, &access, 1));
      must(driver.MemRelease(handle));
      at += size;
    }
  }
  UserMemory(World& world, std::initializer_list<uint64_t> sizes)
      : UserMemory(world.fabric().gpu()->device(), handles_of(world), sizes) {}
  ~UserMemory() {
    const cuda::Driver& driver = FakeCuda::the().table();
    must(driver.MemUnmap(base_, bytes_));
    must(driver.MemAddressFree(base_, bytes_));
  }
  UserMemory(const UserMemory&) = delete;
  UserMemory& operator=(const UserMemory&) = delete;

  char* get() const { return reinterpret_cast<char*>(base_); }
  uint64_t bytes() const { return bytes_; }

 private:
  static void must(CUresult result) {
    if (result != CUDA_SUCCESS) std::abort();
  }
  CUdeviceptr base_ = 0;
  uint64_t bytes_ = 0;
};

Status add(World& world, const void* buffer, uint64_t bytes, char** alias, const void* preferred = nullptr) {
  void* at = nullptr;
  const Status status = world.register_buffer("register", buffer, bytes, preferred, Status::ok(), &at);
  *alias = static_cast<char*>(at);
  return status;
}

Status remove(World& world, const void* alias, uint64_t bytes) {
  return world.unregister_buffer("unregister", alias, bytes);
}

/// `status` is `code`, with all `parts` in its text.
Status expect_refused(const Status& status, Code code, std::initializer_list<const char*> parts) {
  for (const char* part : parts) {
    if (status.text().find(part) != std::string::npos && status.code() == code) continue;
    return error(Code::kInternal, "no \"%s\", or another code, in \"%s\"", part, status.text().c_str());
  }
  return Status::ok();
}

/// Data, atomics and signals by `alias` come to the neighbour's buffer, and are seen through its own mapping.
Status use(World& world, char* alias, const char* buffer, uint64_t bytes) {
  const int me = world.my_pe(), n = world.n_pes(), right = (me + 1) % n, left = (me + n - 1) % n;
  auto* const signal = reinterpret_cast<uint64_t*>(alias + bytes - 8);
  const std::vector<char> message(bytes - 8, static_cast<char>(me + 1));
  std::vector<char> got(bytes - 8);
  const uint64_t zero = 0;
  host::put(world, "put", signal, &zero, 8, me);
  HEDDLE_RETURN_IF_ERROR(world.barrier_all());
  host::put_signal(world, "put_signal", alias, message.data(), message.size(), signal, 5, NVSHMEM_SIGNAL_SET, right);
  HEDDLE_RETURN_IF_ERROR(world.barrier_all());
  host::atomic<AtomicOp::kAdd, false>(world, "add", signal, uint64_t{2}, uint64_t{0}, right);
  HEDDLE_RETURN_IF_ERROR(world.barrier_all());
  HEDDLE_RETURN_IF_ERROR(expect(own(world, signal) == 7, "signal and atomic"));
  HEDDLE_RETURN_IF_ERROR(
      expect(std::vector<char>(buffer, buffer + bytes - 8) == std::vector<char>(bytes - 8, static_cast<char>(left + 1)),
             "what the program sees at its own address"));
  host::get(world, "get", got.data(), alias, got.size(), right);
  HEDDLE_RETURN_IF_ERROR(expect(got == std::vector<char>(bytes - 8, static_cast<char>(me + 1)), "get"));
  return world.barrier_all();
}

}  // namespace

TEST_CASE("a registered buffer, of one or several allocations, is reached by its alias like the heap") {
  const FakeCuda::Use driver;
  FakeCuda::the().traits.fabric_attribute = true;
  const int n_pes = GENERATE(1, 2, 3);
  const char* const kind = GENERATE("NVSHMEM_CUMEM_HANDLE_TYPE=FILE_DESCRIPTOR", kByFabric, kWithFaults);
  run_on_gpus(
      n_pes,
      [](World& world) -> Status {
        const UserMemory memory(world, {2 * kUnit, kUnit});
        const uint64_t bytes = memory.bytes(), before = world.view().extent;
        char* block = nullptr;
        HEDDLE_RETURN_IF_ERROR(make_block(world, 1000, &block));
        memory.get()[17] = 42;  // contents stay
        char* alias = nullptr;
        HEDDLE_RETURN_IF_ERROR(add(world, memory.get(), bytes, &alias));
        HEDDLE_RETURN_IF_ERROR(expect(own(world, alias + 17) == 42, "contents"));
        const device::HeapView& view = world.mapped_view();
        HEDDLE_RETURN_IF_ERROR(expect(device::heap_offset(view, alias) == before, "next to the first chunk"));
        HEDDLE_RETURN_IF_ERROR(
            expect(view.extent == before + bytes && world.view().extent == view.extent, "extent of both views"));
        HEDDLE_RETURN_IF_ERROR(expect(device::in_heap(view, alias + bytes - 1, 1), "inside"));
        HEDDLE_RETURN_IF_ERROR(use(world, alias, memory.get(), bytes));

        // The heap grows around it, and shrinks.
        char* large = nullptr;
        HEDDLE_RETURN_IF_ERROR(make_block(world, 3 * kUnit, &large));
        HEDDLE_RETURN_IF_ERROR(expect(large >= alias + bytes, "behind the buffer"));
        HEDDLE_RETURN_IF_ERROR(use(world, large, large, 3 * kUnit));
        HEDDLE_RETURN_IF_ERROR(use(world, alias, memory.get(), bytes));
        HEDDLE_RETURN_IF_ERROR(expect_refused(world.free(alias), Code::kInvalidValue,
                                              {"lies in a registered buffer", "nvshmemx_buffer_unregister_symmetric"}));
        HEDDLE_RETURN_IF_ERROR(expect_refused(world.free(alias + 8), Code::kInvalidValue, {"registered buffer"}));
        HEDDLE_RETURN_IF_ERROR(world.free(large));
        HEDDLE_RETURN_IF_ERROR(world.free(block));
        HEDDLE_RETURN_IF_ERROR(use(world, alias, memory.get(), bytes));

        HEDDLE_RETURN_IF_ERROR(expect_refused(remove(world, alias + kUnit, bytes), Code::kInvalidValue,
                                              {"PE 0: ", "is not what nvshmemx_buffer_register_symmetric returned"}));
        HEDDLE_RETURN_IF_ERROR(expect_refused(remove(world, alias, kUnit), Code::kInvalidValue,
                                              {"was registered with 6291456 bytes, not "}));
        memory.get()[17] = 43;
        HEDDLE_RETURN_IF_ERROR(remove(world, alias, bytes));
        HEDDLE_RETURN_IF_ERROR(expect(memory.get()[17] == 43, "the program's own mapping"));
        HEDDLE_RETURN_IF_ERROR(expect(world.mapped_view().extent == before, "extent afterwards"));
        HEDDLE_RETURN_IF_ERROR(expect_refused(remove(world, alias, bytes), Code::kInvalidValue, {"registered now"}));

        char* again = nullptr;
        HEDDLE_RETURN_IF_ERROR(add(world, memory.get(), bytes, &again));
        HEDDLE_RETURN_IF_ERROR(expect(again == alias, "the same place"));
        HEDDLE_RETURN_IF_ERROR(use(world, again, memory.get(), bytes));
        return remove(world, again, bytes);
      },
      gpu_settings({kind}));
}

TEST_CASE("on_stream calls reach registered buffers, as either side") {
  const FakeCuda::Use driver;
  run_on_gpus(2, [](World& world) -> Status {
    const UserMemory memory(world, {kUnit});
    char* alias = nullptr;
    HEDDLE_RETURN_IF_ERROR(add(world, memory.get(), kUnit, &alias));
    const int other = 1 - world.my_pe();
    const TestStream queue(world);
    const std::vector<char> message(70000, static_cast<char>(world.my_pe() + 3));
    auto* const signal = reinterpret_cast<uint64_t*>(alias + kUnit / 2);
    HEDDLE_RETURN_IF_ERROR(world.fabric().clear(world.view().id_base + static_cast<uint32_t>(world.my_pe()),
                                                device::heap_offset(world.view(), alias), kUnit));
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    HEDDLE_RETURN_IF_ERROR(stream::put_signal(world, alias, message.data(), message.size(), signal, 9,
                                              NVSHMEM_SIGNAL_SET, other, queue.get()));
    HEDDLE_RETURN_IF_ERROR(stream::barrier(world, true, queue.get()));
    queue.wait();
    HEDDLE_RETURN_IF_ERROR(expect(own(world, signal) == 9, "signal"));
    HEDDLE_RETURN_IF_ERROR(expect(memory.get()[69999] == static_cast<char>(other + 3), "data"));
    // The program's own address as the local side.
    HEDDLE_RETURN_IF_ERROR(stream::get(world, memory.get() + 70000, alias, 70000, other, queue.get()));
    queue.wait();
    HEDDLE_RETURN_IF_ERROR(expect(own(world, alias + 139999) == static_cast<char>(world.my_pe() + 3), "get"));
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    return remove(world, alias, kUnit);
  });
}

TEST_CASE("a buffer goes to the preferred address, or the call fails") {
  const FakeCuda::Use driver;
  run_on_gpus(2, [](World& world) -> Status {
    const UserMemory memory(world, {kUnit}), second(world, {kUnit});
    char* const heap = world.view().my_heap;
    char* alias = nullptr;
    HEDDLE_RETURN_IF_ERROR(add(world, memory.get(), kUnit, &alias, heap + 3 * kUnit));
    HEDDLE_RETURN_IF_ERROR(expect(alias == heap + 3 * kUnit, "the place"));
    HEDDLE_RETURN_IF_ERROR(use(world, alias, memory.get(), kUnit));
    char* none = nullptr;
    for (const uint64_t taken : {uint64_t{0}, 3 * kUnit}) {
      HEDDLE_RETURN_IF_ERROR(expect_refused(add(world, second.get(), kUnit, &none, heap + taken), Code::kInvalidValue,
                                            {"preferred address, heap offset", "meet memory of the heap"}));
    }
    for (const uint64_t wrong : {uint64_t{18 << 20}, kUnit + 4096, uint64_t{0} - kUnit}) {
      HEDDLE_RETURN_IF_ERROR(expect_refused(add(world, second.get(), kUnit, &none, heap + wrong), Code::kInvalidValue,
                                            {"PE 0: the preferred address", "multiple of 2097152"}));
    }
    HEDDLE_RETURN_IF_ERROR(expect_refused(
        add(world, second.get(), kUnit, &none, heap + (4 + static_cast<uint64_t>(world.my_pe())) * kUnit),
        Code::kSymmetry, {"heap offset of the preferred address differs: 8388608 on PE 0, 10485760 on PE 1"}));
    HEDDLE_RETURN_IF_ERROR(
        expect_refused(add(world, second.get(), kUnit, &none, world.my_pe() == 0 ? nullptr : heap + 4 * kUnit),
                       Code::kSymmetry, {"heap offset of the preferred address differs"}));
    // The hole before it is the heap's.
    char* block = nullptr;
    HEDDLE_RETURN_IF_ERROR(make_block(world, 2 * kUnit, &block));
    HEDDLE_RETURN_IF_ERROR(expect(block + 2 * kUnit <= alias, "below"));
    HEDDLE_RETURN_IF_ERROR(expect(none == nullptr, "no alias of a failure"));
    return remove(world, alias, kUnit);
  });
}

TEST_CASE("what cannot become symmetric on one PE is refused on all, with the remedy") {
  const FakeCuda::Use driver;
  run_on_gpus(3, [](World& world) -> Status {
    const int me = world.my_pe(), gpu = world.fabric().gpu()->device();
    const auto type = handles_of(world);
    const UserMemory good(world, {kUnit, kUnit});
    const UserMemory unexportable(gpu, CU_MEM_HANDLE_TYPE_NONE, {kUnit});
    const UserMemory elsewhere(1 - gpu, type, {kUnit});
    const UserMemory large(gpu, type, {18 << 20});
    CUdeviceptr classic = 0;
    const ContextScope scope(*world.fabric().gpu());
    HEDDLE_RETURN_IF_ERROR(expect(FakeCuda::the().table().MemAlloc(&classic, kUnit) == CUDA_SUCCESS, "MemAlloc"));
    char* none = nullptr;
    // PE 1 alone passes something wrong.
    const auto refused = [&](const void* wrong, uint64_t bytes, Code code, std::initializer_list<const char*> parts) {
      const Status status = me == 1 ? add(world, wrong, bytes, &none) : add(world, good.get(), 2 * kUnit, &none);
      HEDDLE_RETURN_IF_ERROR(expect(none == nullptr, "no alias"));
      return expect_refused(status, code, parts);
    };
    HEDDLE_RETURN_IF_ERROR(refused(nullptr, kUnit, Code::kInvalidValue, {"PE 1: [", "is empty"}));
    HEDDLE_RETURN_IF_ERROR(refused(good.get(), 0, Code::kInvalidValue, {"PE 1: [", "+0 bytes) is empty"}));
    HEDDLE_RETURN_IF_ERROR(refused(good.get() + 4096, kUnit, Code::kInvalidValue,
                                   {"PE 1: [", "address and size must be multiples of 2097152"}));
    HEDDLE_RETURN_IF_ERROR(refused(good.get(), kUnit + 1, Code::kInvalidValue, {"PE 1", "multiples of 2097152"}));
    HEDDLE_RETURN_IF_ERROR(refused(good.get(), ~uint64_t{0} - kUnit + 1, Code::kInvalidValue, {"the last address"}));
    HEDDLE_RETURN_IF_ERROR(
        refused(good.get(), kUnit, Code::kSymmetry, {"size in bytes differs: 4194304 on PE 0, 2097152 on PE 1"}));
    HEDDLE_RETURN_IF_ERROR(refused(good.get(), 4 * kUnit, Code::kInvalidValue, {"PE 1", "is not CUDA VMM memory"}));
    // That of cudaMalloc may lie anywhere here; the unit within it is what counts.
    const auto* const aligned = reinterpret_cast<const void*>((classic + kUnit - 1) / kUnit * kUnit);
    HEDDLE_RETURN_IF_ERROR(refused(aligned, kUnit, Code::kInvalidValue,
                                   {"PE 1: ", "is not CUDA VMM memory (cuMemRetainAllocationHandle", "cuMemCreate"}));
    HEDDLE_RETURN_IF_ERROR(refused(unexportable.get(), kUnit, Code::kInvalidValue,
                                   {"PE 1: ", "cannot be exported", "(its handle types: 0x0)",
                                    "requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR"}));
    HEDDLE_RETURN_IF_ERROR(refused(elsewhere.get(), kUnit, Code::kInvalidValue,
                                   {"PE 1: ", "is on GPU 0, the heap of this PE on GPU 1", "location.id = 1"}));
    HEDDLE_RETURN_IF_ERROR(refused(large.get() + kUnit, kUnit, Code::kInvalidValue,
                                   {"PE 1: ", "+18874368 bytes); register it from the start of its mapping"}));
    HEDDLE_RETURN_IF_ERROR(
        refused(world.view().my_heap, kUnit, Code::kInvalidValue, {"PE 1: ", "meets the symmetric heaps"}));
    HEDDLE_RETURN_IF_ERROR(expect_refused(add(world, large.get(), 18 << 20, &none), Code::kOutOfMemory,
                                          {"18874368 bytes", "largest gap is 16777216", "limit 18874368",
                                           "with memory 2097152", "NVSHMEM_SYMMETRIC_SIZE"}));
    // Nothing is left of all that.
    HEDDLE_RETURN_IF_ERROR(expect(FakeCuda::the().table().MemFree(classic) == CUDA_SUCCESS, "MemFree"));
    char* alias = nullptr;
    HEDDLE_RETURN_IF_ERROR(add(world, good.get(), 2 * kUnit, &alias));
    HEDDLE_RETURN_IF_ERROR(use(world, alias, good.get(), 2 * kUnit));
    return remove(world, alias, 2 * kUnit);
  });
}

TEST_CASE("where heaps are not CUDA VMM memory, nothing of the program's becomes symmetric") {
  const FakeCuda::Use driver;
  SECTION("cudaMalloc") {
    run_on_gpus(
        2,
        [](World& world) -> Status {
          const UserMemory memory(world, {kUnit});
          char* none = nullptr;
          HEDDLE_RETURN_IF_ERROR(expect_refused(
              add(world, memory.get(), kUnit, &none), Code::kNotSupported,
              {"PE 0: only CUDA VMM memory", "fabric is peer, with heaps by cudaMalloc", "NVSHMEM_DISABLE_CUDA_VMM"}));
          return expect_refused(remove(world, memory.get(), kUnit), Code::kNotSupported, {"only CUDA VMM memory"});
        },
        gpu_settings({"NVSHMEM_DISABLE_CUDA_VMM=1"}));
  }
  SECTION("host memory") {
    require_all_ok(run_world(2, test_settings(), [](World& world) -> Status {
      char* none = nullptr;
      return expect_refused(add(world, &none, kUnit, &none), Code::kNotSupported,
                            {"fabric is host: copy into a block"});
    }));
  }
}

TEST_CASE("failures in the middle are undone on all PEs, and the next call works") {
  const FakeCuda::Use driver;
  const auto again = [](World& world, const UserMemory& memory) -> Status {
    char *alias = nullptr, *block = nullptr;
    HEDDLE_RETURN_IF_ERROR(add(world, memory.get(), memory.bytes(), &alias));
    HEDDLE_RETURN_IF_ERROR(use(world, alias, memory.get(), memory.bytes()));
    HEDDLE_RETURN_IF_ERROR(make_block(world, 3 * kUnit, &block));
    HEDDLE_RETURN_IF_ERROR(remove(world, alias, memory.bytes()));
    return world.free(block);
  };
  SECTION("of taking over or binding") {
    // The heap's own first bind is the first call.
    const char* const plan =
        GENERATE("HEDDLE_FAULT=fail=adopt:2@pe=1", "HEDDLE_FAULT=fail=bind:2@pe=1", "HEDDLE_FAULT=fail=bind:3@pe=1");
    run_on_gpus(
        2,
        [&](World& world) -> Status {
          const UserMemory memory(world, {kUnit, kUnit, kUnit});
          char* none = nullptr;
          HEDDLE_RETURN_IF_ERROR(expect_refused(add(world, memory.get(), memory.bytes(), &none), Code::kInternal,
                                                {"PE 1", "fault injected"}));
          HEDDLE_RETURN_IF_ERROR(expect(world.heap_figures().physical == kUnit && none == nullptr, "undone"));
          return again(world, memory);
        },
        gpu_settings({plan}));
  }
  SECTION("of mapping in the peers") {
    run_on_gpus(4, [&](World& world) -> Status {
      const UserMemory memory(world, {kUnit, kUnit, kUnit});
      const auto fail = [&](bool yes) {
        HEDDLE_RETURN_IF_ERROR(world.sync_all());
        FakeCuda::the().imports_fail = yes;
        return world.sync_all();
      };
      HEDDLE_RETURN_IF_ERROR(fail(true));
      char* none = nullptr;
      HEDDLE_RETURN_IF_ERROR(expect_refused(add(world, memory.get(), memory.bytes(), &none), Code::kOutOfMemory,
                                            {"cuMemImportFromShareableHandle", "mapping PE 0's memory"}));
      HEDDLE_RETURN_IF_ERROR(fail(false));
      HEDDLE_RETURN_IF_ERROR(expect(world.heap_figures().physical == kUnit, "undone"));
      return again(world, memory);
    });
  }
}

TEST_CASE("registrations that are left at the end are let go, and outlive the program's own mapping") {
  const FakeCuda::Use driver;
  run_on_gpus(2, [](World& world) -> Status {
    char* alias = nullptr;
    {
      const UserMemory memory(world, {kUnit, kUnit});
      HEDDLE_RETURN_IF_ERROR(add(world, memory.get(), 2 * kUnit, &alias));
    }
    host::p(world, "p", reinterpret_cast<int*>(alias + kUnit), 7, 1 - world.my_pe());
    HEDDLE_RETURN_IF_ERROR(world.barrier_all());
    return expect(own(world, reinterpret_cast<int*>(alias + kUnit)) == 7, "the library's own hold on the memory");
  });
}
