// The heap allocator: placement, growth, giving back, and a random walk against a model that marks every unit.
#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "heap/allocator.h"
#include "tests/catch.h"

using heddle::Allocator;
using heddle::Code;
using heddle::Extent;
using heddle::Status;

namespace {

constexpr uint64_t kUnit = Allocator::kMinAlignment;
constexpr uint64_t kChunk = 4096;
constexpr uint64_t kNone = ~uint64_t{0};

/// Allocates as the heap does: plan, grow, take. kNone when it cannot be had.
uint64_t allocate(Allocator& allocator, uint64_t bytes, uint64_t alignment = 1) {
  const Allocator::Plan plan = allocator.plan(bytes, alignment);
  if (!plan.fits && !plan.can_grow) return kNone;
  if (!plan.fits) allocator.add_segment(plan.segment);
  allocator.take(plan.offset, bytes);
  return plan.offset;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The naive model: one entry for each unit of the heap.
struct Model {
  explicit Model(uint64_t limit) : memory(limit / kUnit, false), taken(limit / kUnit, 0) {}
  std::vector<bool> memory;
  std::vector<int> taken;

  uint64_t free_run_longest() const {
    uint64_t longest = 0, run = 0;
    for (size_t i = 0; i < memory.size(); ++i) {
      run = memory[i] && !taken[i] ? run + 1 : 0;
      longest = std::max(longest, run);
    }
    return longest * kUnit;
  }
  bool fits_present(uint64_t bytes, uint64_t alignment) const {
    const uint64_t units = (bytes + kUnit - 1) / kUnit, step = std::max<uint64_t>(1, alignment / kUnit);
    for (uint64_t start = 0; start + units <= memory.size(); start += step) {
      bool free = true;
      for (uint64_t i = start; i < start + units && free; ++i) free = memory[i] && !taken[i];
      if (free) return true;
    }
    return false;
  }
};

}  // namespace

TEST_CASE("the first allocation grows by whole chunks from offset 0") {
  Allocator allocator(16 * kChunk, kChunk);
  const auto plan = allocator.plan(kChunk + 1, 1);
  CHECK_FALSE(plan.fits);
  REQUIRE(plan.can_grow);
  CHECK(plan.offset == 0);
  CHECK(plan.segment.offset == 0);
  CHECK(plan.segment.bytes == 2 * kChunk);
  CHECK(allocator.physical() == 0);  // plan() changes nothing
  CHECK(allocate(allocator, kChunk + 1) == 0);
  CHECK(allocator.block_bytes(0) == kChunk + kUnit);
  CHECK(allocator.in_use() == kChunk + kUnit);
  CHECK(allocator.physical() == 2 * kChunk);
}

TEST_CASE("growth uses the free tail of the last segment") {
  Allocator allocator(16 * kChunk, kChunk);
  REQUIRE(allocate(allocator, 3 * kUnit) == 0);
  const auto plan = allocator.plan(kChunk, 1);
  REQUIRE(plan.can_grow);
  CHECK(plan.offset == 3 * kUnit);
  CHECK(plan.segment.offset == kChunk);
  CHECK(plan.segment.bytes == kChunk);
}

TEST_CASE("growth fills a lower gap when that needs no more memory") {
  Allocator allocator(16 * kChunk, kChunk);
  for (uint64_t i = 0; i < 4; ++i) REQUIRE(allocate(allocator, kChunk) == i * kChunk);
  REQUIRE(allocator.give_back(kChunk).is_ok());
  REQUIRE(allocator.give_back(2 * kChunk).is_ok());
  const auto removable = allocator.removable_segments();
  REQUIRE(removable.size() == 1);  // the other one is the spare
  CHECK(removable[0].offset == 2 * kChunk);
  allocator.remove_segment(removable[0]);
  CHECK(allocator.physical() == 3 * kChunk);
  const auto plan = allocator.plan(2 * kChunk, 1);
  REQUIRE(plan.can_grow);
  CHECK(plan.offset == kChunk);  // the spare and the gap behind it
  CHECK(plan.segment.offset == 2 * kChunk);
  CHECK(plan.segment.bytes == kChunk);
}

TEST_CASE("a block may use free memory on both sides of the gap that it fills") {
  Allocator allocator(5 * kChunk, kChunk);
  for (uint64_t i = 0; i < 5; ++i) REQUIRE(allocate(allocator, kChunk) == i * kChunk);
  for (uint64_t i = 1; i < 4; ++i) REQUIRE(allocator.give_back(i * kChunk).is_ok());
  allocator.remove_segment({2 * kChunk, kChunk});
  CHECK(allocator.largest_free() == 3 * kChunk);
  const auto plan = allocator.plan(3 * kChunk, 1);
  REQUIRE(plan.can_grow);
  CHECK(plan.offset == kChunk);
  CHECK(plan.segment.offset == 2 * kChunk);
  CHECK(plan.segment.bytes == kChunk);
}

TEST_CASE("best fit takes the smallest free range, the lowest among equals") {
  Allocator allocator(kChunk, kChunk);
  const uint64_t sizes[] = {3, 1, 2, 1, 2, 1};  // free afterwards: 3 at 0, 2 at 4, 2 at 7, and the tail
  uint64_t at = 0;
  std::vector<uint64_t> starts;
  for (const uint64_t size : sizes) {
    REQUIRE(allocate(allocator, size * kUnit) == at);
    starts.push_back(at);
    at += size * kUnit;
  }
  for (const size_t i : {0, 2, 4}) REQUIRE(allocator.give_back(starts[i]).is_ok());
  CHECK(allocate(allocator, 2 * kUnit) == starts[2]);
  CHECK(allocate(allocator, 2 * kUnit) == starts[4]);
  CHECK(allocate(allocator, 1) == starts[0]);
}

TEST_CASE("alignment may be larger than a chunk") {
  Allocator allocator(64 * kChunk, kChunk);
  REQUIRE(allocate(allocator, 1) == 0);
  const auto plan = allocator.plan(1, 16 * kChunk);
  REQUIRE(plan.can_grow);
  CHECK(plan.offset == 16 * kChunk);
  CHECK(plan.segment.offset == 16 * kChunk);
  CHECK(plan.segment.bytes == kChunk);
  CHECK(allocate(allocator, 1, 16 * kChunk) == 16 * kChunk);
  CHECK(allocate(allocator, 1, 16 * kChunk) == 32 * kChunk);
  CHECK(allocator.physical() == 3 * kChunk);
  CHECK(allocate(allocator, 1, 64 * kChunk) == kNone);  // only offset 0 is so aligned, and it is taken
  CHECK(allocate(allocator, 1, uint64_t{1} << 63) == kNone);
}

TEST_CASE("sizes that cannot be are refused") {
  Allocator allocator(4 * kChunk, kChunk);
  for (const uint64_t bytes : {4 * kChunk + 1, ~uint64_t{0}, ~uint64_t{0} - kUnit, uint64_t{0}}) {
    const auto plan = allocator.plan(bytes, 1);
    CHECK_FALSE(plan.fits);
    CHECK_FALSE(plan.can_grow);
  }
  CHECK_FALSE(allocator.plan(kUnit, 3 * kUnit).can_grow);  // no power of two
  CHECK(allocate(allocator, 4 * kChunk) == 0);
  CHECK(allocator.largest_free() == 0);
  CHECK(allocate(allocator, 1) == kNone);
  REQUIRE(allocator.give_back(0).is_ok());
  CHECK(allocator.largest_free() == 4 * kChunk);
}

TEST_CASE("give_back says what is at an offset that starts no block") {
  Allocator allocator(16 * kChunk, kChunk);
  Status status = allocator.give_back(0);
  CHECK(status.code() == Code::kInvalidValue);
  CHECK(contains(status.text(), "outside the heap"));
  REQUIRE(allocate(allocator, 4 * kUnit) == 0);
  status = allocator.give_back(2 * kUnit);
  CHECK(status.code() == Code::kInvalidValue);
  CHECK(contains(status.text(), "inside the block of 1024 bytes that starts at offset 0"));
  status = allocator.give_back(4 * kUnit);  // one past the block
  CHECK(status.code() == Code::kInvalidValue);
  CHECK(contains(status.text(), "is free"));
  status = allocator.give_back(100 * kChunk);
  CHECK(status.code() == Code::kInvalidValue);
  CHECK(contains(status.text(), "outside the heap, whose memory ends at offset 4096"));
  CHECK(allocator.blocks() == 1);
  CHECK(allocator.give_back(0).is_ok());
  status = allocator.give_back(0);
  CHECK(status.code() == Code::kInvalidValue);
  CHECK(contains(status.text(), "given back already"));
  CHECK(allocator.in_use() == 0);
}

TEST_CASE("empty segments are removable but the first and one spare chunk") {
  Allocator allocator(64 * kChunk, kChunk);
  REQUIRE(allocate(allocator, kChunk) == 0);
  REQUIRE(allocate(allocator, kChunk) == kChunk);
  REQUIRE(allocate(allocator, 3 * kChunk) == 2 * kChunk);
  REQUIRE(allocate(allocator, kChunk) == 5 * kChunk);
  CHECK(allocator.removable_segments().empty());
  REQUIRE(allocator.give_back(5 * kChunk).is_ok());
  CHECK(allocator.removable_segments().empty());  // the spare
  REQUIRE(allocator.give_back(kChunk).is_ok());
  auto removable = allocator.removable_segments();
  REQUIRE(removable.size() == 1);
  CHECK(removable[0].offset == 5 * kChunk);
  REQUIRE(allocator.give_back(2 * kChunk).is_ok());
  REQUIRE(allocator.give_back(0).is_ok());
  removable = allocator.removable_segments();
  REQUIRE(removable.size() == 2);
  CHECK(removable[0].offset == 2 * kChunk);
  CHECK(removable[0].bytes == 3 * kChunk);
  CHECK(removable[1].offset == 5 * kChunk);
  for (const Extent& segment : removable) allocator.remove_segment(segment);
  CHECK(allocator.physical() == 2 * kChunk);
  CHECK(allocator.extent() == 2 * kChunk);
  CHECK(allocator.removable_segments().empty());
  CHECK(allocate(allocator, 2 * kChunk) == 0);  // first and spare are one free range
}

TEST_CASE("a random walk agrees with the model, and two instances with each other") {
  constexpr uint64_t kLimit = 64 * kChunk;
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u, 6u}) {
    std::mt19937_64 random(seed);
    Allocator first(kLimit, kChunk), second(kLimit, kChunk);
    Model model(kLimit);
    std::map<uint64_t, uint64_t> live;  // offset -> rounded bytes
    uint64_t in_use = 0;
    int refused = 0, grown = 0, removed = 0;
    for (int step = 0; step < 3000; ++step) {
      INFO("seed " << seed << " step " << step);
      const unsigned choice = random() % 100;
      // Phases of mostly taking and mostly giving back, so that both the limit and the empty heap are met.
      if (choice < (step / 200 % 2 == 0 ? 65u : 30u)) {
        const uint64_t bytes = random() % 8 == 0 ? 1 + random() % (8 * kChunk) : 1 + random() % kChunk;
        const uint64_t alignment = uint64_t{1} << (random() % 8 == 0 ? random() % 17 : random() % 10);
        const auto plan = first.plan(bytes, alignment);
        REQUIRE(plan.fits == model.fits_present(bytes, alignment));
        if (plan.can_grow) {
          ++grown;
          for (uint64_t i = plan.segment.offset / kUnit; i < (plan.segment.offset + plan.segment.bytes) / kUnit; ++i) {
            REQUIRE_FALSE(model.memory[i]);
            model.memory[i] = true;
          }
        }
        const uint64_t offset = allocate(first, bytes, alignment);
        REQUIRE(allocate(second, bytes, alignment) == offset);
        if (offset == kNone) {
          ++refused;
          REQUIRE((first.largest_free() < bytes || alignment > kUnit));
          continue;
        }
        REQUIRE(offset % std::max(alignment, kUnit) == 0);
        const uint64_t rounded = first.block_bytes(offset);
        REQUIRE(rounded >= bytes);
        REQUIRE(rounded - bytes < kUnit);
        for (uint64_t i = offset / kUnit; i < (offset + rounded) / kUnit; ++i) {
          REQUIRE(model.memory[i]);
          REQUIRE(model.taken[i] == 0);
          model.taken[i] = 1;
        }
        live[offset] = rounded;
        in_use += rounded;
      } else if (!live.empty() && choice < 95) {
        const auto block = std::next(live.begin(), static_cast<long>(random() % live.size()));
        if (block->second > kUnit) REQUIRE(first.give_back(block->first + kUnit).code() == Code::kInvalidValue);
        REQUIRE(first.give_back(block->first).is_ok());
        REQUIRE(second.give_back(block->first).is_ok());
        REQUIRE(first.give_back(block->first).code() == Code::kInvalidValue);
        for (uint64_t i = block->first / kUnit; i < (block->first + block->second) / kUnit; ++i) model.taken[i] = 0;
        in_use -= block->second;
        live.erase(block);
      } else {
        const auto removable = first.removable_segments();
        const auto same = second.removable_segments();
        REQUIRE(removable.size() == same.size());
        for (size_t i = 0; i < removable.size(); ++i) {
          ++removed;
          REQUIRE(removable[i].offset == same[i].offset);
          for (uint64_t u = removable[i].offset / kUnit; u < (removable[i].offset + removable[i].bytes) / kUnit; ++u) {
            REQUIRE(model.memory[u]);
            REQUIRE(model.taken[u] == 0);
            model.memory[u] = false;
          }
          first.remove_segment(removable[i]);
          second.remove_segment(same[i]);
        }
      }
      REQUIRE(first.in_use() == in_use);
      REQUIRE(first.blocks() == live.size());
      REQUIRE(first.physical() ==
              kUnit * static_cast<uint64_t>(std::count(model.memory.begin(), model.memory.end(), true)));
      REQUIRE(first.largest_free() >= model.free_run_longest());
      REQUIRE(first.physical() <= kLimit);
    }
    CHECK(refused > 0);
    CHECK(grown > 0);
    CHECK(removed > 0);
    for (const auto& block : live) REQUIRE(first.give_back(block.first).is_ok());
    CHECK(first.in_use() == 0);
    CHECK(first.blocks() == 0);
    for (const Extent& segment : first.removable_segments()) first.remove_segment(segment);
    CHECK(first.removable_segments().empty());
    CHECK(first.largest_free() == kLimit);  // all coalesced: one block may take the whole heap
    CHECK(allocate(first, kLimit) == 0);
    CHECK(first.physical() == kLimit);
  }
}

TEST_CASE("the spare does not split the largest gap") {
  Allocator allocator(8 * kChunk, kChunk);
  for (uint64_t i = 0; i < 5; ++i) REQUIRE(allocate(allocator, kChunk) == i * kChunk);
  for (const uint64_t i : {1, 2, 3}) REQUIRE(allocator.give_back(i * kChunk).is_ok());
  for (const Extent& segment : allocator.removable_segments()) allocator.remove_segment(segment);
  REQUIRE(allocator.give_back(0).is_ok());
  REQUIRE(allocator.give_back(4 * kChunk).is_ok());
  for (const Extent& segment : allocator.removable_segments()) allocator.remove_segment(segment);
  CHECK(allocator.physical() == 2 * kChunk);
  CHECK(allocator.largest_free() == 8 * kChunk);
  CHECK(allocate(allocator, 8 * kChunk) == 0);
}

TEST_CASE("registered segments take gaps, and the heap grows around them") {
  Allocator allocator(8 * kChunk, kChunk);
  constexpr uint64_t kPart = kChunk / 4;
  REQUIRE(allocate(allocator, kChunk) == 0);
  CHECK(allocator.place_registered(kPart) == kChunk);
  CHECK(!allocator.place_registered(7 * kChunk + kPart));
  CHECK(allocator.largest_gap() == 7 * kChunk);
  allocator.add_registered({kChunk, kPart});
  CHECK(allocator.registered() == 1);
  CHECK(allocator.extent() == kChunk + kPart);
  CHECK(allocator.registered_at(kChunk - 1).bytes == 0);
  CHECK(allocator.registered_at(kChunk + kPart - 1).offset == kChunk);
  CHECK(allocator.registered_at(kChunk + kPart).bytes == 0);
  CHECK(!allocator.is_gap({kChunk, kPart}));
  CHECK(!allocator.is_gap({kChunk + kPart, 8 * kChunk}));
  CHECK(allocator.is_gap({7 * kChunk, kChunk}));
  // Growth fills the rest of the cut chunk first, and no block lies in or across the registered one.
  CHECK(allocate(allocator, kPart) == kChunk + kPart);
  CHECK(allocator.physical() == 2 * kChunk);
  CHECK(!allocator.give_back(kChunk).is_ok());
  allocator.add_registered({4 * kChunk, kChunk});
  CHECK(allocator.largest_free() == 3 * kChunk);
  CHECK(allocator.place_registered(2 * kChunk) == 2 * kChunk);  // the smaller of two gaps
  CHECK(allocate(allocator, 3 * kChunk) == 5 * kChunk);
  for (const Extent& segment : allocator.removable_segments())
    CHECK(allocator.registered_at(segment.offset).bytes == 0);
  REQUIRE(allocator.give_back(kChunk + kPart).is_ok());
  REQUIRE(allocator.give_back(5 * kChunk).is_ok());
  for (const Extent& segment : allocator.removable_segments()) allocator.remove_segment(segment);
  CHECK(allocator.registered() == 2);
  allocator.remove_segment({kChunk, kPart});
  allocator.remove_segment({4 * kChunk, kChunk});
  CHECK(allocator.registered() == 0);
  REQUIRE(allocator.give_back(0).is_ok());
  for (const Extent& segment : allocator.removable_segments()) allocator.remove_segment(segment);
  CHECK(allocator.largest_free() == 8 * kChunk);
}

TEST_CASE("has_memory knows segments and what lies between them") {
  constexpr uint64_t kUnit = 1 << 16;
  Allocator allocator(16 * kUnit, kUnit);
  CHECK_FALSE(allocator.has_memory({0, 1}));
  CHECK(allocator.has_memory({0, 0}));
  allocator.add_segment({0, kUnit});
  allocator.add_segment({kUnit, 2 * kUnit});
  allocator.add_registered({5 * kUnit, kUnit});
  CHECK(allocator.has_memory({0, 3 * kUnit}));
  CHECK(allocator.has_memory({kUnit - 8, 16}));  // over the seam of two
  CHECK(allocator.has_memory({3 * kUnit - 1, 1}));
  CHECK_FALSE(allocator.has_memory({3 * kUnit - 1, 2}));
  CHECK_FALSE(allocator.has_memory({3 * kUnit, 1}));
  CHECK_FALSE(allocator.has_memory({0, 6 * kUnit}));
  CHECK(allocator.has_memory({5 * kUnit, kUnit}));
  CHECK_FALSE(allocator.has_memory({5 * kUnit - 1, 1}));
  CHECK_FALSE(allocator.has_memory({5 * kUnit, kUnit + 1}));
  CHECK_FALSE(allocator.has_memory({0, UINT64_MAX}));
  CHECK_FALSE(allocator.has_memory({UINT64_MAX, 1}));
}
