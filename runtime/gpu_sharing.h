// Which PEs share a GPU, and whether their kernels run side by side there: what the records of all PEs say together.
#pragma once

#include <string>
#include <vector>

#include "runtime/fabric/fabric.h"

namespace heddle {

/// How the PEs of a job share GPUs.
enum class SharingMode {
  kNone,        ///< every PE has a GPU of its own, or none at all
  kTimeSliced,  ///< on some GPU kernels of different PEs take turns
  kMps          ///< CUDA MPS serves every PE of every shared GPU
};

/// PEs by the UUID of their GPU. Every PE makes the same from the same records. PEs without a GPU are alone.
class GpuSharing {
 public:
  GpuSharing() = default;
  explicit GpuSharing(const std::vector<PeerIdentity>& identities);

  /// The lowest PE on the GPU of `pe`.
  int leader_of(int pe) const { return pes_[static_cast<size_t>(pe)].leader; }
  /// The PEs on the GPU of `pe`, with itself, ascending.
  std::vector<int> sharers_of(int pe) const;
  /// The leaders of all GPUs, ascending.
  std::vector<int> leaders() const;
  bool is_shared(int pe) const { return sharers_of(pe).size() > 1; }
  /// Whether CUDA MPS serves all PEs on the GPU of `pe`: one that it does not serve takes turns with all others.
  bool has_mps(int pe) const;
  SharingMode mode() const;

  /// How many of `blocks`, the most that `pe` could have on its GPU alone, it can have while every sharer has as many.
  /// Without MPS all of them: a kernel has the GPU to itself in its turn. With MPS a part of them, unless the
  /// percentages of the sharers (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE) leave room for all: then the driver has counted
  /// `blocks` for this PE's percentage already.
  int resident_blocks(int pe, int blocks) const;
  /// For messages about such blocks: ", as it shares the GPU with PE 1 under CUDA MPS"; "" without sharers.
  std::string text(int pe) const;

 private:
  struct OnePe {
    int leader = 0;
    bool has_mps = false;
    int percentage = 0;  // 0: none was set
  };
  std::vector<OnePe> pes_;
};

/// The line about a shared GPU, for its leader to say once: a warning without MPS, information with it. `gpu` is its
/// name, `unused` are GPUs that this process sees and no PE has taken.
std::string sharing_text(const std::vector<int>& sharers, bool has_mps, const std::string& gpu,
                         const std::vector<std::string>& unused);

/// Whether an MPS daemon serves this process as far as files show it: what CUDA_MPS_PIPE_DIRECTORY names, else
/// /tmp/nvidia-mps, holds a daemon's control pipe. For drivers that do not tell.
bool finds_mps_daemon();
/// CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, rounded down; 0 when it is unset or makes no sense.
int mps_percentage();

}  // namespace heddle
