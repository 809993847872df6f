// The host fabric's endpoints: every state and its errors, imports with what may go wrong in them, memory.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/fabric/host/host_memory.h"
#include "runtime/fabric/host/host_message.h"
#include "runtime/log.h"
#include "tests/catch.h"
#include "tests/unit/fabric_group.h"

using namespace heddle;
using namespace heddle::test;

namespace {

/// Fails unless the status has this code and its text holds every part.
void check_error(const Status& status, Code code, const std::vector<std::string>& parts) {
  INFO(code_name(status.code()) << ": " << status.text());
  CHECK(status.code() == code);
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(status.text().find(part) != std::string::npos);
  }
}

Status create(TestPe& pe, EndpointId id, uint64_t bytes, bool exportable = true) {
  EndpointProperties properties;
  properties.size = bytes;
  properties.exportable = exportable;
  return pe.fabric->create(id, properties);
}

Status ready(TestPe& pe, EndpointId id) { return await_ready(*pe.fabric, id, 1, Deadline::in(20), "the endpoint"); }

bool query(TestPe& pe, EndpointId id) {
  bool done = false;
  const Status status = pe.fabric->query(id, 1, &done);
  INFO(status.text());
  CHECK(status.is_ok());
  return done;
}

MemoryId allocate(TestPe& pe, uint64_t bytes) {
  MemoryId memory = 0;
  must(pe.fabric->allocate(bytes, &memory));
  return memory;
}

size_t open_descriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.exists() ? 1 : 0;
  return count;
}

const uint64_t kPage = page();
const uint64_t kSize = 16 * page();  // of endpoints and windows

/// Two PEs with windows and nothing else.
struct Pair {
  Pair() : network(2) {
    for (int pe = 0; pe < 2; ++pe) {
      pes.push_back(std::make_unique<TestPe>(pe, 2, kSize, make_host_fabric(network.courier(pe))));
    }
  }
  TestPe& operator[](size_t pe) { return *pes[pe]; }
  /// PE 0 makes its endpoint with memory at [0, 4 pages); the handle for PE 1.
  EndpointHandle make_owner() {
    must(create(*pes[0], pes[0]->own(), kSize));
    must(ready(*pes[0], pes[0]->own()));
    memory = allocate(*pes[0], 8 * kPage);
    must(pes[0]->fabric->bind(pes[0]->own(), 0, memory, 0, 4 * kPage));
    EndpointHandle handle;
    must(pes[0]->fabric->export_handle(pes[0]->own(), &handle));
    return handle;
  }
  /// The same, imported by PE 1.
  void join() {
    const EndpointHandle handle = make_owner();
    must(pes[1]->fabric->import_handle(pes[1]->id(0), handle));
    must(ready(*pes[1], pes[1]->id(0)));
    must(ready(*pes[0], pes[0]->own()));
  }
  LoopbackNetwork network;
  std::vector<std::unique_ptr<TestPe>> pes;
  MemoryId memory = 0;
};

host::MessageKind kind_of(const std::vector<unsigned char>& bytes) {
  host::Message message;
  std::memcpy(static_cast<void*>(&message), bytes.data(), sizeof message);
  return message.kind;
}

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

TEST_CASE("an importer sees the memory of the owner, and every later bind") {
  Pair pair;
  pair.join();
  TestPe &owner = pair[0], &importer = pair[1];
  const uint64_t word = 42;
  REQUIRE(importer.fabric->put(importer.id(0), kPage, &word, 8).is_ok());
  CHECK(*owner.word(kPage) == 42);
  CHECK_FALSE(accessible(importer.at(0, 4 * kPage)));
  const MemoryId more = allocate(owner, 2 * kPage);
  REQUIRE(owner.fabric->bind(owner.own(), 8 * kPage, more, 0, 2 * kPage).is_ok());
  REQUIRE(ready(owner, owner.own()).is_ok());
  *owner.word(9 * kPage) = 43;
  uint64_t got = 0;
  REQUIRE(importer.fabric->get(importer.id(0), 9 * kPage, &got, 8).is_ok());  // no import again
  CHECK(got == 43);
  REQUIRE(owner.fabric->unbind(owner.own(), 8 * kPage, 2 * kPage).is_ok());
  REQUIRE(ready(owner, owner.own()).is_ok());
  CHECK_FALSE(accessible(importer.at(0, 8 * kPage)));
  REQUIRE(owner.fabric->release(more).is_ok());

  const EndpointId import = importer.id(0);
  check_error(importer.fabric->bind(import, 0, 1, 0, kPage), Code::kNotSupported, {"imported from PE 0"});
  check_error(importer.fabric->unbind(import, 0, kPage), Code::kNotSupported, {"imported from PE 0"});
  EndpointHandle handle;
  check_error(importer.fabric->export_handle(import, &handle), Code::kNotSupported, {"export it there"});
  check_error(create(importer, import, kSize), Code::kInvalidValue, {"has an endpoint already"});
  REQUIRE(importer.fabric->destroy(import).is_ok());
  CHECK_FALSE(accessible(importer.at(0, 0)));
  CHECK(accessible(owner.at(0, 0)));
}

TEST_CASE("the owner is ready only when every importer has answered every change") {
  Pair pair;
  pair.join();
  TestPe& owner = pair[0];
  pair.network.pause(1);
  REQUIRE(owner.fabric->bind(owner.own(), 4 * kPage, pair.memory, 4 * kPage, kPage).is_ok());
  CHECK_FALSE(query(owner, owner.own()));
  REQUIRE(owner.fabric->unbind(owner.own(), 4 * kPage, kPage).is_ok());
  CHECK_FALSE(query(owner, owner.own()));
  check_error(await_ready(*owner.fabric, owner.own(), 1, Deadline::in(0.02), "growth of the heap"), Code::kTimeout,
              {"growth of the heap", "PE 1 did not confirm"});
  // Binding again before the answer is allowed, and using the own memory too.
  REQUIRE(owner.fabric->bind(owner.own(), 4 * kPage, pair.memory, 5 * kPage, kPage).is_ok());
  *owner.word(4 * kPage) = 5;
  pair.network.resume(1);
  REQUIRE(ready(owner, owner.own()).is_ok());
  CHECK(*reinterpret_cast<uint64_t*>(pair[1].at(0, 4 * kPage)) == 5);
}

TEST_CASE("an import is ready only when the owner has given everything") {
  Pair pair;
  const EndpointHandle handle = pair.make_owner();
  TestPe& importer = pair[1];
  pair.network.pause(0);
  REQUIRE(importer.fabric->import_handle(importer.id(0), handle).is_ok());  // does not wait
  CHECK_FALSE(query(importer, importer.id(0)));
  uint64_t word = 0;
  check_error(importer.fabric->get(importer.id(0), 0, &word, 8), Code::kNotReady, {"not ready"});
  check_error(await_ready(*importer.fabric, importer.id(0), 1, Deadline::in(0.02), "the heap of PE 0"), Code::kTimeout,
              {"the heap of PE 0", "PE 0 has not yet given"});
  pair.network.resume(0);
  CHECK(ready(importer, importer.id(0)).is_ok());
  CHECK(importer.fabric->get(importer.id(0), 0, &word, 8).is_ok());
}

TEST_CASE("an import that is destroyed while it is being made leaves nothing behind") {
  Pair pair;
  const EndpointHandle handle = pair.make_owner();
  pair.network.pause(0);
  REQUIRE(pair[1].fabric->import_handle(pair[1].id(0), handle).is_ok());
  REQUIRE(pair[1].fabric->destroy(pair[1].id(0)).is_ok());
  pair.network.resume(0);
  REQUIRE(pair[1].fabric->import_handle(pair[1].id(0), handle).is_ok());
  REQUIRE(ready(pair[1], pair[1].id(0)).is_ok());
  REQUIRE(ready(pair[0], pair[0].own()).is_ok());
  CHECK(accessible(pair[1].at(0, 0)));
}

TEST_CASE("forged and stale handles are refused") {
  Pair pair;
  const EndpointHandle handle = pair.make_owner();
  TestPe& importer = pair[1];
  host::HandleBody body;
  auto import = [&](const host::HandleBody& changed) {
    EndpointHandle forged;
    std::memcpy(forged.data, &changed, sizeof changed);
    Status status = importer.fabric->import_handle(importer.id(0), forged);
    if (!status.is_ok()) return status;
    status = ready(importer, importer.id(0));
    must(importer.fabric->destroy(importer.id(0)));
    return status;
  };
  std::memcpy(&body, handle.data, sizeof body);
  REQUIRE(import(body).is_ok());
  host::HandleBody forged = body;
  forged.magic ^= 1;
  check_error(import(forged), Code::kInvalidValue, {"no handle", "export_handle"});
  forged = body;
  forged.version = 9;
  check_error(import(forged), Code::kInvalidValue, {"version 9"});
  forged = body;
  forged.nonce.bytes[15] ^= 1;
  check_error(import(forged), Code::kInvalidValue, {"PE 0 refused", "no endpoint of this handle"});
  forged = body;
  ++forged.serial;
  check_error(import(forged), Code::kInvalidValue, {"PE 0 refused"});
  forged = body;
  forged.owner_pe = 7;
  check_error(import(forged), Code::kInvalidValue, {"PE 7"});
  forged = body;
  forged.size -= kPage;
  check_error(import(forged), Code::kInvalidValue, {"its handle said"});
  forged = body;
  forged.size += kPage;
  check_error(import(forged), Code::kInvalidValue, {"window only"});
  forged = body;
  forged.size = 100;
  check_error(import(forged), Code::kInvalidValue, {"damaged"});
  REQUIRE(pair[0].fabric->destroy(pair[0].own()).is_ok());
  check_error(import(body), Code::kInvalidValue, {"PE 0 refused", "destroyed"});
  REQUIRE(create(pair[0], pair[0].own(), kSize).is_ok());  // another endpoint under the same id
  check_error(import(body), Code::kInvalidValue, {"PE 0 refused"});
}

TEST_CASE("an endpoint that is not exportable has no handle") {
  Pair pair;
  REQUIRE(create(pair[0], pair[0].own(), kSize, false).is_ok());
  EndpointHandle handle;
  check_error(pair[0].fabric->export_handle(pair[0].own(), &handle), Code::kInvalidValue, {"exportable = false"});
  check_error(pair[0].fabric->export_handle(pair[0].id(1), &handle), Code::kInvalidValue, {"has no endpoint"});
}

TEST_CASE("the own handle imports as an alias: a second mapping of the same memory") {
  const bool alone = GENERATE(false, true);
  Pair pair;
  std::unique_ptr<TestPe> solo;
  if (alone) solo = std::make_unique<TestPe>(0, 2, kSize, make_host_fabric(nullptr));
  TestPe& pe = alone ? *solo : pair[0];
  REQUIRE(create(pe, pe.id(0), kSize).is_ok());
  REQUIRE(ready(pe, pe.id(0)).is_ok());
  const MemoryId memory = allocate(pe, 4 * kPage);
  REQUIRE(pe.fabric->bind(pe.id(0), 0, memory, 0, kPage).is_ok());
  EndpointHandle handle;
  REQUIRE(pe.fabric->export_handle(pe.id(0), &handle).is_ok());
  REQUIRE(pe.fabric->import_handle(pe.id(1), handle).is_ok());
  REQUIRE(await_ready(*pe.fabric, pe.id(0), 2, Deadline::in(20), "both").is_ok());
  const uint64_t word = 99;
  REQUIRE(pe.fabric->put(pe.id(1), 16, &word, 8).is_ok());
  CHECK(*pe.word(16) == 99);
  REQUIRE(pe.fabric->bind(pe.id(0), kPage, memory, kPage, kPage).is_ok());
  CHECK(query(pe, pe.id(0)));
  REQUIRE(pe.fabric->put(pe.id(1), kPage, &word, 8).is_ok());
  CHECK(*pe.word(kPage) == 99);
  SECTION("the alias goes first") {
    REQUIRE(pe.fabric->destroy(pe.id(1)).is_ok());
    CHECK_FALSE(accessible(pe.at(1, 0)));
    CHECK(accessible(pe.at(0, 0)));
    CHECK(pe.fabric->unbind(pe.id(0), 0, 2 * kPage).is_ok());
    CHECK(query(pe, pe.id(0)));
  }
  SECTION("the endpoint goes first, and its binds with it") {
    REQUIRE(pe.fabric->destroy(pe.id(0)).is_ok());
    CHECK_FALSE(accessible(pe.at(1, 0)));
    bool done = false;
    check_error(pe.fabric->query(pe.id(1), 1, &done), Code::kInvalidValue, {"PE 0 has destroyed"});
    CHECK(pe.fabric->destroy(pe.id(1)).is_ok());
  }
  if (pe.fabric->destroy(pe.id(0)).is_ok()) CHECK(pe.fabric->release(memory).is_ok());
  if (alone) {
    host::HandleBody body;
    std::memcpy(&body, handle.data, sizeof body);
    body.owner_pe = 3;
    std::memcpy(handle.data, &body, sizeof body);
    check_error(pe.fabric->import_handle(pe.id(0), handle), Code::kNotSupported, {"PE 3", "runs alone"});
  }
}

TEST_CASE("a mapping that fails on the importer becomes the owner's failure") {
  Pair pair;
  const EndpointHandle handle = pair.make_owner();
  TestPe &owner = pair[0], &importer = pair[1];
  auto spoil = [](int, int, std::vector<unsigned char>& message, OwnedFd& fd) {
    if (kind_of(message) == host::MessageKind::kBound) fd = OwnedFd(open("/dev/null", O_RDWR | O_CLOEXEC));
  };
  bool done = false;
  SECTION("while importing") {
    pair.network.tamper(spoil);
    REQUIRE(importer.fabric->import_handle(importer.id(0), handle).is_ok());
    check_error(ready(importer, importer.id(0)), Code::kInvalidValue, {"mapping PE 0's memory at offset 0"});
    check_error(ready(owner, owner.own()), Code::kInvalidValue, {"on PE 1", "mapping PE 0's memory"});
    uint64_t word = 0;
    CHECK(importer.fabric->get(importer.id(0), 0, &word, 8).code() == Code::kNotReady);
  }
  SECTION("at a later bind, which may be undone and tried again") {
    REQUIRE(importer.fabric->import_handle(importer.id(0), handle).is_ok());
    REQUIRE(ready(importer, importer.id(0)).is_ok());
    pair.network.tamper(spoil);
    REQUIRE(owner.fabric->bind(owner.own(), 4 * kPage, pair.memory, 4 * kPage, kPage).is_ok());
    check_error(ready(owner, owner.own()), Code::kInvalidValue, {"on PE 1", "offset " + std::to_string(4 * kPage)});
    check_error(importer.fabric->query(importer.id(0), 1, &done), Code::kInvalidValue, {"mapping PE 0's memory"});
    CHECK_FALSE(accessible(importer.at(0, 4 * kPage)));
    CHECK(query(owner, owner.own()));  // told once
    REQUIRE(owner.fabric->unbind(owner.own(), 4 * kPage, kPage).is_ok());
    pair.network.tamper(nullptr);
    REQUIRE(ready(owner, owner.own()).is_ok());
    CHECK(query(importer, importer.id(0)));
    REQUIRE(owner.fabric->bind(owner.own(), 4 * kPage, pair.memory, 4 * kPage, kPage).is_ok());
    CHECK(ready(owner, owner.own()).is_ok());
    CHECK(accessible(importer.at(0, 4 * kPage)));
  }
  SECTION("a descriptor that is too small is not mapped: touching it would end the process") {
    pair.network.tamper([](int, int, std::vector<unsigned char>& message, OwnedFd&) {
      host::Message changed;
      std::memcpy(static_cast<void*>(&changed), message.data(), sizeof changed);
      if (changed.kind == host::MessageKind::kBound) changed.memory_offset = 64 * kPage;
      std::memcpy(message.data(), &changed, sizeof changed);
    });
    REQUIRE(importer.fabric->import_handle(importer.id(0), handle).is_ok());
    check_error(ready(importer, importer.id(0)), Code::kInvalidValue, {"no shared memory that holds"});
  }
  SECTION("without a descriptor") {
    pair.network.tamper([](int, int, std::vector<unsigned char>&, OwnedFd& fd) { fd.reset(); });
    REQUIRE(importer.fabric->import_handle(importer.id(0), handle).is_ok());
    check_error(ready(importer, importer.id(0)), Code::kInternal, {"no descriptor came with it"});
  }
  SECTION("beyond the endpoint") {
    pair.network.tamper([](int, int, std::vector<unsigned char>& message, OwnedFd&) {
      host::Message changed;
      std::memcpy(static_cast<void*>(&changed), message.data(), sizeof changed);
      if (changed.kind == host::MessageKind::kBound) changed.offset = kSize - kPage;
      std::memcpy(message.data(), &changed, sizeof changed);
    });
    REQUIRE(importer.fabric->import_handle(importer.id(0), handle).is_ok());
    check_error(ready(importer, importer.id(0)), Code::kInternal, {"beyond the endpoint"});
    CHECK_FALSE(accessible(importer.at(0, kSize - kPage)));
    CHECK_FALSE(accessible(importer.at(1, 0)));
  }
}

TEST_CASE("an owner that goes takes its memory along and says so") {
  Pair pair;
  pair.join();
  bool done = false;
  SECTION("by destroy") { REQUIRE(pair[0].fabric->destroy(pair[0].own()).is_ok()); }
  SECTION("with its fabric") { pair.pes[0].reset(); }
  const Deadline deadline = Deadline::in(20);
  Status status;
  while ((status = pair[1].fabric->query(pair[1].id(0), 1, &done)).is_ok() && !deadline.passed()) {
    std::this_thread::yield();
  }
  check_error(status, Code::kInvalidValue, {"PE 0 has destroyed its endpoint"});
  CHECK_FALSE(accessible(pair[1].at(0, 0)));
  uint64_t word = 0;
  CHECK(pair[1].fabric->get(pair[1].id(0), 0, &word, 8).code() == Code::kNotReady);
  CHECK(pair[1].fabric->destroy(pair[1].id(0)).is_ok());
}

TEST_CASE("an importer that goes is waited for no longer") {
  Pair pair;
  pair.join();
  TestPe& owner = pair[0];
  pair.network.pause(1);
  REQUIRE(owner.fabric->bind(owner.own(), 4 * kPage, pair.memory, 4 * kPage, kPage).is_ok());
  CHECK_FALSE(query(owner, owner.own()));
  SECTION("by destroy") { REQUIRE(pair[1].fabric->destroy(pair[1].id(0)).is_ok()); }
  SECTION("with its fabric") { pair.pes[1].reset(); }
  CHECK(ready(owner, owner.own()).is_ok());
}

TEST_CASE("a lost PE is the next query's failure, once") {
  Pair pair;
  pair.join();
  TestPe& owner = pair[0];
  pair.network.lose(1);
  REQUIRE(owner.fabric->bind(owner.own(), 4 * kPage, pair.memory, 4 * kPage, kPage).is_ok());
  check_error(ready(owner, owner.own()), Code::kPeerLost, {"telling PE 1 of a bind", "PE 1 is lost"});
  CHECK(ready(owner, owner.own()).is_ok());
  EndpointHandle handle;
  REQUIRE(pair[0].fabric->export_handle(owner.own(), &handle).is_ok());
  pair.network.lose(0);
  REQUIRE(pair[1].fabric->destroy(pair[1].id(0)).is_ok());
  check_error(pair[1].fabric->import_handle(pair[1].id(0), handle), Code::kPeerLost, {"asking PE 0"});
  CHECK(create(pair[1], pair[1].id(0), kSize).is_ok());  // the id stayed free
}

TEST_CASE("messages that nobody could have meant are dropped with a warning") {
  char name[] = "/tmp/heddle-test-XXXXXX";
  const int file = mkstemp(name);
  REQUIRE(file >= 0);
  close(file);
  Settings settings;
  settings.debug_file = name;
  must(configure_log(settings, -1));
  Pair pair;
  pair.join();
  host::Message message;
  auto post = [&](size_t bytes) { must(pair.network.post(1, 0, &message, bytes, -1)); };
  post(0);
  post(sizeof message - 1);
  message.magic ^= 1;
  post(sizeof message);
  message = {};
  message.kind = host::MessageKind::kAck;  // for a change that never was
  message.serial = 1;
  message.request = 1;
  message.change = 77;
  post(sizeof message);
  message.serial = 999;  // for an endpoint that never was
  post(sizeof message);
  message.kind = host::MessageKind::kBound;  // for an import that never was
  post(sizeof message);
  message.kind = static_cast<host::MessageKind>(99);
  post(sizeof message);
  // Everything still works: this bind's answer comes after all of them.
  REQUIRE(pair[0].fabric->bind(pair[0].own(), 4 * kPage, pair.memory, 4 * kPage, kPage).is_ok());
  CHECK(ready(pair[0], pair[0].own()).is_ok());
  must(configure_log(Settings{}, -1));
  std::stringstream log;
  log << std::ifstream(name).rdbuf();
  std::remove(name);
  INFO(log.str());
  CHECK(log.str().find("dropped a message of 0 bytes from PE 1") != std::string::npos);
  CHECK(log.str().find("confirmed change 77") != std::string::npos);
}

TEST_CASE("everything given back leaves no descriptor and no mapping") {
  const size_t before = open_descriptors();
  for (int round = 0; round < 3; ++round) {
    Pair pair;
    pair.join();
    for (int i = 0; i < 20; ++i) {
      REQUIRE(pair[0].fabric->bind(pair[0].own(), 8 * kPage, pair.memory, 0, 2 * kPage).is_ok());
      REQUIRE(pair[0].fabric->unbind(pair[0].own(), 8 * kPage, 2 * kPage).is_ok());
    }
    REQUIRE(ready(pair[0], pair[0].own()).is_ok());
    CHECK(open_descriptors() == before + 1);  // the memory's own; importers keep only mappings
  }
  CHECK(open_descriptors() == before);
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
  for (const char* name : {"", "auto", "host"}) {
    settings.fabric = name;
    REQUIRE(make_fabric(settings, nullptr, &fabric).is_ok());
    CHECK(std::string(fabric->name()) == "host");
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
  const auto choices = list_fabrics(settings);
  REQUIRE(choices.size() == 4);
  for (const FabricChoice& choice : choices) {
    CHECK(choice.usable == (choice.name == "host"));
    CHECK_FALSE(choice.reason.empty());
  }
}
