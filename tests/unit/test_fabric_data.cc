// Data operations: one body for every fabric. A new fabric adds a line to `kMakers`.
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device/half_convert.h"
#include "runtime/fabric/fault/fault_fabric.h"
#include "tests/catch.h"
#include "tests/unit/fabric_group.h"

using namespace heddle;
using namespace heddle::test;

namespace {

constexpr int kPes = 4;
constexpr uint64_t kBytes = uint64_t{1} << 20;

std::unique_ptr<Fabric> with_faults(std::unique_ptr<Courier> courier, int pe, const std::string& text) {
  FaultPlan plan;
  must(FaultPlan::parse(text, pe, &plan));
  return std::make_unique<FaultFabric>(make_host_fabric(std::move(courier)), std::move(plan));
}

const std::map<std::string, FabricMaker> kMakers = {
    {"host", [](std::unique_ptr<Courier> courier, int) { return make_host_fabric(std::move(courier)); }},
    {"host+fault", [](std::unique_ptr<Courier> courier, int pe) { return with_faults(std::move(courier), pe, ""); }},
    {"host+reorder", [](std::unique_ptr<Courier> courier,
                        int pe) { return with_faults(std::move(courier), pe, "reorder=" + std::to_string(pe + 1)); }},
};

void expect(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);  // Catch2's own checks are not for several threads
}

/// Waits until the word has the value, with acquire order, at most 20 s.
void wait_for(const uint64_t* word, uint64_t value, const char* what) {
  const Deadline deadline = Deadline::in(20);
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) {
    if (deadline.passed()) throw std::runtime_error(std::string(what) + " did not come");
    std::this_thread::yield();
  }
}

uint64_t fetch(Fabric& fabric, AtomicType type, EndpointId id, uint64_t offset) {
  uint64_t value = 0;
  must(fabric.atomic(AtomicOp::kFetch, type, id, offset, 0, 0, &value));
  return value;
}

}  // namespace

TEST_CASE("data operations") {
  const auto kind = GENERATE(from_range(std::vector<std::string>{"host", "host+fault", "host+reorder"}));
  CAPTURE(kind);
  FabricGroup group(kPes, kBytes, kMakers.at(kind));

  SECTION("put and get, every PE to every PE") {
    group.run([&](TestPe& pe) {
      const uint64_t slot = 4096 + 65536 * static_cast<uint64_t>(pe.my_pe);
      for (const size_t bytes : {size_t{0}, size_t{1}, size_t{7}, size_t{4096}, size_t{65531}}) {
        std::vector<unsigned char> sent(bytes), got(bytes);
        for (int other = 0; other < kPes; ++other) {
          for (size_t i = 0; i < bytes; ++i)
            sent[i] = static_cast<unsigned char>(i * 7 + other + 13 * pe.my_pe + bytes);
          must(pe.fabric->put(pe.id(other), slot + 5, sent.data(), bytes));
          const auto kept = sent;
          std::fill(sent.begin(), sent.end(), 0xee);  // the source may be reused on return
          must(pe.fabric->get(pe.id(other), slot + 5, got.data(), bytes));
          expect(pe.fabric->quiet().is_ok() && (bytes == 0 || got == kept), "a get read something else than was put");
          if (other == pe.my_pe && bytes > 0) {
            expect(std::memcmp(pe.at(other, slot + 5), kept.data(), bytes) == 0, "the own memory holds something else");
          }
          sent = kept;
        }
      }
    });
  }

  SECTION("a put to itself between overlapping ranges") {
    group.run([&](TestPe& pe) {
      for (size_t i = 0; i < 1000; ++i) pe.at(pe.my_pe, 0)[i] = static_cast<std::byte>(i % 251);
      must(pe.fabric->put(pe.own(), 3, pe.at(pe.my_pe, 0), 997));
      must(pe.fabric->quiet());
      for (size_t i = 3; i < 1000; ++i) {
        expect(pe.at(pe.my_pe, 0)[i] == static_cast<std::byte>((i - 3) % 251), "overlapping put went wrong");
      }
    });
  }

  SECTION("put with signal round the ring: who sees the signal sees the data") {
    constexpr uint64_t kSignal = 64, kAnswer = 128, kData = 8192;
    constexpr size_t kWords = 1000;
    group.run([&](TestPe& pe) {
      const int right = (pe.my_pe + 1) % kPes, left = (pe.my_pe + kPes - 1) % kPes;
      std::vector<uint64_t> data(kWords);
      for (uint64_t round = 1; round <= 200; ++round) {
        for (size_t i = 0; i < kWords; ++i) data[i] = round * 1000 + i + static_cast<uint64_t>(pe.my_pe);
        const bool set = round % 2 == 0;
        must(pe.fabric->put_signal(pe.id(right), kData, data.data(), kWords * 8, kSignal, set ? round : 1,
                                   set ? SignalOp::kSet : SignalOp::kAdd));
        wait_for(pe.word(kSignal), round, "the signal");  // without a quiet: it must come all the same
        for (size_t i = 0; i < kWords; ++i) {
          expect(pe.word(kData)[i] == round * 1000 + i + static_cast<uint64_t>(left), "signal came before its data");
        }
        must(pe.fabric->put_signal(pe.id(left), 0, nullptr, 0, kAnswer, 1, SignalOp::kAdd));
        wait_for(pe.word(kAnswer), round, "the answer");
      }
    });
  }

  SECTION("signals and counters order data between threads of one PE too") {
    // ThreadSanitizer judges this one: here both sides use the same addresses, across PEs they are different mappings.
    constexpr uint64_t kSet = 64, kAdd = 128, kCounter = 256, kAnswer = 512, kData = 4096, kWords = 64;
    TestPe& pe = *group.pes[0];
    std::exception_ptr failure;
    std::thread reader([&] {
      try {
        for (uint64_t round = 1; round <= 100; ++round) {
          wait_for(pe.word(kSet), round, "the set signal");
          wait_for(pe.word(kAdd), round, "the added signal");
          wait_for(pe.word(kCounter), round * kWords * 8, "the counter");
          for (uint64_t i = 0; i < 3 * kWords; ++i) expect(pe.word(kData)[i] == round, "a signal came before its data");
          __atomic_store_n(pe.word(kAnswer), round, __ATOMIC_RELEASE);
        }
      } catch (...) {
        failure = std::current_exception();
      }
    });
    for (uint64_t round = 1; round <= 100; ++round) {
      const std::vector<uint64_t> data(kWords, round);
      const size_t bytes = kWords * 8;
      must(pe.fabric->put_signal(pe.own(), kData, data.data(), bytes, kSet, round, SignalOp::kSet));
      must(pe.fabric->put_signal(pe.own(), kData + bytes, data.data(), bytes, kAdd, 1, SignalOp::kAdd));
      must(pe.fabric->put_counted(pe.own(), kData + 2 * bytes, data.data(), bytes, kCounter));
      try {
        wait_for(pe.word(kAnswer), round, "the answer");
      } catch (...) {
        break;  // the reader tells
      }
    }
    reader.join();
    if (failure) std::rethrow_exception(failure);
    CHECK(*pe.word(kAnswer) == 100);
  }

  SECTION("counted puts: the final sum says that all came") {
    constexpr uint64_t kCounter = 256, kData = 16384, kPart = 1001;
    group.run([&](TestPe& pe) {
      std::vector<unsigned char> data(kPart, static_cast<unsigned char>(pe.my_pe + 1));
      for (uint64_t i = 0; i < 50; ++i) {
        const uint64_t offset = kData + (static_cast<uint64_t>(pe.my_pe) * 50 + i) * kPart;
        must(pe.fabric->put_counted(pe.id(0), offset, data.data(), kPart, kCounter));
      }
      if (pe.my_pe == 0) {
        wait_for(pe.word(kCounter), kPes * 50 * kPart, "the sum");
        for (uint64_t i = 0; i < kPes * 50 * kPart; ++i) {
          expect(static_cast<uint64_t>(pe.at(0, kData)[i]) == i / (50 * kPart) + 1, "the sum came before the data");
        }
      }
      must(pe.fabric->quiet());
      group.sync.arrive_and_wait();
    });
  }

  SECTION("fence orders what goes before it before what comes after") {
    constexpr uint64_t kFlag = 512, kValues = 1024, kCount = 40, kRounds = 100;
    group.run([&](TestPe& pe) {
      const int right = (pe.my_pe + 1) % kPes;
      for (uint64_t round = 1; round <= kRounds; ++round) {
        for (uint64_t i = 0; i < kCount; ++i) {
          must(pe.fabric->atomic(AtomicOp::kSet, AtomicType::kU64, pe.id(right), kValues + 8 * i, round, 0, nullptr));
        }
        must(pe.fabric->fence());
        must(pe.fabric->signal(pe.id(right), kFlag, round, SignalOp::kSet));
        uint64_t seen = 0;
        const Deadline deadline = Deadline::in(20);
        while ((seen = __atomic_load_n(pe.word(kFlag), __ATOMIC_ACQUIRE)) < round) {
          expect(!deadline.passed(), "the flag did not come");
          std::this_thread::yield();
        }
        for (uint64_t i = 0; i < kCount; ++i) {
          expect(__atomic_load_n(pe.word(kValues) + i, __ATOMIC_RELAXED) >= seen, "a flag overtook the fence");
        }
      }
      must(pe.fabric->quiet());
      group.sync.arrive_and_wait();
    });
  }

  SECTION("fetching add gives every value once") {
    std::vector<std::vector<uint64_t>> seen(kPes);
    group.run([&](TestPe& pe) {
      for (int i = 0; i < 500; ++i) {
        uint64_t old = 0;
        must(pe.fabric->atomic(AtomicOp::kAdd, AtomicType::kU64, pe.id(1), 2048, 1, 0, &old));
        seen[static_cast<size_t>(pe.my_pe)].push_back(old);
      }
    });
    std::set<uint64_t> all;
    for (const auto& values : seen) all.insert(values.begin(), values.end());
    CHECK(all.size() == 500 * kPes);
    CHECK(*all.rbegin() == 500 * kPes - 1);
  }

  SECTION("adds of every type from all PEs at once") {
    const uint16_t half_one = device::float_to_half(1.0f).bits;
    group.run([&](TestPe& pe) {
      Fabric& fabric = *pe.fabric;
      for (int i = 0; i < 400; ++i) {
        must(fabric.atomic(AtomicOp::kAdd, AtomicType::kU32, pe.id(2), 0, 0xffffffffu, 0, nullptr));  // -1
        must(fabric.atomic(AtomicOp::kAdd, AtomicType::kU64, pe.id(2), 8, 3, 0, nullptr));
        must(fabric.atomic(AtomicOp::kAdd, AtomicType::kF32, pe.id(2), 16, std::bit_cast<uint32_t>(0.5f), 0, nullptr));
        must(fabric.atomic(AtomicOp::kAdd, AtomicType::kF64, pe.id(2), 24, std::bit_cast<uint64_t>(-0.25), 0, nullptr));
        must(fabric.atomic(AtomicOp::kAdd, AtomicType::kF16, pe.id(2), 34, half_one, 0, nullptr));
      }
      must(fabric.quiet());
      group.sync.arrive_and_wait();
    });
    TestPe& pe = *group.pes[0];
    CHECK(fetch(*pe.fabric, AtomicType::kU32, pe.id(2), 0) == static_cast<uint32_t>(-400 * kPes));
    CHECK(fetch(*pe.fabric, AtomicType::kU32, pe.id(2), 4) == 0);  // the neighbour is untouched
    CHECK(fetch(*pe.fabric, AtomicType::kU64, pe.id(2), 8) == 1200 * kPes);
    CHECK(std::bit_cast<float>(static_cast<uint32_t>(fetch(*pe.fabric, AtomicType::kF32, pe.id(2), 16))) ==
          200.0f * kPes);
    CHECK(std::bit_cast<double>(fetch(*pe.fabric, AtomicType::kF64, pe.id(2), 24)) == -100.0 * kPes);
    CHECK(fetch(*pe.fabric, AtomicType::kF16, pe.id(2), 34) == device::float_to_half(400.0f * kPes).bits);
    CHECK(fetch(*pe.fabric, AtomicType::kF16, pe.id(2), 32) == 0);
    CHECK(fetch(*pe.fabric, AtomicType::kF16, pe.id(2), 36) == 0);
  }

  SECTION("every atomic operation on its own") {
    TestPe& pe = *group.pes[3];
    Fabric& fabric = *pe.fabric;
    auto run = [&](AtomicOp op, AtomicType type, uint64_t operand, uint64_t compare = 0) {
      uint64_t old = ~uint64_t{0};
      const Status status = fabric.atomic(op, type, pe.id(1), 64, operand, compare, &old);
      INFO(status.text());
      REQUIRE(status.is_ok());
      return old;
    };
    for (const AtomicType type : {AtomicType::kU32, AtomicType::kU64}) {
      const uint64_t mask = type == AtomicType::kU32 ? 0xffffffffu : ~uint64_t{0};
      CHECK(run(AtomicOp::kSet, type, 0xf0f0f0f0f0f0f0f0u & mask) == 0);
      CHECK(run(AtomicOp::kSwap, type, 0x123456789abcdef0u & mask) == (0xf0f0f0f0f0f0f0f0u & mask));
      CHECK(run(AtomicOp::kCompareSwap, type, 1, 2) == (0x123456789abcdef0u & mask));  // differs: stays
      CHECK(run(AtomicOp::kCompareSwap, type, 0xff, 0x123456789abcdef0u & mask) == (0x123456789abcdef0u & mask));
      CHECK(run(AtomicOp::kAnd, type, 0x0f) == 0xff);
      CHECK(run(AtomicOp::kOr, type, 0xf0) == 0x0f);
      CHECK(run(AtomicOp::kXor, type, 0xaa) == 0xff);
      CHECK(run(AtomicOp::kAdd, type, mask) == 0x55);  // minus one
      CHECK(run(AtomicOp::kFetch, type, 0) == 0x54);
      CHECK(run(AtomicOp::kSwap, type, 0) == 0x54);
    }
    for (const AtomicType type : {AtomicType::kF16, AtomicType::kF32, AtomicType::kF64}) {
      const uint64_t nan = type == AtomicType::kF16   ? 0x7e01
                           : type == AtomicType::kF32 ? 0x7fc00001
                                                      : 0x7ff8000000000001;
      CHECK(run(AtomicOp::kSet, type, nan) == 0);
      CHECK(run(AtomicOp::kSwap, type, 0) == nan);  // bits travel unchanged
      CHECK(run(AtomicOp::kFetch, type, 0) == 0);
      for (const AtomicOp op : {AtomicOp::kCompareSwap, AtomicOp::kAnd, AtomicOp::kOr, AtomicOp::kXor}) {
        uint64_t old = 0;
        CHECK(fabric.atomic(op, type, pe.id(1), 64, 0, 0, &old).code() == Code::kInvalidValue);
      }
    }
    uint64_t old = 0;
    CHECK(fabric.atomic(AtomicOp::kFetch, AtomicType::kU64, pe.id(1), 4, 0, 0, &old).code() == Code::kInvalidValue);
    CHECK(fabric.atomic(AtomicOp::kFetch, AtomicType::kU32, pe.id(1), 2, 0, 0, &old).code() == Code::kInvalidValue);
    CHECK(fabric.atomic(AtomicOp::kFetch, AtomicType::kF16, pe.id(1), 1, 0, 0, &old).code() == Code::kInvalidValue);
  }

  SECTION("signals alone") {
    TestPe& pe = *group.pes[2];
    must(pe.fabric->signal(pe.id(0), 8, 5, SignalOp::kSet));
    must(pe.fabric->fence());
    must(pe.fabric->signal(pe.id(0), 8, 6, SignalOp::kAdd));
    must(pe.fabric->quiet());
    CHECK(fetch(*pe.fabric, AtomicType::kU64, pe.id(0), 8) == 11);
    CHECK(*group.pes[0]->word(8) == 11);
  }

  SECTION("operations on an id without a ready endpoint fail, at once or by the next quiet") {
    TestPe& pe = *group.pes[0];
    for (const EndpointId id : {EndpointId{0}, EndpointId{60000}, EndpointId{65536}, ~EndpointId{0}}) {
      uint64_t value = 0;
      Status status = pe.fabric->put(id, 0, &value, 8);
      if (status.is_ok()) status = pe.fabric->quiet();
      CHECK(status.code() == Code::kNotReady);
      CHECK(pe.fabric->get(id, 0, &value, 8).code() == Code::kNotReady);
      CHECK(pe.fabric->quiet().is_ok());  // told once
    }
  }
}

TEST_CASE("halves convert exactly and round to nearest even") {
  using device::float_to_half;
  using device::Half;
  using device::half_to_float;
  // The value by the definition of the format, independent of the conversion's bit work.
  auto value_of = [](uint16_t bits) {
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -magnitude : magnitude;
  };
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = half_to_float(Half{half});
    if ((bits & 0x7c00) == 0x7c00) {
      if ((bits & 0x3ff) == 0) {
        REQUIRE(std::isinf(value));
        REQUIRE(float_to_half(value).bits == half);
      } else {
        REQUIRE(std::isnan(value));
        REQUIRE(std::isnan(half_to_float(float_to_half(value))));
      }
      REQUIRE(std::signbit(value) == ((bits & 0x8000) != 0));
      continue;
    }
    REQUIRE(static_cast<double>(value) == value_of(half));
    REQUIRE(float_to_half(value).bits == half);
    // Between this half and the next of larger magnitude: nearest, and the even one in the middle.
    if ((bits & 0x7fff) >= 0x7bff) continue;
    const float next = half_to_float(Half{static_cast<uint16_t>(bits + 1)});
    const float middle = static_cast<float>((static_cast<double>(value) + next) / 2);  // exact in a float
    REQUIRE(float_to_half(middle).bits == (bits % 2 == 0 ? half : half + 1));
    REQUIRE(float_to_half(std::nextafterf(middle, value)).bits == half);
    REQUIRE(float_to_half(std::nextafterf(middle, next)).bits == half + 1);
  }
  CHECK(float_to_half(65519.996f).bits == 0x7bff);
  CHECK(float_to_half(65520.0f).bits == 0x7c00);
  CHECK(float_to_half(-1e30f).bits == 0xfc00);
  CHECK(float_to_half(1e-30f).bits == 0);
  CHECK((float_to_half(2048.0f) + float_to_half(1.0f)).bits == float_to_half(2048.0f).bits);
  CHECK((float_to_half(2048.0f) + float_to_half(3.0f)).bits == float_to_half(2052.0f).bits);
}
