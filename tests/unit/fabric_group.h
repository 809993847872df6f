// Fabrics of several PEs in one process, joined: windows, endpoints, memory and imports as a job sets them up.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <barrier>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/fabric/fabric.h"
#include "tests/unit/loopback_courier.h"

namespace heddle::test {

/// Ends the test with the status's text when it failed.
inline void must(const Status& status) {
  if (!status.is_ok()) throw std::runtime_error(status.text());
}

/// Reserved, inaccessible addresses.
class Reservation {
 public:
  explicit Reservation(uint64_t bytes) : bytes_(bytes) {
    void* base = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("no addresses");
    base_ = static_cast<std::byte*>(base);
  }
  Reservation(Reservation&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  ~Reservation() {
    if (base_ != nullptr) munmap(base_, bytes_);
  }
  std::byte* at(uint64_t offset) const { return base_ + offset; }

 private:
  std::byte* base_;
  uint64_t bytes_;
};

/// True when the kernel can read a byte there; asks without touching it.
inline bool accessible(const std::byte* address) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const bool readable = write(ends[1], address, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return readable;
}

inline uint64_t page() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

/// One PE: its fabric, a window for every PE's endpoint and the ids for them.
struct TestPe {
  TestPe(int my_pe, int n_pes, uint64_t window_bytes, std::unique_ptr<Fabric> made)
      : my_pe(my_pe), windows(static_cast<uint64_t>(n_pes) * window_bytes), fabric(std::move(made)) {
    must(fabric->reserve_ids(static_cast<uint32_t>(n_pes), &ids));
    for (int pe = 0; pe < n_pes; ++pe) {
      must(fabric->set_window(id(pe), windows.at(static_cast<uint64_t>(pe) * window_bytes), window_bytes));
    }
    stride = window_bytes;
  }
  EndpointId id(int pe) const { return ids.base + static_cast<EndpointId>(pe); }
  EndpointId own() const { return id(my_pe); }
  /// Where `offset` of PE `pe`'s endpoint appears in this PE, also when the fabric says that it is not mapped.
  std::byte* at(int pe, uint64_t offset) const { return windows.at(static_cast<uint64_t>(pe) * stride + offset); }
  uint64_t* word(uint64_t offset) const { return reinterpret_cast<uint64_t*>(at(my_pe, offset)); }

  int my_pe;
  uint64_t stride = 0;
  Reservation windows;
  std::unique_ptr<Fabric> fabric;
  EndpointIds ids;
};

using FabricMaker = std::function<std::unique_ptr<Fabric>(std::unique_ptr<Courier>, int pe)>;

/// `n_pes` PEs whose endpoints of `bytes` bytes have memory everywhere and are imported by all.
class FabricGroup {
 public:
  FabricGroup(int n_pes, uint64_t bytes, const FabricMaker& make) : network(n_pes), sync(n_pes) {
    for (int pe = 0; pe < n_pes; ++pe) {
      pes.push_back(std::make_unique<TestPe>(pe, n_pes, bytes, make(network.courier(pe), pe)));
    }
    std::vector<EndpointHandle> handles(static_cast<size_t>(n_pes));
    for (auto& pe : pes) {
      EndpointProperties properties;
      properties.size = bytes;
      properties.flags = kEndpointFlagCountedOps;
      must(pe->fabric->create(pe->own(), properties));
      must(await_ready(*pe->fabric, pe->own(), 1, Deadline::in(20), "own endpoint"));
      MemoryId memory = 0;
      must(pe->fabric->allocate(bytes, &memory));
      must(pe->fabric->bind(pe->own(), 0, memory, 0, bytes));
      must(pe->fabric->export_handle(pe->own(), &handles[static_cast<size_t>(pe->my_pe)]));
    }
    for (auto& pe : pes) {
      for (int other = 0; other < n_pes; ++other) {
        if (other == pe->my_pe) continue;
        must(pe->fabric->import_handle(pe->id(other), handles[static_cast<size_t>(other)]));
      }
    }
    for (auto& pe : pes) {
      must(await_ready(*pe->fabric, pe->ids.base, pe->ids.count, Deadline::in(20), "all endpoints"));
    }
  }

  /// Runs `body` as every PE, each on a thread of its own; the first exception of any is thrown again.
  void run(const std::function<void(TestPe&)>& body) {
    std::vector<std::thread> threads;
    std::vector<std::exception_ptr> failures(pes.size());
    for (size_t i = 0; i < pes.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          body(*pes[i]);
        } catch (...) {
          failures[i] = std::current_exception();
          sync.arrive_and_drop();  // or the others would wait for this PE for ever
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (auto& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
  }

  LoopbackNetwork network;
  std::barrier<> sync;
  std::vector<std::unique_ptr<TestPe>> pes;  // before the network goes
};

}  // namespace heddle::test
