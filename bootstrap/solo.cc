// The bootstrap of a process that no launcher started: one PE, no library call.
#include <cstring>

#include "bootstrap/bootstrap.h"

namespace heddle {
namespace {

class SoloBootstrap : public Bootstrap {
 public:
  const char* name() const override { return "solo"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int node_of(int rank) const override { return rank == 0 ? 0 : -1; }

  Status allgather(const void* mine, size_t bytes, void* all, Deadline) override {
    if (bytes > 0) std::memmove(all, mine, bytes);
    return Status::ok();
  }

  Status barrier(Deadline) override { return Status::ok(); }

  /// There is nobody to end but this process, which is the caller's business.
  void abort(int, const std::string&) override {}
};

}  // namespace

std::unique_ptr<Bootstrap> make_solo_bootstrap() { return std::make_unique<SoloBootstrap>(); }

}  // namespace heddle
