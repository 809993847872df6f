// Teams as kernels see them: those whose members follow from the state.
#pragma once

#include "device/state.h"

namespace heddle::device {

constexpr uint32_t kPredefinedTeams = 7;

/// The PEs first, first + stride, ... of the world, or those of a list; `size` of them. 0: no such team, or this PE is
/// not in it.
struct TeamView {
  int first, stride, size;
  const int32_t* members = nullptr;  ///< ascending; nullptr: by stride

  /// The PE at place `index`, which must be below size.
  HEDDLE_HD int pe_at(int index) const { return members != nullptr ? members[index] : first + index * stride; }
  /// The place of `pe`, -1 when it is no member.
  HEDDLE_HD int index_of(int pe) const {
    if (members != nullptr) {
      int low = 0, high = size;
      while (low < high) {
        const int middle = (low + high) / 2;
        if (members[middle] < pe) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low < size && members[low] == pe ? low : -1;
    }
    const int distance = pe - first;
    if (distance < 0 || distance % stride != 0 || distance / stride >= size) return -1;
    return distance / stride;
  }
};

/// `team` as the PE of `state` sees it.
HEDDLE_HD inline TeamView team_view(const DeviceState& state, int team) {
  const int me = state.view.my_pe, all = state.view.n_pes;
  const int node_me = static_cast<int>(state.node_my_pe), node_all = static_cast<int>(state.node_n_pes);
  const int same_gpu = static_cast<int>(state.same_gpu_n_pes);
  if (all == 0) return {0, 1, 0};
  switch (team) {
    case 0:  // NVSHMEM_TEAM_WORLD
      return {0, 1, all};
    case 1:  // NVSHMEM_TEAM_SHARED
      if (state.view.direct != 0) return {0, 1, all};
      return {me - node_me, 1, node_all};
    case 2:  // NVSHMEMX_TEAM_NODE
      return {me - node_me, 1, node_all};
    case 3:  // NVSHMEMX_TEAM_SAME_MYPE_NODE
      return {node_me, node_all, all / node_all};
    case 4:  // NVSHMEMI_TEAM_SAME_GPU
      if (state.gpu_teams == nullptr) return {me, 1, 1};
      return {0, 1, same_gpu, state.gpu_teams};
    case 5:  // NVSHMEMI_TEAM_GPU_LEADERS
      if (state.gpu_teams == nullptr) return {0, 1, all};
      return {0, 1, static_cast<int>(state.gpu_leaders_n_pes), state.gpu_teams + same_gpu};
    case 6:  // NVSHMEM_TEAM_MC_SHARED: nobody shares a multicast object
      return {me, 1, 1};
    default:
      return {0, 1, 0};
  }
}

}  // namespace heddle::device
