// The host fabric's endpoints: every state and its errors, memory, reach and the choice of the fabric.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/fabric/host/host_memory.h"
#include "runtime/log.h"
#include "tests/unit/host_pair.h"

using namespace heddle;
using namespace heddle::test;

namespace {

PeerIdentity identity(char boot, int node, uint32_t uid) {
  PeerIdentity identity{};
  identity.boot_id[3] = static_cast<unsigned char>(boot);
  identity.node = node;
  identity.uid = uid;
  return identity;
}

}  // namespace

TEST_CASE("ids are ranges that are given back whole") {
  LoopbackNetwork network(2);
  auto first = make_host_fabric(network.courier(0)), second = make_host_fabric(network.courier(1));
  EndpointIds ids, other, more;
  REQUIRE(first->reserve_ids(4, &ids).is_ok());
  REQUIRE(second->reserve_ids(4, &other).is_ok());
  CHECK(ids.base != other.base);  // differs between processes
  REQUIRE(first->reserve_ids(2, &more).is_ok());
  CHECK((more.base >= ids.base + 4 || more.base + 2 <= ids.base));
  check_error(first->reserve_ids(0, &more), Code::kInvalidValue, {"count is 0"});
  check_error(first->reserve_ids(65536, &more), Code::kOutOfMemory, {"65536 consecutive"});
  check_error(first->reserve_ids(0xffffffff, &more), Code::kOutOfMemory, {"4294967295 consecutive"});
  check_error(first->release_ids({ids.base, 3}), Code::kInvalidValue, {"count 3", "reserve_ids returned"});
  check_error(first->release_ids({ids.base + 1, 3}), Code::kInvalidValue, {"no reserved range"});
  CHECK(first->release_ids(ids).is_ok());
  check_error(first->release_ids(ids), Code::kInvalidValue, {"no reserved range"});
  EndpointIds again;
  CHECK(first->reserve_ids(4, &again).is_ok());
  CHECK(again.base == ids.base);
}

TEST_CASE("windows are aligned, disjoint and set before the endpoint") {
  Pair pair;
  TestPe& pe = pair[0];
  Fabric& fabric = *pe.fabric;
  CHECK(fabric.window(pe.id(0)) == pe.at(0, 0));
  CHECK(fabric.window(pe.id(1)) == pe.at(1, 0));
  CHECK(fabric.window(40000) == nullptr);
  check_error(fabric.set_window(40000, pe.at(0, 0), kPage), Code::kInvalidValue, {"40000 is not reserved"});
  check_error(fabric.set_window(pe.id(0), nullptr, kPage), Code::kInvalidValue, {"page size"});
  check_error(fabric.set_window(pe.id(0), pe.at(0, 1), kPage), Code::kInvalidValue, {"page size"});
  check_error(fabric.set_window(pe.id(0), pe.at(0, 0), kPage - 1), Code::kInvalidValue, {"page size"});
  check_error(fabric.set_window(pe.id(0), pe.at(0, kPage), kSize), Code::kInvalidValue, {"overlap", "endpoint"});
  CHECK(fabric.set_window(pe.id(0), pe.at(0, kPage), kSize - kPage).is_ok());
  check_error(create(pe, pe.id(0), kSize), Code::kInvalidValue, {"window only", "reserve a larger one"});
  CHECK(fabric.set_window(pe.id(0), pe.at(0, 0), kSize).is_ok());
  REQUIRE(create(pe, pe.id(0), kSize).is_ok());
  check_error(fabric.set_window(pe.id(0), pe.at(0, 0), kSize), Code::kInvalidValue, {"before create or import"});
  EndpointIds bare;
  REQUIRE(fabric.reserve_ids(1, &bare).is_ok());
  check_error(create(pe, bare.base, kPage), Code::kInvalidValue, {"call set_window first"});
  EndpointHandle handle;
  REQUIRE(fabric.export_handle(pe.id(0), &handle).is_ok());
  check_error(fabric.import_handle(bare.base, handle), Code::kInvalidValue, {"call set_window first"});
}

TEST_CASE("create checks its properties") {
  Pair pair;
  TestPe& pe = pair[0];
  EndpointProperties properties;
  EndpointLimits limits;
  REQUIRE(pe.fabric->limits(properties, &limits).is_ok());
  CHECK(limits.bind_alignment == kPage);
  CHECK(limits.max_size == uint64_t{1} << 46);
  check_error(create(pe, 40000, kSize), Code::kInvalidValue, {"40000 is not reserved"});
  check_error(create(pe, pe.own(), 0), Code::kInvalidValue, {"multiple of"});
  check_error(create(pe, pe.own(), kSize + 1), Code::kInvalidValue, {"multiple of", std::to_string(kSize + 1)});
  check_error(create(pe, pe.own(), (uint64_t{1} << 46) + kPage), Code::kInvalidValue, {"at most 70368744177664"});
  properties.size = kSize;
  properties.type = EndpointType::kMulticast;
  check_error(pe.fabric->create(pe.own(), properties), Code::kNotSupported, {"multicast"});
  check_error(pe.fabric->limits(properties, &limits), Code::kNotSupported, {"multicast"});
  properties.type = EndpointType::kInvalid;
  check_error(pe.fabric->create(pe.own(), properties), Code::kInvalidValue, {"type 0"});
  properties.type = EndpointType::kUnicast;
  properties.device = 1;
  check_error(pe.fabric->create(pe.own(), properties), Code::kInvalidValue, {"device 1"});
  properties.device = 0;
  properties.flags = 2;
  check_error(pe.fabric->create(pe.own(), properties), Code::kInvalidValue, {"flags 0x2"});
  properties.flags = kEndpointFlagCountedOps;
  REQUIRE(pe.fabric->create(pe.own(), properties).is_ok());
  check_error(pe.fabric->create(pe.own(), properties), Code::kInvalidValue, {"has an endpoint already"});
  check_error(pe.fabric->release_ids(pe.ids), Code::kInvalidValue, {"still exists", "destroy it first"});
  REQUIRE(pe.fabric->destroy(pe.own()).is_ok());
  check_error(pe.fabric->destroy(pe.own()), Code::kInvalidValue, {"has no endpoint"});
  REQUIRE(pe.fabric->create(pe.own(), properties).is_ok());  // the id may be used again
}

TEST_CASE("an endpoint is used only after a query said that it is ready") {
  Pair pair;
  TestPe& pe = pair[0];
  bool done = true;
  check_error(pe.fabric->query(pe.own(), 1, &done), Code::kInvalidValue, {"has no endpoint"});
  CHECK_FALSE(done);
  check_error(pe.fabric->query(40000, 1, &done), Code::kInvalidValue, {"not reserved"});
  REQUIRE(create(pe, pe.own(), kSize).is_ok());
  check_error(pe.fabric->query(pe.own(), 0, &done), Code::kInvalidValue, {"count 0"});
  check_error(pe.fabric->query(pe.own(), 2, &done), Code::kInvalidValue, {"has no endpoint"});
  const MemoryId memory = allocate(pe, kPage);
  uint64_t word = 0;
  check_error(pe.fabric->bind(pe.own(), 0, memory, 0, kPage), Code::kNotReady, {"query it"});
  check_error(pe.fabric->put(pe.own(), 0, &word, 8), Code::kNotReady, {"query it"});
  check_error(pe.fabric->signal(pe.own(), 0, 1, SignalOp::kSet), Code::kNotReady, {"query it"});
  EndpointHandle handle;
  CHECK(pe.fabric->export_handle(pe.own(), &handle).is_ok());  // needs no readiness
  CHECK(query(pe, pe.own()));
  CHECK(pe.fabric->bind(pe.own(), 0, memory, 0, kPage).is_ok());
  CHECK(pe.fabric->put(pe.own(), 0, &word, 8).is_ok());
  check_error(pe.fabric->signal(pe.own(), 0, 1, static_cast<SignalOp>(3)), Code::kInvalidValue, {"operation 3"});
  check_error(pe.fabric->signal(pe.own(), 4, 1, SignalOp::kSet), Code::kInvalidValue, {"not aligned"});
  CHECK(pe.fabric->destroy(pe.own()).is_ok());
  check_error(pe.fabric->put(pe.own(), 0, &word, 8), Code::kNotReady, {"does not exist"});
  CHECK_FALSE(accessible(pe.at(0, 0)));
}

TEST_CASE("binds are checked and appear at once in the own window") {
  Pair pair;
  TestPe& pe = pair[0];
  REQUIRE(create(pe, pe.own(), kSize).is_ok());
  REQUIRE(ready(pe, pe.own()).is_ok());
  const MemoryId memory = allocate(pe, 8 * kPage);
  Fabric& fabric = *pe.fabric;
  auto bind = [&](uint64_t offset, uint64_t memory_offset, uint64_t size) {
    return fabric.bind(pe.own(), offset, memory, memory_offset, size);
  };
  check_error(fabric.bind(40000, 0, memory, 0, kPage), Code::kInvalidValue, {"not reserved"});
  check_error(fabric.bind(pe.own(), 0, 99, 0, kPage), Code::kInvalidValue, {"memory 99 does not exist"});
  check_error(bind(1, 0, kPage), Code::kInvalidValue, {"offset 1", "multiples of"});
  check_error(bind(0, 8, kPage), Code::kInvalidValue, {"memory offset 8", "multiples of"});
  check_error(bind(0, 0, kPage + 1), Code::kInvalidValue, {"multiples of"});
  check_error(bind(0, 0, 0), Code::kInvalidValue, {"size not zero"});
  check_error(bind(kSize, 0, kPage), Code::kInvalidValue, {"beyond endpoint"});
  check_error(bind(kSize - kPage, 0, 2 * kPage), Code::kInvalidValue, {"beyond endpoint"});
  check_error(bind(~uint64_t{0} - kPage + 1, 0, 2 * kPage), Code::kInvalidValue, {"beyond endpoint"});
  check_error(bind(0, 7 * kPage, 2 * kPage), Code::kInvalidValue, {"beyond memory"});
  CHECK_FALSE(accessible(pe.at(0, 2 * kPage)));
  REQUIRE(bind(2 * kPage, 4 * kPage, 2 * kPage).is_ok());
  CHECK(accessible(pe.at(0, 2 * kPage)));
  CHECK(accessible(pe.at(0, 4 * kPage - 1)));
  CHECK_FALSE(accessible(pe.at(0, 4 * kPage)));
  check_error(bind(3 * kPage, 0, kPage), Code::kInvalidValue, {"overlap", "unbind those first"});
  check_error(bind(kPage, 0, 2 * kPage), Code::kInvalidValue, {"overlap"});
  check_error(bind(0, 0, 8 * kPage), Code::kInvalidValue, {"overlap"});
  check_error(fabric.release(memory), Code::kInvalidValue, {"bound 1 times", "unbind it first"});
  // The same memory may be bound twice: what is written through one bind is read through the other.
  REQUIRE(bind(8 * kPage, 4 * kPage, kPage).is_ok());
  const uint64_t word = 0x0123456789abcdef;
  REQUIRE(fabric.put(pe.own(), 2 * kPage + 24, &word, 8).is_ok());
  CHECK(*pe.word(8 * kPage + 24) == word);
}

TEST_CASE("unbind takes one bind or a run of consecutive ones, and leaves the addresses reserved") {
  Pair pair;
  TestPe& pe = pair[0];
  REQUIRE(create(pe, pe.own(), kSize).is_ok());
  REQUIRE(ready(pe, pe.own()).is_ok());
  const MemoryId memory = allocate(pe, 8 * kPage);
  Fabric& fabric = *pe.fabric;
  const std::vector<std::pair<uint64_t, uint64_t>> binds = {{0, 1}, {1, 2}, {3, 1}, {6, 2}};  // pages; a gap at 4
  for (const auto& [offset, size] : binds) {
    REQUIRE(fabric.bind(pe.own(), offset * kPage, memory, offset * kPage, size * kPage).is_ok());
  }
  *pe.word(kPage) = 77;
  auto unbind = [&](uint64_t offset, uint64_t size) { return fabric.unbind(pe.own(), offset * kPage, size * kPage); };
  check_error(unbind(0, 2), Code::kInvalidValue, {"adds up to " + std::to_string(3 * kPage)});  // half of the second
  check_error(unbind(2, 1), Code::kInvalidValue, {"no bind"});
  check_error(unbind(0, 0), Code::kInvalidValue, {"no bind"});
  check_error(unbind(3, 5), Code::kInvalidValue, {"no bind", "adds up to " + std::to_string(kPage)});  // over the gap
  check_error(unbind(4, 1), Code::kInvalidValue, {"no bind"});
  check_error(fabric.unbind(40000, 0, kPage), Code::kInvalidValue, {"not reserved"});
  REQUIRE(unbind(0, 3).is_ok());
  CHECK_FALSE(accessible(pe.at(0, 0)));
  CHECK_FALSE(accessible(pe.at(0, 2 * kPage)));
  CHECK(accessible(pe.at(0, 3 * kPage)));
  // Nothing else may be given these addresses meanwhile: the reservation is still there.
  CHECK(mmap(pe.at(0, 0), kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED);
  REQUIRE(fabric.bind(pe.own(), 10 * kPage, memory, kPage, kPage).is_ok());
  CHECK(*pe.word(10 * kPage) == 77);  // the memory kept its contents
  REQUIRE(unbind(3, 1).is_ok());
  REQUIRE(unbind(6, 2).is_ok());
  check_error(fabric.release(memory), Code::kInvalidValue, {"bound 1 times"});
  REQUIRE(unbind(10, 1).is_ok());
  REQUIRE(fabric.release(memory).is_ok());
  check_error(fabric.release(memory), Code::kInvalidValue, {"does not exist"});
  check_error(fabric.release(0), Code::kInvalidValue, {"memory 0 does not exist"});
}

TEST_CASE("memory that cannot be had is refused with both numbers") {
  Pair pair;
  MemoryId memory = 0;
  const uint64_t absurd = uint64_t{1} << 45;
  check_error(pair[0].fabric->allocate(absurd, &memory), Code::kOutOfMemory,
              {"asked " + std::to_string(absurd), "available are "});
  CHECK(memory == 0);
  check_error(pair[0].fabric->allocate(0, &memory), Code::kInvalidValue, {"granularity"});
  check_error(pair[0].fabric->allocate(kPage + 1, &memory), Code::kInvalidValue, {"granularity"});
  CHECK(pair[0].fabric->capabilities().granularity == kPage);
}

TEST_CASE("available memory is the least of the kernel's word and that of every cgroup above") {
  char name[] = "/tmp/heddle-test-XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  const std::filesystem::path root = name;
  auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  CHECK(host::available_memory(name).bytes == ~uint64_t{0});  // nothing readable
  write("proc/meminfo", "MemTotal: 8000 kB\nMemAvailable:    4000 kB\n");
  CHECK(host::available_memory(name).bytes == 4000 * 1024);
  write("proc/self/cgroup", "1:cpu:/x\n0::/job/step\n");
  CHECK(host::available_memory(name).bytes == 4000 * 1024);
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  write("sys/fs/cgroup/job/step/memory.current", "1000000\n");
  write("sys/fs/cgroup/job/memory.max", "3000000\n");
  write("sys/fs/cgroup/job/memory.current", "2500000\n");
  auto available = host::available_memory(name);
  CHECK(available.bytes == 500000);
  CHECK(available.limit == "memory.max of cgroup /job");
  write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 100000\nactive_file 50000\n");
  CHECK(host::available_memory(name).bytes == 650000);
  write("sys/fs/cgroup/job/step/memory.max", "900000\n");  // less than what is in use
  CHECK(host::available_memory(name).bytes == 0);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "70000\n");
  write("sys/fs/cgroup/memory.current", "60000\n");
  available = host::available_memory(name);
  CHECK(available.bytes == 10000);
  CHECK(available.limit == "memory.max of cgroup /");
  std::filesystem::remove_all(root);
}

TEST_CASE("who is reached, and the sentence why not") {
  auto fabric = make_host_fabric(nullptr);
  const PeerIdentity self = identity('a', 0, 1000);
  CHECK(fabric->reach(self, identity('a', 0, 1000)).reached);
  CHECK(fabric->reach(self, identity('a', -1, 1000)).reached);
  CHECK(fabric->reach(identity('a', -1, 1000), identity('a', 3, 1000)).reached);
  auto refused = [&](const PeerIdentity& peer, const std::string& part) {
    const Reach reach = fabric->reach(self, peer);
    INFO(reach.reason);
    CHECK_FALSE(reach.reached);
    CHECK(reach.reason.find(part) != std::string::npos);
  };
  refused(
      identity('a', 1, 1000),
      "PE runs on another node of the launcher's map (node 1, this is node 0); the host fabric shares memory of one "
      "host only");
  refused(identity('b', 0, 1000), "boot id");
  refused(identity('a', 0, 1001), "uid 1001, this process has uid 1000");
}

TEST_CASE("the fabric is chosen by HEDDLE_FABRIC") {
  Settings settings;
  std::unique_ptr<Fabric> fabric;
  const auto choices = list_fabrics(settings);
  REQUIRE(choices.size() == 4);
  const auto usable = [&](const std::string& name) {
    return std::any_of(choices.begin(), choices.end(),
                       [&](const auto& choice) { return choice.name == name && choice.usable; });
  };
  for (const FabricChoice& choice : choices) CHECK_FALSE(choice.reason.empty());
  CHECK(usable("host"));
  CHECK_FALSE((usable("cft") || usable("net")));
  for (const char* name : {"", "auto", "host"}) {
    settings.fabric = name;
    REQUIRE(make_fabric(settings, nullptr, &fabric).is_ok());
    // Where there are GPUs the heap is theirs, unless another fabric is asked for.
    const bool on_gpu = usable("peer") && settings.fabric != "host";
    CHECK(std::string(fabric->name()) == (on_gpu ? "peer" : "host"));
    CHECK(fabric->capabilities().mapped);
  }
  settings.fabric = "warp";
  check_error(make_fabric(settings, nullptr, &fabric), Code::kInvalidValue, {"\"warp\"", "auto, cft, peer, host, net"});
  settings.fabric = "cft";
  check_error(make_fabric(settings, nullptr, &fabric), Code::kNotSupported, {"\"cft\"", "sm_100", "CUDA 13.3+"});
  settings.fabric = "net";
  check_error(make_fabric(settings, nullptr, &fabric), Code::kNotSupported, {"no network fabric"});
  settings.fabric = "host";
  settings.fault = "fail=1";
  REQUIRE(make_fabric(settings, nullptr, &fabric).is_ok());
  CHECK(std::string(fabric->name()) == "host+fault");
  settings.fault = "fail=x";
  check_error(make_fabric(settings, nullptr, &fabric), Code::kInvalidValue, {"HEDDLE_FAULT=\"fail=x\""});
}

TEST_CASE("a heap in host memory says why it is there, and warns a program that asked for a GPU") {
  char name[] = "/tmp/heddle-choice-XXXXXX";
  const OwnedFd file(::mkstemp(name));
  REQUIRE(file.valid());
  Settings settings;
  settings.fabric = "host";
  settings.debug = "INFO";
  settings.debug_file = name;
  REQUIRE(configure_log(settings, -1).is_ok());
  std::unique_ptr<Fabric> fabric;
  const bool made = make_fabric(settings, {-1, 0}, nullptr, &fabric).is_ok();
  const bool made_with_gpu = make_fabric(settings, {3, 0}, nullptr, &fabric).is_ok();
  const FabricChoice peer = peer_choice(settings);
  settings.fabric = "auto";
  if (!peer.usable) (void)make_fabric(settings, {3, 0}, nullptr, &fabric);
  (void)configure_log(Settings{}, -1);
  std::ifstream read(name);
  const std::string text((std::istreambuf_iterator<char>(read)), std::istreambuf_iterator<char>());
  ::unlink(name);
  CHECK((made && made_with_gpu));
  const auto says = [&](const std::string& words) { return text.find(words) != std::string::npos; };
  CHECK(says("info: the heap is in host memory, which kernels cannot reach: HEDDLE_FABRIC=host asks for it"));
  CHECK(says("warning: cuda_device_id 3 is ignored"));
  if (!peer.usable) CHECK(says("host memory: peer cannot be used: " + peer.reason));
}
