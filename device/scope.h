// Who works together on one call: a scope has a rank, a size and a barrier. On the host a PE is a group of one thread.
//
// Scopes of more than one thread also say which of their members form a row: threads of one warp that can hand a vector
// to their neighbour. All members make the call, with the same arguments.
#pragma once

#include "device/access.h"

namespace heddle::device {

/// One thread, on the host or in a kernel.
struct ThreadScope {
  static constexpr bool kIsGroup = false;
  HEDDLE_HD static constexpr int rank() { return 0; }
  HEDDLE_HD static constexpr int size() { return 1; }
  HEDDLE_HD static void sync() {}
  HEDDLE_HD static constexpr bool any(bool flag) { return flag; }
};

#if defined(__CUDA_ARCH__)

HEDDLE_DEVICE HEDDLE_INLINE int thread_of_block() {
  return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
HEDDLE_DEVICE HEDDLE_INLINE int threads_of_block() { return static_cast<int>(blockDim.x * blockDim.y * blockDim.z); }

/// The lowest `lanes` lanes of a warp.
HEDDLE_DEVICE HEDDLE_INLINE uint32_t lanes_mask(int lanes) { return 0xffffffffu >> (32 - lanes); }

/// `value` of lane `from` of the calling warp; the lanes of `mask` call together.
HEDDLE_DEVICE HEDDLE_INLINE Vector lane_vector(uint32_t mask, const Vector& value, int from) {
  Vector other;
  HEDDLE_UNROLL
  for (int i = 0; i < 4; ++i) other.word[i] = __shfl_sync(mask, value.word[i], from);
  return other;
}

/// The threads of a warp; fewer than 32 in the last warp of a block whose size is no multiple of 32.
class WarpScope {
 public:
  static constexpr bool kIsGroup = true;
  HEDDLE_DEVICE WarpScope()
      : rank_(thread_of_block() & 31), size_(min(32, threads_of_block() - (thread_of_block() & ~31))) {}
  HEDDLE_DEVICE int rank() const { return rank_; }
  HEDDLE_DEVICE int size() const { return size_; }
  HEDDLE_DEVICE void sync() const { __syncwarp(lanes_mask(size_)); }
  /// Whether any member's flag is set; a barrier too.
  HEDDLE_DEVICE bool any(bool flag) const {
    const bool result = __any_sync(lanes_mask(size_), flag) != 0;
    sync();  // the vote alone orders no memory
    return result;
  }

  HEDDLE_DEVICE int row() const { return 0; }
  HEDDLE_DEVICE int rows() const { return 1; }
  HEDDLE_DEVICE int row_size() const { return size_; }
  HEDDLE_DEVICE int member() const { return rank_; }
  HEDDLE_DEVICE Vector of_neighbour(const Vector& value, const Vector*) const {
    return lane_vector(lanes_mask(size_), value, rank_ + 1);
  }

 private:
  int rank_, size_;
};

/// All threads of a block.
struct BlockScope {
  static constexpr bool kIsGroup = true;
  HEDDLE_DEVICE static int rank() { return thread_of_block(); }
  HEDDLE_DEVICE static int size() { return threads_of_block(); }
  HEDDLE_DEVICE static void sync() { __syncthreads(); }
  HEDDLE_DEVICE static bool any(bool flag) { return __syncthreads_or(flag) != 0; }

  /// Whole warps; the last one has a part in them only when it is all there is.
  HEDDLE_DEVICE static int row() { return rank() >> 5; }
  HEDDLE_DEVICE static int rows() { return max(1, size() >> 5); }
  HEDDLE_DEVICE static int row_size() { return min(32, size()); }
  HEDDLE_DEVICE static int member() { return rank() & 31; }
  HEDDLE_DEVICE static Vector of_neighbour(const Vector& value, const Vector*) {
    return lane_vector(lanes_mask(row_size()), value, (rank() & 31) + 1);
  }
};

/// The lanes of `mask`, which have met by chance: any subset of a warp.
class LanesScope {
 public:
  static constexpr bool kIsGroup = true;
  HEDDLE_DEVICE explicit LanesScope(uint32_t mask) : mask_(mask) {}
  HEDDLE_DEVICE int rank() const { return __popc(mask_ & ((1u << lane_id()) - 1)); }
  HEDDLE_DEVICE int size() const { return __popc(mask_); }
  HEDDLE_DEVICE void sync() const { __syncwarp(mask_); }

  HEDDLE_DEVICE int row() const { return 0; }
  HEDDLE_DEVICE int rows() const { return 1; }
  HEDDLE_DEVICE int row_size() const { return size(); }
  HEDDLE_DEVICE int member() const { return rank(); }
  HEDDLE_DEVICE Vector of_neighbour(const Vector& value, const Vector*) const {
    return lane_vector(mask_, value, __ffs(mask_ & ~((2u << lane_id()) - 1)) - 1);
  }

 private:
  uint32_t mask_;
};

#endif

}  // namespace heddle::device
