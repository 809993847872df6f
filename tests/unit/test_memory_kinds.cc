// Kinds of memory of GPU heaps: CUDA VMM by descriptors and by fabric handles, cudaMalloc with CUDA IPC; what each
// refuses and says. What all of them do alike is in test_peer_world.cc. On the driver in host memory, threads as PEs.
#include <set>

#include "runtime/gpu.h"
#include "unit/gpu_world.h"
#include "unit/loopback_courier.h"

using namespace heddle;        // NOLINT
using namespace heddle::test;  // NOLINT

namespace {

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

const char* const kClassic = "NVSHMEM_DISABLE_CUDA_VMM=1";
const char* const kByFabric = "NVSHMEM_CUMEM_HANDLE_TYPE=FABRIC";

/// Init fails on every PE with one text, which has all `parts`.
void require_refused(const std::vector<Settings>& settings, Code code, const std::vector<std::string>& parts) {
  const std::vector<Status> statuses = run_world(settings, [](World&) { return Status::ok(); });
  for (const Status& status : statuses) {
    INFO(status.text());
    CHECK(status.code() == code);
    CHECK(status.text() == statuses[0].text());
    for (const std::string& part : parts) CHECK(has(status.text(), part));
  }
  CHECK(FakeCuda::the().leaks() == "");
}

std::unique_ptr<Fabric> fabric_of(std::vector<std::string> list, std::unique_ptr<Courier> courier = nullptr) {
  std::unique_ptr<Fabric> fabric;
  const Status made = make_fabric(gpu_settings(std::move(list)), std::move(courier), &fabric);
  INFO(made.text());
  REQUIRE(made.is_ok());
  return fabric;
}

}  // namespace

TEST_CASE("a heap by cudaMalloc has all of its memory at once, anywhere, and reaches peers by a table") {
  const FakeCuda::Use driver;
  const std::string also = GENERATE("HEDDLE_FAULT=", "HEDDLE_FAULT=fail=1000000");
  const bool mapped = also == "HEDDLE_FAULT=";
  run_on_gpus(
      3,
      [mapped](World& world) -> Status {
        const device::HeapView& view = world.mapped_view();
        HEDDLE_RETURN_IF_ERROR(expect(view.direct == (mapped ? device::kByTable : device::kNotMapped), "by table"));
        HEDDLE_RETURN_IF_ERROR(expect(view.distances[world.my_pe()] == 0, "own distance"));
        HEDDLE_RETURN_IF_ERROR(expect(world.heap_figures().physical == world.heap_figures().limit, "all memory"));
        uint64_t* word = nullptr;
        HEDDLE_RETURN_IF_ERROR(make_block(world, 1, &word));
        std::set<const char*> places;
        for (int pe = 0; pe < world.n_pes(); ++pe) {
          host::atomic<AtomicOp::kAdd, false>(world, "add", word, uint64_t{1} << (8 * world.my_pe()), uint64_t{0}, pe);
          if (mapped) places.insert(device::translate(view, reinterpret_cast<char*>(word), pe));
        }
        HEDDLE_RETURN_IF_ERROR(world.barrier_all());
        HEDDLE_RETURN_IF_ERROR(expect(own(world, word) == 0x010101, "everybody's sum"));
        HEDDLE_RETURN_IF_ERROR(expect(!mapped || places.size() == 3, "three places"));
        char* most = nullptr;
        HEDDLE_RETURN_IF_ERROR(make_block(world, 12 << 20, &most));  // beyond any first chunk
        host::put(world, "put", most + (12 << 20) - 8, word, 8, (world.my_pe() + 1) % 3);
        HEDDLE_RETURN_IF_ERROR(world.barrier_all());
        HEDDLE_RETURN_IF_ERROR(
            expect(own(world, reinterpret_cast<uint64_t*>(most + (12 << 20) - 8)) == 0x010101, "the last word"));
        void* more = nullptr;
        const Status full = world.allocate("malloc", 8 << 20, 256, false, Status::ok(), &more);
        HEDDLE_RETURN_IF_ERROR(expect(full.code() == Code::kOutOfMemory && more == nullptr, "full"));
        for (const char* part :
             {"asked 8388608 bytes", "in use 12583168", "limit 18874368", "NVSHMEM_SYMMETRIC_SIZE"}) {
          if (full.text().find(part) == std::string::npos) return error(Code::kInternal, "%s", full.text().c_str());
        }
        HEDDLE_RETURN_IF_ERROR(world.free(most));
        HEDDLE_RETURN_IF_ERROR(world.free(word));
        return expect(world.heap_figures().physical == world.heap_figures().limit, "nothing is given back");
      },
      gpu_settings({kClassic, also}));
}

TEST_CASE("GPUs without VMM have heaps by cudaMalloc, without being asked") {
  const FakeCuda::Use driver;
  FakeCuda::the().traits.vmm = false;
  run_on_gpus(2, [](World& world) {
    return expect(world.mapped_view().direct == device::kByTable && std::string(world.fabric().name()) == "peer",
                  "by table");
  });
  const auto fabric = fabric_of({});
  REQUIRE(fabric->remarks().size() == 1);
  CHECK(has(fabric->remarks()[0], "by cudaMalloc, shared by CUDA IPC: GPU 0 has no virtual memory management"));
}

TEST_CASE("PEs with different kinds of memory are refused on all, with a PE of each kind and the remedy") {
  const FakeCuda::Use driver;
  FakeCuda::the().traits.fabric_attribute = true;
  const Settings vmm = gpu_settings(), classic = gpu_settings({kClassic}), by_fabric = gpu_settings({kByFabric});
  SECTION("VMM and cudaMalloc") {
    require_refused({vmm, vmm, classic}, Code::kNotSupported,
                    {"the heap of PE 0 is CUDA VMM memory, shared by file descriptors",
                     "that of PE 2 is cudaMalloc memory, shared by CUDA IPC", "NVSHMEM_DISABLE_CUDA_VMM"});
  }
  SECTION("one GPU without VMM") {
    FakeCuda::the().traits.without_vmm = {1};
    require_refused({vmm, vmm}, Code::kNotSupported,
                    {"PE 0 is CUDA VMM memory", "PE 1 is cudaMalloc memory", "NVSHMEM_DISABLE_CUDA_VMM=1"});
    run_on_gpus(
        2, [](World& world) { return world.barrier_all(); }, classic);
  }
  SECTION("descriptors and fabric handles") {
    require_refused({by_fabric, vmm}, Code::kNotSupported,
                    {"PE 0 is CUDA VMM memory, shared by fabric handles", "PE 1 is CUDA VMM memory, shared by file",
                     "NVSHMEM_CUMEM_HANDLE_TYPE"});
  }
  SECTION("host memory and GPU memory") {
    Settings on_host = vmm;
    on_host.fabric = "host";
    require_refused({vmm, on_host}, Code::kNotSupported,
                    {"PE 1 uses no GPU (fabric host)", "PE 0 uses one (fabric peer)", "HEDDLE_FABRIC=host"});
    require_refused({on_host, classic}, Code::kNotSupported, {"PE 0 uses no GPU", "PE 1 uses one"});
  }
}

TEST_CASE("CUDA IPC that fails is told on all PEs: threads of one process, containers, drivers") {
  const FakeCuda::Use driver;
  const std::vector<Settings> two(2, gpu_settings({kClassic}));
  SECTION("one process") {
    FakeCuda::the().traits.ipc_in_one_process = false;
    require_refused(
        two, Code::kInternal,
        {"cuIpcOpenMemHandle", "CUDA_ERROR_INVALID_CONTEXT", "PEs that are threads of one process need CUDA VMM"});
  }
  SECTION("no handles") {
    FakeCuda::the().traits.failures["IpcGetMemHandle"] = CUDA_ERROR_NOT_SUPPORTED;
    require_refused(two, Code::kNotSupported, {"cuIpcGetMemHandle", "unset NVSHMEM_DISABLE_CUDA_VMM"});
  }
}

TEST_CASE("memory that a GPU has not got fails init on all PEs alike: asked, free, limit, remedy") {
  const FakeCuda::Use driver;
  FakeCuda::the().traits.free_bytes = 1 << 20;
  const bool classic = GENERATE(false, true);
  std::vector<std::string> parts = {"PE 0: the first ", "of the symmetric heap (limit 18M)",
                                    "bytes of GPU 0 (Fake H200)", "free are 1048576 of 8589934592",
                                    "CUDA_ERROR_OUT_OF_MEMORY"};
  if (classic) parts.insert(parts.end(), {"asked 18874368", "cuMemAlloc", "lower NVSHMEM_SYMMETRIC_SIZE"});
  if (!classic) parts.insert(parts.end(), {"asked 2097152", "cuMemCreate", "ask for less"});
  require_refused(std::vector<Settings>(2, gpu_settings({classic ? kClassic : "NVSHMEM_DISABLE_CUDA_VMM=0"})),
                  Code::kOutOfMemory, parts);
}

TEST_CASE("growth that one GPU has no memory for fails on all PEs alike: asked, free, limit") {
  const FakeCuda::Use driver;
  FakeCuda::the().traits.fabric_attribute = true;
  std::vector<std::string> texts(2);
  run_on_gpus(
      2,
      [&texts](World& world) -> Status {
        HEDDLE_RETURN_IF_ERROR(world.barrier_all());
        if (world.my_pe() == 0) FakeCuda::the().traits.free_bytes = 1 << 20;
        HEDDLE_RETURN_IF_ERROR(world.barrier_all());
        void* block = nullptr;
        const Status status = world.allocate("malloc", 5 << 20, 256, false, Status::ok(), &block);
        texts[static_cast<size_t>(world.my_pe())] = status.text();
        return expect(status.code() == Code::kOutOfMemory, "out of memory");
      },
      gpu_settings({GENERATE("NVSHMEM_CUMEM_HANDLE_TYPE=FILE_DESCRIPTOR", "NVSHMEM_CUMEM_HANDLE_TYPE=FABRIC")}));
  CHECK(texts[0] == texts[1]);
  for (const char* part : {"asked 4194304 bytes of GPU", "free are 1048576", "limit 18874368"})
    CHECK(has(texts[0], part));
}

TEST_CASE("memory that a peer still has open is not freed under it") {
  const FakeCuda::Use driver;
  constexpr uint64_t kBytes = uint64_t{4} << 20;
  LoopbackNetwork network(2);
  std::unique_ptr<Fabric> owner = fabric_of({kClassic}, network.courier(0));
  std::unique_ptr<Fabric> importer = fabric_of({kClassic}, network.courier(1));
  EndpointIds own, imported;
  REQUIRE(owner->reserve_ids(1, &own).is_ok());
  REQUIRE(importer->reserve_ids(1, &imported).is_ok());
  CHECK(owner->set_window(own.base, nullptr, kBytes).code() == Code::kNotSupported);
  EndpointProperties properties;
  properties.size = kBytes;
  REQUIRE(owner->create(own.base, properties).is_ok());
  REQUIRE(await_ready(*owner, own.base, 1, Deadline::in(20), "own").is_ok());
  MemoryId memory = 0;
  REQUIRE(owner->allocate(kBytes, &memory).is_ok());
  CHECK(owner->bind(own.base, 0, memory, 0, kBytes / 2).code() == Code::kInvalidValue);  // not the whole
  REQUIRE(owner->bind(own.base, 0, memory, 0, kBytes).is_ok());
  std::byte* const at = owner->address(memory);
  CHECK(owner->window(own.base) == at);
  EndpointHandle handle;
  REQUIRE(owner->export_handle(own.base, &handle).is_ok());
  REQUIRE(importer->import_handle(imported.base, handle).is_ok());
  REQUIRE(await_ready(*importer, imported.base, 1, Deadline::in(20), "import").is_ok());
  CHECK(importer->window(imported.base) != nullptr);
  CHECK(importer->window(imported.base) != at);

  SECTION("a peer that does not let go: the memory stays") {
    REQUIRE(owner->destroy(own.base).is_ok());  // after a bounded wait
    REQUIRE(owner->release(memory).is_ok());
    const uint64_t word = 7;
    uint64_t seen = 0;
    REQUIRE(importer->put(imported.base, 64, &word, sizeof word).is_ok());
    REQUIRE(importer->get(imported.base, 64, &seen, sizeof seen).is_ok());
    CHECK(seen == 7);
    REQUIRE(importer->destroy(imported.base).is_ok());
    CHECK(has(FakeCuda::the().leaks(), "device ranges 1; "));
    const ContextScope scope(*owner->gpu());
    CHECK(FakeCuda::the().table().MemFree(cuda::device_pointer(at)) == CUDA_SUCCESS);
  }
  SECTION("a peer that is slow: the memory goes after it") {
    std::thread slow([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      (void)importer->destroy(imported.base);
    });
    REQUIRE(owner->destroy(own.base).is_ok());
    REQUIRE(owner->release(memory).is_ok());
    slow.join();
  }
  SECTION("a peer that is lost: nothing to wait for") {
    network.lose(1);
    REQUIRE(owner->destroy(own.base).is_ok());
    REQUIRE(importer->destroy(imported.base).is_ok());  // or the driver in host memory would call it early
    REQUIRE(owner->release(memory).is_ok());
  }
  importer.reset();
  owner.reset();
  CHECK(FakeCuda::the().leaks() == "");
}

TEST_CASE("fabric handles are tried once, and the failing call is named with what it needs") {
  const FakeCuda::Use driver;
  FakeCuda::Traits& traits = FakeCuda::the().traits;
  const auto last_remark = [] {
    const auto fabric = fabric_of({"NVSHMEM_CUMEM_HANDLE_TYPE=ANY"});
    REQUIRE(fabric->remarks().size() == 2);
    CHECK(fabric->remarks()[0] == "GPU memory by CUDA VMM, shared by file descriptors");
    return fabric->remarks()[1];
  };
  CHECK(has(last_remark(),
            "no fabric handles: GPU 0 (Fake H200): CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED is 0"));
  require_refused({gpu_settings({kByFabric})}, Code::kNotSupported,
                  {"NVSHMEM_CUMEM_HANDLE_TYPE=FABRIC cannot be followed", "FABRIC_SUPPORTED is 0", "nvidia-imex"});
  traits.fabric_attribute = true;
  CHECK(last_remark() == "fabric handles work here");
  for (const std::string call : {"MemCreate", "MemExportToShareableHandle", "MemImportFromShareableHandle"}) {
    traits.failures = {{call + " of fabric", CUDA_ERROR_NOT_PERMITTED}};
    CHECK(has(last_remark(), "no fabric handles: cu" + call + "("));
    CHECK(has(last_remark(), "CUDA_ERROR_NOT_PERMITTED"));
    CHECK(has(last_remark(), "/dev/nvidia-caps-imex-channels"));
    require_refused({gpu_settings({kByFabric})}, Code::kNotSupported, {"cu" + call, "nvidia-imex"});
  }
  traits.failures.clear();
  require_refused({gpu_settings({kByFabric, kClassic})}, Code::kNotSupported,
                  {"NVSHMEM_CUMEM_HANDLE_TYPE=FABRIC needs CUDA VMM, but NVSHMEM_DISABLE_CUDA_VMM is set"});
  CHECK(FakeCuda::the().leaks() == "");
}

TEST_CASE("heaps of VMM memory grow as far as there is memory where no limit was given, others to 1G") {
  const FakeCuda::Use driver;
  FakeCuda::the().traits.free_bytes = uint64_t{16} << 30;
  const bool classic = GENERATE(false, true);
  std::vector<std::string> list = {"HEDDLE_FABRIC=peer", "HEDDLE_TIMEOUT=60"};
  if (classic) list.emplace_back("NVSHMEM_DISABLE_CUDA_VMM=1");
  Settings settings;
  std::vector<std::string> warnings;
  REQUIRE(Settings::from_list(list, &settings, &warnings).is_ok());
  run_on_gpus(
      1,
      [&](World& world) -> Status {
        char* block = nullptr;
        const Status made = make_block(world, size_t{3} << 29, &block, false);
        HEDDLE_RETURN_IF_ERROR(expect(made.is_ok() != classic, "1.5 GiB"));
        return block == nullptr ? Status::ok() : world.free(block);
      },
      settings);
}
