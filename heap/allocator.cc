#include "heap/allocator.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <limits>

namespace heddle {
namespace {

constexpr uint64_t kNowhere = std::numeric_limits<uint64_t>::max();

uint64_t round_down(uint64_t value, uint64_t step) { return value & ~(step - 1); }

/// `value` rounded up to a multiple of `step`, a power of two; kNowhere when that does not fit in 64 bits.
uint64_t round_up(uint64_t value, uint64_t step) {
  return value > kNowhere - (step - 1) ? kNowhere : round_down(value + (step - 1), step);
}

/// Lowest aligned start of `bytes` in [begin, end), or kNowhere.
uint64_t place(uint64_t begin, uint64_t end, uint64_t bytes, uint64_t alignment) {
  const uint64_t start = round_up(begin, alignment);
  return start <= end && end - start >= bytes ? start : kNowhere;
}

}  // namespace

Allocator::Allocator(uint64_t limit, uint64_t chunk) : limit_(limit), chunk_(chunk) {
  assert(chunk >= kMinAlignment && (chunk & (chunk - 1)) == 0 && limit % chunk == 0);
}

Allocator::Plan Allocator::plan(uint64_t bytes, uint64_t alignment) const {
  Plan plan;
  bytes = round_up(bytes, kMinAlignment);
  alignment = std::max(alignment, kMinAlignment);
  if (bytes == 0 || bytes > limit_ || (alignment & (alignment - 1)) != 0) return plan;

  uint64_t best = kNowhere;
  for (const auto& [begin, free_bytes] : free_) {
    if (free_bytes >= best) continue;
    const uint64_t start = place(begin, begin + free_bytes, bytes, alignment);
    if (start == kNowhere) continue;
    best = free_bytes;
    plan.fits = true;
    plan.offset = start;
  }
  if (plan.fits) return plan;

  // Every gap between segments may be filled, and the block may use the free memory on both sides of the gap. The gap
  // that needs the least new memory is taken, the lowest among equals.
  for (const Extent& gap : gaps()) {
    const uint64_t gap_begin = gap.offset, gap_end = gap.offset + gap.bytes;
    uint64_t begin = gap_begin, end = gap_end;
    auto after = free_.lower_bound(gap_begin);
    if (after != free_.begin()) {
      const auto& [offset, free_bytes] = *std::prev(after);
      if (offset + free_bytes == gap_begin) begin = offset;
    }
    if (after != free_.end() && after->first == gap_end) end += after->second;
    const uint64_t start = place(begin, end, bytes, alignment);
    if (start == kNowhere) continue;
    const uint64_t segment_begin = std::max(gap_begin, round_down(start, chunk_));
    const uint64_t segment_end = std::min(gap_end, round_up(start + bytes, chunk_));
    if (plan.can_grow && plan.segment.bytes <= segment_end - segment_begin) continue;
    plan.can_grow = true;
    plan.offset = start;
    plan.segment = {segment_begin, segment_end - segment_begin};
  }
  return plan;
}

std::vector<Extent> Allocator::gaps() const {
  std::vector<Extent> gaps;
  uint64_t begin = 0;
  for (const auto& [offset, bytes] : segments_) {
    if (offset > begin) gaps.push_back({begin, offset - begin});
    begin = offset + bytes;
  }
  if (limit_ > begin) gaps.push_back({begin, limit_ - begin});
  return gaps;
}

bool Allocator::is_gap(Extent extent) const {
  for (const Extent& gap : gaps()) {
    if (extent.offset >= gap.offset && extent.bytes <= gap.bytes &&
        extent.offset - gap.offset <= gap.bytes - extent.bytes) {
      return true;
    }
  }
  return false;
}

std::optional<uint64_t> Allocator::place_registered(uint64_t bytes) const {
  std::optional<Extent> best;
  for (const Extent& gap : gaps()) {
    if (gap.bytes >= bytes && (!best || gap.bytes < best->bytes)) best = gap;
  }
  if (!best) return std::nullopt;
  return best->offset;
}

void Allocator::add_registered(Extent segment) {
  assert(segment.bytes > 0 && segment.bytes % kMinAlignment == 0 && is_gap(segment));
  segments_.emplace(segment.offset, segment.bytes);
  registered_.insert(segment.offset);
}

Extent Allocator::registered_at(uint64_t offset) const {
  const auto next = registered_.upper_bound(offset);
  if (next == registered_.begin()) return {};
  const uint64_t begin = *std::prev(next), bytes = segments_.at(begin);
  return offset - begin < bytes ? Extent{begin, bytes} : Extent{};
}

void Allocator::add_segment(Extent segment) {
  assert(segment.bytes > 0 && (segment.offset | segment.bytes) % kMinAlignment == 0 && is_gap(segment));
  segments_.emplace(segment.offset, segment.bytes);
  coalesce(free_.emplace(segment.offset, segment.bytes).first);
}

void Allocator::take(uint64_t offset, uint64_t bytes) {
  bytes = round_up(bytes, kMinAlignment);
  auto range = std::prev(free_.upper_bound(offset));
  const uint64_t begin = range->first, end = begin + range->second;
  assert(offset >= begin && offset <= end && end - offset >= bytes);
  free_.erase(range);
  if (offset > begin) free_.emplace(begin, offset - begin);
  if (offset + bytes < end) free_.emplace(offset + bytes, end - offset - bytes);
  blocks_.emplace(offset, bytes);
  in_use_ += bytes;
}

Status Allocator::give_back(uint64_t offset) {
  auto block = blocks_.find(offset);
  if (block == blocks_.end()) {
    const auto next = blocks_.upper_bound(offset);
    if (next != blocks_.begin()) {
      const auto& [begin, bytes] = *std::prev(next);
      if (offset - begin < bytes) {
        return error(
            Code::kInvalidValue,
            "heap offset %llu lies inside the block of %llu bytes that starts at offset %llu; pass the address "
            "that the allocation returned",
            static_cast<unsigned long long>(offset), static_cast<unsigned long long>(bytes),
            static_cast<unsigned long long>(begin));
      }
    }
    if (offset >= extent()) {
      return error(Code::kInvalidValue,
                   "heap offset %llu is outside the heap, whose memory ends at offset %llu; pass an address that an "
                   "allocation returned",
                   static_cast<unsigned long long>(offset), static_cast<unsigned long long>(extent()));
    }
    return error(Code::kInvalidValue,
                 "no block starts at heap offset %llu, which is free; it was given back already or never allocated",
                 static_cast<unsigned long long>(offset));
  }
  const uint64_t bytes = block->second;
  blocks_.erase(block);
  in_use_ -= bytes;
  coalesce(free_.emplace(offset, bytes).first);
  return Status::ok();
}

std::vector<Extent> Allocator::removable_segments() const {
  std::vector<Extent> removable;
  bool spare_kept = false;
  uint64_t kept_end = 0;
  for (auto segment = segments_.begin(); segment != segments_.end(); ++segment) {
    const auto [offset, bytes] = *segment;
    // A block touches the segment when the last one that starts below its end reaches into it.
    const auto next = blocks_.lower_bound(offset + bytes);
    const bool used = registered_.count(offset) > 0 ||
                      (next != blocks_.begin() && std::prev(next)->first + std::prev(next)->second > offset);
    // A spare in the middle of a gap would cut the largest block that can be had, so it must adjoin memory that stays.
    const bool spare = !used && !spare_kept && bytes == chunk_ && offset == kept_end;
    if (used || spare || segment == segments_.begin()) {
      kept_end = offset + bytes;
      if (segment != segments_.begin()) spare_kept |= spare;
    } else {
      removable.push_back({offset, bytes});
    }
  }
  return removable;
}

void Allocator::remove_segment(Extent segment) {
  if (registered_.erase(segment.offset) > 0) {
    segments_.erase(segment.offset);
    return;
  }
  auto range = std::prev(free_.upper_bound(segment.offset));
  const uint64_t begin = range->first, end = begin + range->second, segment_end = segment.offset + segment.bytes;
  assert(begin <= segment.offset && end >= segment_end);
  free_.erase(range);
  if (begin < segment.offset) free_.emplace(begin, segment.offset - begin);
  if (end > segment_end) free_.emplace(segment_end, end - segment_end);
  segments_.erase(segment.offset);
}

bool Allocator::has_memory(Extent extent) const {
  uint64_t offset = extent.offset, left = extent.bytes;
  auto segment = segments_.upper_bound(offset);
  if (segment == segments_.begin()) return left == 0;
  for (--segment; left > 0; ++segment) {
    if (segment == segments_.end() || offset < segment->first || offset - segment->first >= segment->second)
      return false;
    const uint64_t here = std::min(left, segment->first + segment->second - offset);
    offset += here;
    left -= here;
  }
  return true;
}

uint64_t Allocator::block_bytes(uint64_t offset) const {
  const auto block = blocks_.find(offset);
  return block == blocks_.end() ? 0 : block->second;
}

uint64_t Allocator::physical() const {
  uint64_t bytes = 0;
  for (const auto& segment : segments_) bytes += segment.second;
  return bytes;
}

uint64_t Allocator::largest_free() const {
  // Free memory and one gap beside it can become one block, as in plan(): [free] gap [free].
  uint64_t largest = 0;
  for (const auto& range : free_) largest = std::max(largest, range.second);
  for (const Extent& gap : gaps()) {
    uint64_t bytes = gap.bytes;
    const auto after = free_.lower_bound(gap.offset);
    if (after != free_.begin() && std::prev(after)->first + std::prev(after)->second == gap.offset) {
      bytes += std::prev(after)->second;
    }
    if (after != free_.end() && after->first == gap.offset + gap.bytes) bytes += after->second;
    largest = std::max(largest, bytes);
  }
  return largest;
}

uint64_t Allocator::largest_gap() const {
  uint64_t largest = 0;
  for (const Extent& gap : gaps()) largest = std::max(largest, gap.bytes);
  return largest;
}

uint64_t Allocator::extent() const {
  return segments_.empty() ? 0 : segments_.rbegin()->first + segments_.rbegin()->second;
}

void Allocator::coalesce(std::map<uint64_t, uint64_t>::iterator at) {
  const auto next = std::next(at);
  if (next != free_.end() && at->first + at->second == next->first) {
    at->second += next->second;
    free_.erase(next);
  }
  if (at != free_.begin()) {
    const auto previous = std::prev(at);
    if (previous->first + previous->second == at->first) {
      previous->second += at->second;
      free_.erase(at);
    }
  }
}

}  // namespace heddle
