#include "runtime/gpu_sharing.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/world.h"

namespace heddle {

GpuSharing::GpuSharing(const std::vector<PeerIdentity>& identities) {
  for (size_t pe = 0; pe < identities.size(); ++pe) {
    const PeerIdentity& mine = identities[pe];
    OnePe one;
    one.leader = static_cast<int>(pe);
    one.has_mps = mine.gpu_has_mps != 0;
    one.percentage = mine.gpu_mps_percentage;
    for (size_t other = 0; other < pe && mine.gpu_capability != 0; ++other) {
      if (identities[other].gpu_capability == 0) continue;
      if (std::memcmp(identities[other].gpu_uuid, mine.gpu_uuid, sizeof mine.gpu_uuid) != 0) continue;
      one.leader = static_cast<int>(other);
      break;
    }
    pes_.push_back(one);
  }
}

std::vector<int> GpuSharing::sharers_of(int pe) const {
  std::vector<int> sharers;
  for (int other = 0; other < static_cast<int>(pes_.size()); ++other) {
    if (leader_of(other) == leader_of(pe)) sharers.push_back(other);
  }
  return sharers;
}

std::vector<int> GpuSharing::leaders() const {
  std::vector<int> leaders;
  for (int pe = 0; pe < static_cast<int>(pes_.size()); ++pe) {
    if (leader_of(pe) == pe) leaders.push_back(pe);
  }
  return leaders;
}

bool GpuSharing::has_mps(int pe) const {
  const std::vector<int> sharers = sharers_of(pe);
  return std::all_of(sharers.begin(), sharers.end(),
                     [this](int sharer) { return pes_[static_cast<size_t>(sharer)].has_mps; });
}

SharingMode GpuSharing::mode() const {
  SharingMode mode = SharingMode::kNone;
  for (const int leader : leaders()) {
    if (!is_shared(leader)) continue;
    if (!has_mps(leader)) return SharingMode::kTimeSliced;
    mode = SharingMode::kMps;
  }
  return mode;
}

int GpuSharing::resident_blocks(int pe, int blocks) const {
  const std::vector<int> sharers = sharers_of(pe);
  if (sharers.size() == 1 || !has_mps(pe)) return blocks;
  int sum = 0;
  bool all_limited = true;
  for (const int sharer : sharers) {
    const int percentage = pes_[static_cast<size_t>(sharer)].percentage;
    all_limited = all_limited && percentage > 0;
    sum += percentage;
  }
  if (all_limited && sum <= 100) return blocks;
  const int mine = pes_[static_cast<size_t>(pe)].percentage;
  const int64_t whole = mine > 0 ? int64_t{blocks} * 100 / mine : blocks;
  return static_cast<int>(std::min<int64_t>(blocks, whole / static_cast<int64_t>(sharers.size())));
}

std::string GpuSharing::text(int pe) const {
  std::vector<int> others = sharers_of(pe);
  others.erase(std::remove(others.begin(), others.end(), pe), others.end());
  if (others.empty()) return "";
  return format(", as it shares the GPU with %s %s CUDA MPS", pe_list(others).c_str(),
                has_mps(pe) ? "under" : "without");
}

std::string sharing_text(const std::vector<int>& sharers, bool has_mps, const std::string& gpu,
                         const std::vector<std::string>& unused) {
  std::string text = pe_list(sharers) + " share " + gpu;
  if (has_mps) return text + " under CUDA MPS, which runs their kernels side by side";
  text +=
      " without CUDA MPS: their kernels take turns of some milliseconds, so kernels that wait for each other need a "
      "turn "
      "for each step; start MPS before the job (nvidia-cuda-mps-control -d), or give every PE a GPU of its own";
  if (unused.empty()) return text;
  text += "; no PE uses ";
  constexpr size_t kMost = 8;  // a line that can be read
  for (size_t i = 0; i < std::min(unused.size(), kMost); ++i) text += (i == 0 ? "" : ", ") + unused[i];
  if (unused.size() > kMost) text += format(" and %zu more", unused.size() - kMost);
  return text +
         ": choose by cudaSetDevice before init or by cuda_device_id of its attributes; with neither, GPUs are dealt "
         "out in turn";
}

bool finds_mps_daemon() {
  const char* const named = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string folder = named != nullptr && *named != '\0' ? named : "/tmp/nvidia-mps";
  // The folder outlives the daemon, its control pipe does not.
  return ::access((folder + "/control").c_str(), F_OK) == 0;
}

int mps_percentage() {
  const char* const text = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  if (text == nullptr) return 0;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  return end == text || !(value >= 1 && value <= 100) ? 0 : static_cast<int>(value);
}

}  // namespace heddle
