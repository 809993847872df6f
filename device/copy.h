// The copy engine, by scope: 16 bytes at a time whatever the alignment of the two sides.
//
// copy() is what everybody calls. On the host it is the C library's copy. In kernels the members of a scope share the
// work: both sides aligned alike, vectors go straight through; aligned differently, each member loads the aligned
// source vector, takes its neighbour's next one by a shuffle, and stores the 16 bytes that lie across the two. The ends
// that fill no vector go by the largest units that both sides and the size allow, so an element of a put is never torn.
//
// The engine is templates over the scope and the two sides, so that tests run the same index arithmetic on the host.
#pragma once

#include "device/access.h"
#include "device/scope.h"

namespace heddle::device {

/// The sides of a put: any source, symmetric destination.
struct ToPeer {
  static constexpr int kInFlight = 4;         ///< vectors that a thread loads before it stores
  static constexpr bool kInline = true;       ///< whether vectors go inline, so that small copies need no call
  static constexpr size_t kMostByBulk = 256;  ///< threads of a group whose copies may go by the bulk engine
  template <class T>
  HEDDLE_HD static HEDDLE_INLINE T load(const T* address) {
    return load_any(address);
  }
  template <class T>
  HEDDLE_HD static HEDDLE_INLINE void store(T* address, const T& value) {
    store_peer(address, value);
  }
};
/// The sides of a get. Loads take the way across the fabric and back, so more are in flight.
struct FromPeer {
  static constexpr int kInFlight = 8;
  static constexpr bool kInline = false;
  static constexpr size_t kMostByBulk = 1024;
  template <class T>
  HEDDLE_HD static HEDDLE_INLINE T load(const T* address) {
    return load_peer(address);
  }
  template <class T>
  HEDDLE_HD static HEDDLE_INLINE void store(T* address, const T& value) {
    store_any(address, value);
  }
};

constexpr size_t kVectorBytes = sizeof(Vector);
/// Below this, a copy that is not all vectors goes by units.
constexpr size_t kLeastBytes = 64;

/// Whether a copy is whole vectors on both sides.
HEDDLE_HD HEDDLE_INLINE bool all_vectors(const void* destination, const void* source, size_t bytes) {
  return (reinterpret_cast<uintptr_t>(destination) | reinterpret_cast<uintptr_t>(source) | bytes) % kVectorBytes == 0;
}

/// How a copy is cut: `head` bytes by units, `vectors` whole vectors of the destination, and the rest by units.
struct Cut {
  size_t head, vectors;
  uint32_t shift;  ///< bytes by which the source lies behind an aligned vector; 0: both sides aligned alike
};
HEDDLE_HD HEDDLE_INLINE Cut cut_copy(uintptr_t destination, uintptr_t source, size_t bytes) {
  Cut cut;
  cut.head = (kVectorBytes - destination % kVectorBytes) % kVectorBytes;
  cut.shift = static_cast<uint32_t>((source + cut.head) % kVectorBytes);
  // Whole source vectors are loaded: the head must cover the `shift` bytes in front, and what lies behind the last
  // vector stored must be there to be loaded. So no byte outside the source is ever read.
  if (cut.head < cut.shift) cut.head += kVectorBytes;
  const size_t behind = cut.shift == 0 ? 0 : kVectorBytes - cut.shift;
  cut.vectors = (bytes - cut.head - behind) / kVectorBytes;
  return cut;
}

/// The largest unit, 1 to 8 bytes, that all three are multiples of.
HEDDLE_HD HEDDLE_INLINE uint32_t unit_of(uintptr_t destination, uintptr_t source, size_t bytes) {
  const auto bits = static_cast<uint32_t>(destination | source | bytes) | 8;
  return bits & (0 - bits);
}
template <class Sides>
HEDDLE_HD HEDDLE_INLINE uint64_t load_unit(const char* source, uint32_t unit) {
  if (unit == 8) return Sides::load(reinterpret_cast<const uint64_t*>(source));
  if (unit == 4) return Sides::load(reinterpret_cast<const uint32_t*>(source));
  if (unit == 2) return Sides::load(reinterpret_cast<const uint16_t*>(source));
  return Sides::load(reinterpret_cast<const uint8_t*>(source));
}
template <class Sides>
HEDDLE_HD HEDDLE_INLINE void store_unit(char* destination, uint64_t value, uint32_t unit) {
  if (unit == 8) return Sides::store(reinterpret_cast<uint64_t*>(destination), value);
  if (unit == 4) return Sides::store(reinterpret_cast<uint32_t*>(destination), static_cast<uint32_t>(value));
  if (unit == 2) return Sides::store(reinterpret_cast<uint16_t*>(destination), static_cast<uint16_t>(value));
  Sides::store(reinterpret_cast<uint8_t*>(destination), static_cast<uint8_t>(value));
}

/// How much of `left` the next turn of a loop needs to know of: in 32 bits, as registers are dear.
HEDDLE_HD HEDDLE_INLINE int near(int64_t left) { return static_cast<int>(left < 1 << 30 ? left : 1 << 30); }

/// At most a vector for each member, both sides aligned: messages of a few bytes, where each instruction shows.
template <class Sides, class Scope>
HEDDLE_HD HEDDLE_INLINE void copy_round(const Scope& scope, char* destination, const char* source, uint32_t bytes) {
  const auto at = static_cast<uint32_t>(scope.rank()) * static_cast<uint32_t>(kVectorBytes);
  if (at >= bytes) return;
  Sides::store(reinterpret_cast<Vector*>(destination + at), Sides::load(reinterpret_cast<const Vector*>(source + at)));
}

/// `count` vectors, both sides aligned; each member loads kInFlight before it stores.
template <class Sides, int kInFlight = Sides::kInFlight, class Scope>
HEDDLE_HD HEDDLE_INLINE void copy_vectors(const Scope& scope, Vector* destination, const Vector* source, size_t count) {
  const int step = scope.size();
  int64_t left = static_cast<int64_t>(count) - scope.rank();  // from this member's next vector on
  source += scope.rank();
  destination += scope.rank();
  while (left > 0) {
    Vector value[kInFlight];
    HEDDLE_UNROLL
    for (int k = 0; k < kInFlight; ++k) {
      value[k] = Vector{};  // else its registers would be taken from the last turn on
      if (k * step < near(left)) value[k] = Sides::load(source + k * step);
    }
    const int same_step = not_known(step);  // so that no multiple of it is kept from the loads to the stores
    HEDDLE_UNROLL
    for (int k = 0; k < kInFlight; ++k) {
      if (k * same_step < near(left)) Sides::store(destination + k * same_step, value[k]);
    }
    source += kInFlight * step;
    destination += kInFlight * step;
    left -= kInFlight * step;
  }
}

/// Bytes [shift, shift + 16) of low:high, for shift in [1, 16).
HEDDLE_HD HEDDLE_INLINE Vector across(const Vector& low, const Vector& high, uint32_t shift) {
  uint32_t word[8] = {low.word[0],  low.word[1],  low.word[2],  low.word[3],
                      high.word[0], high.word[1], high.word[2], high.word[3]};
  if ((shift & 8) != 0) {
    HEDDLE_UNROLL
    for (int i = 0; i < 6; ++i) word[i] = word[i + 2];
  }
  if ((shift & 4) != 0) {
    HEDDLE_UNROLL
    for (int i = 0; i < 5; ++i) word[i] = word[i + 1];
  }
  Vector result;
  HEDDLE_UNROLL
  for (int i = 0; i < 4; ++i) result.word[i] = funnel(word[i], word[i + 1], 8 * (shift & 3));
  return result;
}

/// `count` vectors to an aligned destination, from `shift` bytes behind aligned `source`.
template <class Sides, class Scope>
HEDDLE_HD HEDDLE_INLINE void copy_shifted(const Scope& scope, Vector* destination, const Vector* source, uint32_t shift,
                                          size_t count) {
  constexpr int kInFlight = Sides::kInFlight / 2;  // the neighbours' vectors need registers too
  if constexpr (Scope::kIsGroup) {
    // A row of n members loads n vectors and stores n - 1: the last member only lends its vector.
    if (scope.row() >= scope.rows()) return;
    const int wide = scope.row_size() - 1, step = scope.rows() * wide, member = scope.member();
    // From this row's next vector on: the same for all of a row, as they exchange vectors in each turn.
    int64_t left = static_cast<int64_t>(count) - scope.row() * wide;
    source += scope.row() * wide + member;
    destination += scope.row() * wide + member;
    while (left > 0) {
      Vector value[kInFlight];
      HEDDLE_UNROLL
      for (int k = 0; k < kInFlight; ++k) {
        value[k] = Vector{};
        if (k * step + member <= near(left)) value[k] = Sides::load(source + k * step);
      }
      const int same_step = not_known(step);
      HEDDLE_UNROLL
      for (int k = 0; k < kInFlight; ++k) {
        const Vector next = scope.of_neighbour(value[k], source + k * same_step + 1);
        if (k * same_step + member < near(left) && member < wide) {
          Sides::store(destination + k * same_step, across(value[k], next, shift));
        }
      }
      source += kInFlight * step;
      destination += kInFlight * step;
      left -= kInFlight * step;
    }
  } else {
    Vector low = Sides::load(source);
    auto left = static_cast<int64_t>(count);
    while (left > 0) {
      Vector high[kInFlight];
      HEDDLE_UNROLL
      for (int k = 0; k < kInFlight; ++k) {
        high[k] = Vector{};
        if (k < near(left)) high[k] = Sides::load(source + k + 1);
      }
      HEDDLE_UNROLL
      for (int k = 0; k < kInFlight; ++k) {
        if (k < near(left)) Sides::store(destination + k, across(low, high[k], shift));
        low = high[k];
      }
      source += kInFlight;
      destination += kInFlight;
      left -= kInFlight;
    }
  }
}

/// Whether the scope can copy across misaligned sides: a thread alone, or members with neighbours.
template <class Scope>
HEDDLE_HD HEDDLE_INLINE bool can_shift(const Scope& scope) {
  if constexpr (Scope::kIsGroup) return scope.row_size() > 1;
  return true;
}

/// Any alignment and size. Each member has done its share on return; there is no barrier in it. In kernels a function
/// of its own, so that programs with many puts stay small.
template <class Sides, class Scope>
HEDDLE_HD HEDDLE_OUTLINE_LARGE void copy_any(const Scope scope, char* destination, const char* source, size_t bytes) {
  const auto to = reinterpret_cast<uintptr_t>(destination), from = reinterpret_cast<uintptr_t>(source);
  const uint32_t unit = unit_of(to, from, bytes);
  const auto size = static_cast<size_t>(scope.size());
  // One round of units is as fast as vectors, and needs no cutting.
  const bool by_vectors = bytes >= kLeastBytes && bytes > size * unit && can_shift(scope);
  const Cut cut = by_vectors ? cut_copy(to, from, bytes) : Cut{bytes, 0, 0};
  // The ends: one range of bytes with a hole at `head`.
  const size_t ends = bytes - cut.vectors * kVectorBytes;
  for (size_t at = static_cast<size_t>(scope.rank()) * unit; at < ends; at += size * unit) {
    const size_t place = at < cut.head ? at : at + cut.vectors * kVectorBytes;
    store_unit<Sides>(destination + place, load_unit<Sides>(source + place, unit), unit);
  }
  if (cut.vectors == 0) return;
  // A thread alone waits for each round of its loads, with nobody else's to fill the time.
  constexpr int kInFlight = Scope::kIsGroup || Sides::kInFlight > 8 ? Sides::kInFlight : 8;
  const auto to_vectors = reinterpret_cast<Vector*>(destination + cut.head);
  const auto from_vectors = reinterpret_cast<const Vector*>(source + cut.head - cut.shift);
  if (cut.shift == 0) {
    copy_vectors<Sides, kInFlight>(scope, to_vectors, from_vectors, cut.vectors);
  } else {
    copy_shifted<Sides>(scope, to_vectors, from_vectors, cut.shift, cut.vectors);
  }
}

/// The engine: any alignment and size, no barrier.
template <class Sides, class Scope>
HEDDLE_HD HEDDLE_INLINE void copy_by_engine(const Scope& scope, void* destination, const void* source, size_t bytes) {
  if (Sides::kInline && all_vectors(destination, source, bytes)) {
    copy_vectors<Sides>(scope, static_cast<Vector*>(destination), static_cast<const Vector*>(source),
                        bytes / kVectorBytes);
  } else {
    copy_any<Sides>(scope, static_cast<char*>(destination), static_cast<const char*>(source), bytes);
  }
}

/// Copies `bytes` from `source` to `destination`, any alignment, no overlap but the identical range. No barrier: the
/// members of `scope` have each done their share on return.
template <class Sides = ToPeer, class Scope>
HEDDLE_HD HEDDLE_INLINE void copy(const Scope& scope, void* destination, const void* source, size_t bytes) {
#if defined(__CUDA_ARCH__)
  copy_by_engine<Sides>(scope, destination, source, bytes);
#else
  // The C library's copy knows the processor it runs on; only the smallest sizes are worth not calling it.
  (void)scope;
  if (bytes == 8) {
    memcpy(destination, source, 8);
  } else if (bytes == 4) {
    memcpy(destination, source, 4);
  } else {
    memmove(destination, source, bytes);
  }
#endif
}

}  // namespace heddle::device
