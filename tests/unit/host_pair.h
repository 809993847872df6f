// Two PEs on host fabrics, step by step, and checks of statuses: for the tests of endpoints and imports.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/unit/fabric_group.h"

namespace heddle::test {

/// Fails unless the status has this code and its text holds every part.
inline void check_error(const Status& status, Code code, const std::vector<std::string>& parts) {
  INFO(code_name(status.code()) << ": " << status.text());
  CHECK(status.code() == code);
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(status.text().find(part) != std::string::npos);
  }
}

inline Status create(TestPe& pe, EndpointId id, uint64_t bytes, bool exportable = true) {
  EndpointProperties properties;
  properties.size = bytes;
  properties.exportable = exportable;
  return pe.fabric->create(id, properties);
}

inline Status ready(TestPe& pe, EndpointId id) {
  return await_ready(*pe.fabric, id, 1, Deadline::in(20), "the endpoint");
}

inline bool query(TestPe& pe, EndpointId id) {
  bool done = false;
  const Status status = pe.fabric->query(id, 1, &done);
  INFO(status.text());
  CHECK(status.is_ok());
  return done;
}

inline MemoryId allocate(TestPe& pe, uint64_t bytes) {
  MemoryId memory = 0;
  must(pe.fabric->allocate(bytes, &memory));
  return memory;
}

inline const uint64_t kPage = page();
inline const uint64_t kSize = 16 * page();  // of endpoints and windows

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

}  // namespace heddle::test
