// Imports on the host fabric: readiness, later binds, forged handles, aliases, and what may go wrong on the way.
#include <fcntl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/fabric/host/host_message.h"
#include "runtime/log.h"
#include "tests/unit/host_pair.h"

using namespace heddle;
using namespace heddle::test;

namespace {

size_t open_descriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.exists() ? 1 : 0;
  return count;
}

host::MessageKind kind_of(const std::vector<unsigned char>& bytes) {
  host::Message message;
  std::memcpy(static_cast<void*>(&message), bytes.data(), sizeof message);
  return message.kind;
}

}  // namespace

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
  pair.network.step(1);
  pair.network.settle(0);
  CHECK_FALSE(query(owner, owner.own()));  // one of two is answered
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
    CHECK(accessible(pe.at(1, 0)));
    bool done = false;
    check_error(pe.fabric->query(pe.id(1), 1, &done), Code::kInvalidValue, {"PE 0 has destroyed"});
    CHECK(pe.fabric->destroy(pe.id(1)).is_ok());
    CHECK_FALSE(accessible(pe.at(1, 0)));
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

TEST_CASE("an owner that goes says so, and what importers have mapped stays until they let go") {
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
  // Others may not know of the end yet: their puts must not meet missing addresses.
  REQUIRE(accessible(pair[1].at(0, 0)));
  const uint64_t word = 7;
  CHECK(pair[1].fabric->put(pair[1].id(0), 0, &word, 8).is_ok());
  CHECK(pair[1].fabric->destroy(pair[1].id(0)).is_ok());
  CHECK_FALSE(accessible(pair[1].at(0, 0)));
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
