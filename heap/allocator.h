// The allocator of the symmetric heap: deterministic bookkeeping of offsets; no memory is touched here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "runtime/status.h"

namespace heddle {

/// A range of heap offsets, in bytes.
struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

/// Best-fit allocator over offsets [0, limit). The same calls in the same order give the same offsets on every PE.
/// Segments are the parts that have memory: the heap's own, which are multiples of the chunk size unless a registered
/// one cuts them, and registered ones, whose memory is the program's. Blocks live in the heap's own and may span
/// neighbours.
class Allocator {
 public:
  /// `chunk` is a power of two; `limit` a multiple of it.
  Allocator(uint64_t limit, uint64_t chunk);

  /// What an allocation would do.
  struct Plan {
    bool fits = false;      ///< inside the present segments
    bool can_grow = false;  ///< after adding `segment`
    uint64_t offset = 0;    ///< of the block, when fits or can_grow
    Extent segment;         ///< to be added first, when can_grow
  };
  /// Where a block of `bytes` (> 0), aligned to `alignment` (a power of two), goes. Changes nothing.
  Plan plan(uint64_t bytes, uint64_t alignment) const;

  /// Adds memory at `segment`, which is part of a gap.
  void add_segment(Extent segment);
  /// Where a registered segment of `bytes` goes: the start of the smallest gap that has room, the lowest among equals.
  /// Changes nothing.
  std::optional<uint64_t> place_registered(uint64_t bytes) const;
  /// Whether all of `extent` lies in one gap.
  bool is_gap(Extent extent) const;
  /// Adds a registered segment, in a gap: no block will lie there.
  void add_registered(Extent segment);
  /// The registered segment that `offset` lies in; 0 bytes when in none.
  Extent registered_at(uint64_t offset) const;
  /// Takes the block that plan() showed. Blocks are rounded up to kMinAlignment.
  void take(uint64_t offset, uint64_t bytes);
  /// Gives back the block that starts at `offset`; kInvalidValue when none does (the text says what is there).
  Status give_back(uint64_t offset);

  /// Segments without any block, except the first one and one spare of chunk size that adjoins memory which stays (so
  /// that it splits no gap), in offset order; they may be removed, best at once.
  std::vector<Extent> removable_segments() const;
  /// Removes a segment that removable_segments() named, or a registered one.
  void remove_segment(Extent segment);

  /// Whether all of `extent` lies in segments.
  bool has_memory(Extent extent) const;
  /// Bytes of the block that starts at `offset`; 0 when none does.
  uint64_t block_bytes(uint64_t offset) const;

  uint64_t limit() const { return limit_; }
  uint64_t chunk() const { return chunk_; }
  uint64_t in_use() const { return in_use_; }
  uint64_t physical() const;      ///< bytes of all segments, registered ones included
  uint64_t largest_free() const;  ///< largest block that could be had now, growth included
  uint64_t largest_gap() const;   ///< largest segment that could be registered now
  uint64_t extent() const;        ///< end of the last segment
  size_t blocks() const { return blocks_.size(); }
  size_t registered() const { return registered_.size(); }  ///< registered segments

  static constexpr uint64_t kMinAlignment = 256;  ///< also of counters of counted puts (CUDA guide: 256 bytes)

 private:
  /// What lies between segments, up to the limit, in offset order.
  std::vector<Extent> gaps() const;
  void coalesce(std::map<uint64_t, uint64_t>::iterator at);

  uint64_t limit_, chunk_, in_use_ = 0;
  std::map<uint64_t, uint64_t> free_;      // offset -> bytes, inside the heap's own segments, coalesced
  std::map<uint64_t, uint64_t> blocks_;    // offset -> bytes
  std::map<uint64_t, uint64_t> segments_;  // offset -> bytes
  std::set<uint64_t> registered_;          // offsets of segments
};

}  // namespace heddle
