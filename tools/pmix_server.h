// The PMIx server of heddlerun: libpmix's server library told about one job on one host.
#pragma once

#include <optional>
#include <string>

namespace heddle_tools {

/// A rank's PMIx_Abort.
struct Abort {
  int rank = -1;
  int code = 0;
  std::string reason;
};

/// Serves PMIx to the ranks of one job. One per process: libpmix has one server.
class PmixServer {
 public:
  PmixServer() = default;
  PmixServer(const PmixServer&) = delete;
  PmixServer& operator=(const PmixServer&) = delete;
  ~PmixServer();

  /// Starts serving a job of `ranks` ranks that claims to run on `nodes` nodes, in blocks. The server's files go to
  /// `folder`. On failure `reason` says what failed.
  bool start(const std::string& folder, int ranks, int nodes, std::string* reason);

  /// The environment for rank `rank`: ours and what the PMIx client reads. NULL-terminated; the caller frees every
  /// entry and the array with free(3). nullptr with `reason` on failure.
  char** environment_of(int rank, std::string* reason);

  /// Readable when a rank has called PMIx_Abort.
  int abort_fd() const;
  /// The first abort that was not taken yet.
  std::optional<Abort> take_abort();

 private:
  bool started_ = false;
  int ranks_ = 0;
  int nodes_ = 0;
};

}  // namespace heddle_tools
