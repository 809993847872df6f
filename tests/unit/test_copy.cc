// The copy engine: every size and alignment, for the host's path and for the path of kernels, whose index arithmetic
// runs here with groups of threads emulated one member after another. Every load and store is checked: none outside the
// two ranges, every byte stored once, and members that exchange vectors make the same number of turns.
#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/bulk.h"
#include "device/copy.h"
#include "device/rma.h"
#include "tests/catch.h"

using heddle::device::copy;
using heddle::device::copy_any;
using heddle::device::copy_by_engine;
using heddle::device::ThreadScope;
using heddle::device::Vector;

namespace {

/// What the accesses of one copy may touch, and what they did.
struct Watch {
  const char* source = nullptr;
  char* destination = nullptr;
  size_t bytes = 0;
  std::vector<uint8_t> stored;  // how often each byte was
  std::string fault;
  size_t vectors_loaded = 0;
  int rank = 0;                                  // who is at work
  std::set<std::pair<int, const void*>> loaded;  // by whom: what a neighbour can lend

  bool may_load(const void* address, size_t size) const {
    const auto at = static_cast<const char*>(address);
    return at >= source && at + size <= source + bytes;
  }
};
Watch watch;

/// Sides of a copy that watch each access; kFlight vectors in flight.
template <int kFlight>
struct WatchedSides {
  static constexpr int kInFlight = kFlight;
  static constexpr bool kInline = true;
  template <class T>
  static T load(const T* address) {
    T value{};
    if (!watch.may_load(address, sizeof(T))) watch.fault = "load outside the source";
    if (reinterpret_cast<uintptr_t>(address) % sizeof(T) != 0) watch.fault = "misaligned load";
    if (!watch.fault.empty()) return value;
    if (sizeof(T) == sizeof(Vector)) {
      ++watch.vectors_loaded;
      watch.loaded.emplace(watch.rank, address);
    }
    memcpy(&value, address, sizeof(T));
    return value;
  }
  template <class T>
  static void store(T* address, const T& value) {
    const auto at = reinterpret_cast<char*>(address);
    if (at < watch.destination || at + sizeof(T) > watch.destination + watch.bytes) {
      watch.fault = "store outside the destination";
    } else if (reinterpret_cast<uintptr_t>(address) % sizeof(T) != 0) {
      watch.fault = "misaligned store";
    }
    if (!watch.fault.empty()) return;
    for (size_t i = 0; i < sizeof(T); ++i) ++watch.stored[static_cast<size_t>(at - watch.destination) + i];
    memcpy(address, &value, sizeof(T));
  }
};

/// One member of a group: a block of any size, whose rows are its warps.
struct GroupScope {
  static constexpr bool kIsGroup = true;
  int rank_, size_;
  int* turns;
  int rank() const { return rank_; }
  int size() const { return size_; }
  int row() const { return rank_ / 32; }
  int rows() const { return size_ < 32 ? 1 : size_ / 32; }
  int row_size() const { return size_ < 32 ? size_ : 32; }
  int member() const { return rank_ % 32; }
  /// What the next member has loaded there, in a run before this one; arbitrary where it has not.
  Vector of_neighbour(const Vector&, const Vector* address) const {
    ++*turns;
    Vector value;
    memset(&value, 0xee, sizeof value);
    if (member() + 1 < row_size() && watch.loaded.count({rank_ + 1, address}) != 0) {
      memcpy(&value, address, sizeof value);
    }
    return value;
  }
};

constexpr size_t kGuard = 64;

/// Source and destination with guard bytes around, refilled for each case.
class Arena {
 public:
  explicit Arena(size_t bytes) : source_(bytes + 2 * kGuard + 64), destination_(source_.size()) {
    std::mt19937 random(1);
    for (char& byte : source_) byte = static_cast<char>(random());
  }

  /// Runs `body(destination, source, bytes)` on ranges at these offsets from a 32-byte boundary. "" or what is wrong.
  template <class Body>
  std::string run(size_t to, size_t from, size_t bytes, Body&& body) {
    char* const destination = aligned(destination_) + to;
    char* const source = aligned(source_) + from;
    memset(destination - kGuard / 2, 0x5a, bytes + kGuard);
    watch = {source, destination, bytes, std::vector<uint8_t>(bytes, 0), "", 0, 0, {}};
    body(destination, source, bytes);
    if (!watch.fault.empty()) return watch.fault;
    if (memcmp(destination, source, bytes) != 0) return "bytes differ";
    for (size_t i = 0; i < kGuard / 2; ++i) {
      if (destination[-1 - static_cast<ptrdiff_t>(i)] != 0x5a || destination[bytes + i] != 0x5a) return "guard touched";
    }
    return "";
  }

 private:
  static char* aligned(std::vector<char>& bytes) {
    const auto at = reinterpret_cast<uintptr_t>(bytes.data()) + kGuard;
    return bytes.data() + kGuard + (32 - at % 32) % 32;
  }
  std::vector<char> source_, destination_;
};

/// The engine's path of kernels by a group of `size` emulated threads (0: one thread as such).
template <int kFlight>
std::string engine(Arena& arena, int size, size_t to, size_t from, size_t bytes) {
  std::vector<int> turns(static_cast<size_t>(size), 0);
  std::string fault = arena.run(to, from, bytes, [&](char* destination, const char* source, size_t count) {
    if (size == 0) return copy_by_engine<WatchedSides<kFlight>>(ThreadScope(), destination, source, count);
    // Twice: the first run finds out who loads what.
    for (int run = 0; run < 2; ++run) {
      watch.stored.assign(count, 0);
      watch.vectors_loaded = 0;
      for (watch.rank = 0; watch.rank < size; ++watch.rank) {
        const GroupScope member{watch.rank, size, &turns[static_cast<size_t>(watch.rank)]};
        copy_by_engine<WatchedSides<kFlight>>(member, destination, source, count);
      }
    }
  });
  for (const uint8_t times : watch.stored) {
    if (fault.empty() && times != 1) fault = "a byte was stored " + std::to_string(times) + " times";
  }
  for (int rank = 1; fault.empty() && rank < size; ++rank) {
    const auto i = static_cast<size_t>(rank);
    if (rank % 32 != 0 && turns[i] != turns[i - 1]) fault = "members of a row differ in turns";
  }
  if (fault.empty()) return "";
  return fault + ": " + std::to_string(size) + " threads, destination +" + std::to_string(to) + ", source +" +
         std::to_string(from) + ", " + std::to_string(bytes) + " bytes";
}

}  // namespace

TEST_CASE("host copies of every small size at every alignment", "[copy]") {
  Arena arena(256);
  std::string fault;
  for (size_t bytes = 0; bytes <= 80; ++bytes) {
    for (size_t to = 0; to < 32; ++to) {
      for (size_t from = 0; from < 32; ++from) {
        const std::string one = arena.run(to, from, bytes, [](char* destination, const char* source, size_t count) {
          copy(ThreadScope(), destination, source, count);
        });
        if (!one.empty()) fault = one;
      }
    }
  }
  CHECK(fault == "");
}

TEST_CASE("kernel copies of every small size at every alignment", "[copy]") {
  Arena arena(256);
  const int size = GENERATE(0, 1, 5, 32, 128);
  std::string fault;
  for (size_t bytes = 0; bytes <= 80; ++bytes) {
    for (size_t to = 0; to < 32; ++to) {
      for (size_t from = 0; from < 32; ++from) {
        const std::string one = engine<4>(arena, size, to, from, bytes);
        if (!one.empty()) fault = one;
      }
    }
  }
  CHECK(fault == "");
}

TEST_CASE("kernel copies of larger sizes at every alignment modulo 16", "[copy]") {
  Arena arena(40000);
  const int size = GENERATE(0, 2, 31, 32, 33, 96, 128, 200, 1024);
  std::mt19937 random(static_cast<unsigned>(size) + 7);
  std::string fault;
  for (size_t to = 0; to < 16; ++to) {
    for (size_t from = 0; from < 16; ++from) {
      for (const size_t most : {200u, 3000u, 40000u}) {
        // Sizes in bytes, and in each element size, which decides the units of the ends.
        const size_t element = size_t{1} << random() % 4;
        const size_t bytes = random() % (most / element) * element;
        for (const std::string& one :
             {engine<4>(arena, size, to, from, bytes), engine<8>(arena, size, to, from, bytes)}) {
          if (!one.empty()) fault = one;
        }
      }
    }
  }
  CHECK(fault == "");
}

TEST_CASE("one round of vectors", "[copy]") {
  Arena arena(4096);
  const int size = GENERATE(1, 20, 32, 256);
  for (size_t bytes = 0; bytes <= static_cast<size_t>(size) * 16; bytes += 16) {
    const std::string fault = arena.run(0, 16, bytes, [&](char* destination, const char* source, size_t count) {
      for (int rank = 0; rank < size; ++rank) {
        heddle::device::copy_round<WatchedSides<4>>(GroupScope{rank, size, nullptr}, destination, source,
                                                    static_cast<uint32_t>(count));
      }
    });
    CHECK(fault == "");
    CHECK(watch.vectors_loaded == bytes / 16);
  }
}

TEST_CASE("vectors are loaded about once, whatever the alignment", "[copy]") {
  constexpr size_t kBytes = 32768;
  Arena arena(kBytes);
  const size_t from = GENERATE(0, 1, 4, 8, 15);
  REQUIRE(engine<4>(arena, 128, 0, from, kBytes) == "");
  // Each row of 32 loads one vector twice; the ends go by units.
  CHECK(watch.vectors_loaded >= kBytes / 16 - 4);
  CHECK(watch.vectors_loaded <= kBytes / 16 * 32 / 31 + 4);
}

TEST_CASE("aligned elements are never split", "[copy]") {
  // A put of one or a few 8-byte elements must store each at once, or a waiting PE could see half of one.
  Arena arena(256);
  for (const size_t element : {2u, 4u, 8u}) {
    for (size_t count = 1; count <= 5; ++count) {
      for (size_t at = 0; at < 32; at += element) {
        const heddle::device::Cut all{count * element, 0, 0};
        CHECK(heddle::device::unit_of(at, 0, all.head) % element == 0);
        CHECK(engine<4>(arena, 32, at, 0, count * element) == "");
      }
    }
  }
}

TEST_CASE("bulk copies never load a stage whose store may still read it", "[copy]") {
  // An engine that does nothing by itself: loads happen when they are waited for, and stores read their stage as late
  // as they may. A load into a stage that a store has yet to read, or a store of a stage not loaded, is a fault.
  struct Stage {
    const char* source = nullptr;
    uint32_t bytes = 0, loads = 0;
    bool loading = false;
    std::vector<char> memory;
  };
  struct Store {
    char* destination;
    uint32_t stage, bytes;
  };
  struct Engine {
    std::vector<Stage>* stages;
    std::vector<Store>* unread;
    std::string* fault;
    void read_all_but(size_t latest) const {
      while (unread->size() > latest) {
        const Store store = unread->front();
        memcpy(store.destination, (*stages)[store.stage].memory.data(), store.bytes);
        unread->erase(unread->begin());
      }
    }
    void start_load(uint32_t stage, const char* source, uint32_t bytes) const {
      for (const Store& store : *unread) {
        if (store.stage == stage) *fault = "load into a stage that is still to be read";
      }
      Stage& at = (*stages)[stage];
      if (at.loading) *fault = "two loads into one stage";
      if (bytes > at.memory.size()) *fault = "load larger than a stage";
      at.source = source;
      at.bytes = bytes;
      at.loading = true;
    }
    void await_load(uint32_t stage, uint32_t parity) const {
      Stage& at = (*stages)[stage];
      if (!at.loading) *fault = "wait for a load that was not started";
      if (parity != at.loads % 2) *fault = "wrong parity";
      memcpy(at.memory.data(), at.source, at.bytes);
      at.loading = false;
      ++at.loads;
    }
    void start_store(char* destination, uint32_t stage, uint32_t bytes) const {
      if ((*stages)[stage].loading) *fault = "store of a stage that is being loaded";
      unread->push_back({destination, stage, bytes});
    }
    void await_reads_but_one() const { read_all_but(1); }
    void await_stores() const { read_all_but(0); }
  };
  constexpr uint32_t kStageBytes = 64;
  const uint32_t count = GENERATE(2, 3, 4, 8, 16);
  std::mt19937 random(count);
  for (size_t bytes = 16; bytes < 2000; bytes += 16) {
    std::vector<Stage> stages(count);
    for (Stage& stage : stages) stage.memory.resize(kStageBytes);
    std::vector<Store> unread;
    std::string fault;
    std::vector<char> source(bytes), destination(bytes);
    for (char& byte : source) byte = static_cast<char>(random());
    const uint32_t odd = heddle::device::bulk_ring(Engine{&stages, &unread, &fault}, destination.data(), source.data(),
                                                   bytes, count, kStageBytes);
    CHECK(fault == "");
    CHECK(destination == source);
    for (uint32_t i = 0; i < count; ++i) {
      CHECK(!stages[i].loading);
      CHECK((odd >> i & 1) == stages[i].loads % 2);  // where the barriers' phases go on in the next call
    }
    CHECK(odd >> count == 0);
  }
}

TEST_CASE("strided copies move every element once, by groups of any size", "[copy]") {
  struct Member {
    int rank_, size_;
    int rank() const { return rank_; }
    int size() const { return size_; }
  };
  const int size = GENERATE(1, 3, 32);
  const ptrdiff_t to = GENERATE(1, 3), from = GENERATE(1, 2);
  std::vector<int> source(200), destination(300, -1), expected(300, -1);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<int>(i);
  for (ptrdiff_t i = 0; i < 97; ++i) expected[static_cast<size_t>(i * to)] = source[static_cast<size_t>(i * from)];
  for (int rank = 0; rank < size; ++rank) {
    heddle::device::strided_copy(Member{rank, size}, destination.data(), source.data(), to, from, 97);
  }
  CHECK(destination == expected);
}
