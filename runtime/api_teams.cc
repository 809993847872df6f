// Teams in the C API, the predefined ones so far, and what synchronises them.
#include <mutex>
#include <vector>

#include "include/nvshmem_host.h"
#include "runtime/global.h"

namespace heddle {
namespace {

/// The place of `pe` among the PEs of its node, by PE number.
int place_in_node(const World& w, int pe) {
  int place = 0;
  for (int other = 0; other < pe; ++other) place += w.node_of(other) == w.node_of(pe) ? 1 : 0;
  return place;
}

int place_of(const std::vector<int>& pes, int pe) {
  for (size_t place = 0; place < pes.size(); ++place) {
    if (pes[place] == pe) return static_cast<int>(place);
  }
  return -1;
}

/// The PEs of a predefined team as this PE sees it, in order; none when it is not among them. kInvalidValue for any
/// other team.
Status members(const World& w, nvshmem_team_t team, std::vector<int>* pes) {
  const int me = w.my_pe();
  const int my_place = place_in_node(w, me);
  for (int pe = 0; pe < w.n_pes(); ++pe) {
    bool is_member = false;
    switch (team) {
      case NVSHMEM_TEAM_WORLD:
        is_member = true;
        break;
      case NVSHMEM_TEAM_SHARED:
        is_member = pe == me || w.mapped_view().direct != 0;
        break;
      case NVSHMEMX_TEAM_NODE:
        is_member = w.node_of(pe) == w.node_of(me);
        break;
      case NVSHMEMX_TEAM_SAME_MYPE_NODE:
        is_member = place_in_node(w, pe) == my_place;
        break;
      case NVSHMEMI_TEAM_SAME_GPU:
        is_member = w.gpus().leader_of(pe) == w.gpus().leader_of(me);
        break;
      case NVSHMEMI_TEAM_GPU_LEADERS:
        is_member = w.gpus().leader_of(pe) == pe;
        break;
      case NVSHMEM_TEAM_MC_SHARED:
        is_member = pe == me;  // nobody shares a multicast object
        break;
      default:
        return error(Code::kInvalidValue,
                     "team %d does not exist; there are NVSHMEM_TEAM_WORLD (0), NVSHMEM_TEAM_SHARED (1), "
                     "NVSHMEMX_TEAM_NODE (2), NVSHMEMX_TEAM_SAME_MYPE_NODE (3), NVSHMEMI_TEAM_SAME_GPU (4), "
                     "NVSHMEMI_TEAM_GPU_LEADERS (5) and NVSHMEM_TEAM_MC_SHARED (6)",
                     team);
    }
    if (is_member) pes->push_back(pe);
  }
  if (place_of(*pes, me) < 0) pes->clear();
  return Status::ok();
}

/// The members of `team`; false for NVSHMEM_TEAM_INVALID, for teams without this PE, and, reported, for teams that do
/// not exist.
bool look_up(const World& w, const char* call, nvshmem_team_t team, std::vector<int>* pes) {
  if (team == NVSHMEM_TEAM_INVALID) return false;
  return report(call, guarded([&] { return members(w, team, pes); })).is_ok() && !pes->empty();
}

int synchronise(const char* call, nvshmem_team_t team, bool complete) {
  World* const w = world();
  if (w == nullptr) return report_no_world(call), kNoWorldCode;
  std::vector<int> pes;
  Status status = guarded([&] { return members(*w, team, &pes); });
  if (status.is_ok() && pes.empty()) {
    status = error(Code::kInvalidValue, "PE %d is not in team %d, so it cannot synchronise with it", w->my_pe(), team);
  } else if (status.is_ok() && pes.size() == 1) {
    status = complete ? w->quiet() : Status::ok();  // nobody to wait for
  } else if (status.is_ok() && static_cast<int>(pes.size()) == w->n_pes()) {
    const std::lock_guard<std::mutex> lock(collective_mutex());
    status = guarded([&] { return complete ? w->barrier_all() : w->sync_all(); });
  } else if (status.is_ok()) {
    status = error(Code::kNotSupported,
                   "team %d has %zu of %d PEs; teams other than all PEs or this PE alone cannot synchronise yet: use "
                   "NVSHMEM_TEAM_WORLD",
                   team, pes.size(), w->n_pes());
  }
  return report(call, status).nvshmem_code();
}

void synchronise_all(const char* call, bool complete) {
  World* const w = world();
  if (w == nullptr) return report_no_world(call);
  const std::lock_guard<std::mutex> lock(collective_mutex());
  (void)report(call, guarded([&] { return complete ? w->barrier_all() : w->sync_all(); }));
}

}  // namespace
}  // namespace heddle

using heddle::report_no_world;
using heddle::World;

int nvshmem_team_my_pe(nvshmem_team_t team) {
  const World* const w = heddle::world();
  if (w == nullptr) return report_no_world(__func__), -1;
  std::vector<int> pes;
  return heddle::look_up(*w, __func__, team, &pes) ? heddle::place_of(pes, w->my_pe()) : -1;
}

int nvshmem_team_n_pes(nvshmem_team_t team) {
  const World* const w = heddle::world();
  if (w == nullptr) return report_no_world(__func__), -1;
  std::vector<int> pes;
  return heddle::look_up(*w, __func__, team, &pes) ? static_cast<int>(pes.size()) : -1;
}

int nvshmem_team_translate_pe(nvshmem_team_t src_team, int src_pe, nvshmem_team_t dest_team) {
  const World* const w = heddle::world();
  if (w == nullptr) return report_no_world(__func__), -1;
  std::vector<int> from, to;
  if (!heddle::look_up(*w, __func__, src_team, &from) || !heddle::look_up(*w, __func__, dest_team, &to)) return -1;
  if (src_pe < 0 || static_cast<size_t>(src_pe) >= from.size()) return -1;
  return heddle::place_of(to, from[static_cast<size_t>(src_pe)]);
}

int nvshmem_barrier(nvshmem_team_t team) { return heddle::synchronise(__func__, team, true); }
int nvshmem_team_sync(nvshmem_team_t team) { return heddle::synchronise(__func__, team, false); }
void nvshmem_barrier_all(void) { heddle::synchronise_all(__func__, true); }
void nvshmem_sync_all(void) { heddle::synchronise_all(__func__, false); }
