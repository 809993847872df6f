// Bootstrap: who am I, who are the others. The one interface that runtime/ calls; its makers are pmix, mpi, uid and
// solo.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "include/nvshmem_types.h"
#include "runtime/owned.h"
#include "runtime/settings.h"
#include "runtime/status.h"

namespace heddle {

/// What a launcher tells a process, and one exchange of bytes among all processes of the job.
///
/// Every call is collective but rank(), size(), node_of() and abort(). Every call that waits ends by its deadline and
/// then names the ranks that did not arrive. An object is used from one thread.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  /// "pmix", "mpi", "uid" or "solo", for messages.
  virtual const char* name() const = 0;

  /// This process's rank and the number of ranks in the job.
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// The launcher's node map: an index of the node that `rank` runs on; equal indices mean one node.
  /// It is the launcher's claim only: the runtime proves it before it shares memory. -1: the launcher does not say.
  virtual int node_of(int rank) const = 0;

  /// Gathers `bytes` bytes from every rank into `all` (size() * bytes, in rank order). Every rank passes the same
  /// `bytes`. On return every record is there (a fence that succeeds is no proof: each one is checked), or the status
  /// names the ranks whose record is missing, or kTimeout after `deadline`.
  virtual Status allgather(const void* mine, size_t bytes, void* all, Deadline deadline) = 0;

  /// Returns when every rank has called it.
  virtual Status barrier(Deadline deadline) = 0;

  /// Asks the launcher to end the whole job with `exit_code`, giving `reason`. May return (a launcher can refuse).
  virtual void abort(int exit_code, const std::string& reason) = 0;
};

/// What a process's environment says about how it was started.
struct LauncherInfo {
  std::string maker;     ///< "pmix" or "solo": what nvshmem_init would use
  std::string launcher;  ///< e.g. "mpirun", "srun", "heddlerun", "none", for heddle-info
  Status usable;  ///< failed with one sentence when it cannot work, e.g. "started by srun without --mpi=pmix; ..."
};
LauncherInfo detect_launcher();

/// The bootstrap of nvshmem_init: pmix under a PMIx launcher, solo with no launcher at all (no library call then).
/// NVSHMEM_BOOTSTRAP forces one. A launcher that cannot work (srun without --mpi=pmix) fails with that sentence.
Status make_bootstrap(const Settings& settings, std::unique_ptr<Bootstrap>* bootstrap);

/// Ends this process's session with the launcher, if there is one, so that its exit counts as orderly. Any thread,
/// once; bootstraps are of no use afterwards. May take as long as the launcher takes to answer.
void end_launcher_session();

/// The four makers. `mpi_comm` points to the user's MPI_Comm; MPI is found among the libraries already loaded.
Status make_pmix_bootstrap(const Settings& settings, std::unique_ptr<Bootstrap>* bootstrap);
Status make_mpi_bootstrap(const Settings& settings, void* mpi_comm, std::unique_ptr<Bootstrap>* bootstrap);
Status make_uid_bootstrap(const Settings& settings, const nvshmemx_uniqueid_t& id, int rank, int size,
                          std::unique_ptr<Bootstrap>* bootstrap);
std::unique_ptr<Bootstrap> make_solo_bootstrap();

/// Fills a 128-byte unique id: the address of a rendezvous that this process now serves, and a random secret that every
/// connection must show. The rendezvous serves one job and then ends; it also ends with the process.
Status create_unique_id(const Settings& settings, nvshmemx_uniqueid_t* id);

}  // namespace heddle
