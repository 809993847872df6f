// Reads from the environment how this process was started, and makes the bootstrap that fits.
#include <strings.h>

#include <cstdlib>
#include <cstring>

#include "bootstrap/bootstrap.h"
#include "runtime/log.h"

namespace heddle {
namespace {

/// The value of an environment variable, "" when it is unset.
const char* env(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool has(const char* name) { return *env(name) != '\0'; }

/// A count from the environment; 0 when it is unset or not a number.
long env_count(const char* name) { return std::strtol(env(name), nullptr, 10); }

bool is_one_of(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words) {
    if (strcasecmp(text.c_str(), word) == 0) return true;
  }
  return false;
}

std::string pmix_launcher_name() {
  if (std::strncmp(env("PMIX_NAMESPACE"), "heddlerun", 9) == 0) return "heddlerun";
  if (has("PRTE_LAUNCHED")) return "prterun";
  if (has("OMPI_COMM_WORLD_RANK")) return "mpirun";
  if (has("SLURM_STEP_ID") || has("SLURM_STEPID")) return "srun";
  return "a PMIx launcher";
}

/// Tasks of the srun step that this process belongs to; 0 outside a step. A batch script and the shell of salloc have
/// SLURM_NTASKS of the whole allocation and perhaps SLURM_PROCID=0, but only srun sets SLURM_STEP_NUM_TASKS.
long slurm_step_tasks() {
  if (!has("SLURM_PROCID")) return 0;
  if (has("SLURM_STEP_NUM_TASKS")) return env_count("SLURM_STEP_NUM_TASKS");
  // No step count: trust the job's count only for a task that cannot be the batch script, which is always task 0.
  return env_count("SLURM_PROCID") > 0 ? env_count("SLURM_NTASKS") : 0;
}

}  // namespace

LauncherInfo detect_launcher() {
  const bool name_space = has("PMIX_NAMESPACE");
  const bool rank = has("PMIX_RANK");
  if (name_space && rank) return {"pmix", pmix_launcher_name(), Status::ok()};
  if (name_space || rank) {
    return {"pmix", "a PMIx launcher",
            error(Code::kInvalidValue,
                  "%s is set in the environment but %s is not: start the program by a launcher that speaks PMIx, or "
                  "unset %s to run as one process",
                  name_space ? "PMIX_NAMESPACE" : "PMIX_RANK", name_space ? "PMIX_RANK" : "PMIX_NAMESPACE",
                  name_space ? "PMIX_NAMESPACE" : "PMIX_RANK")};
  }
  if (const long tasks = slurm_step_tasks(); tasks > 1) {
    return {
        "solo", "srun",
        error(Code::kNotSupported,
              "started by srun without --mpi=pmix: task %s of %ld finds no PMIx server; run \"srun --mpi=pmix ...\" "
              "(it needs Slurm's pmix plug-in and libpmix.so of libpmix-dev on the nodes), or pass a communicator "
              "or a unique id to nvshmemx_init_attr",
              env("SLURM_PROCID"), tasks)};
  }
  if (const long size = env_count("PMI_SIZE"); size > 1 && has("PMI_RANK")) {
    return {"solo", "mpiexec",
            error(Code::kNotSupported,
                  "started as process %s of %ld by a launcher that speaks PMI and not PMIx (mpiexec.hydra, srun "
                  "--mpi=pmi2): initialise MPI and pass a communicator to nvshmemx_init_attr, or use a PMIx launcher "
                  "(mpirun of Open MPI, srun --mpi=pmix, heddlerun)",
                  env("PMI_RANK"), size)};
  }
  if (const long size = env_count("OMPI_COMM_WORLD_SIZE"); size > 1) {
    return {"solo", "mpirun",
            error(Code::kNotSupported,
                  "started as process %s of %ld by an Open MPI that offers no PMIx (PMIX_NAMESPACE is not set): "
                  "initialise MPI and pass a communicator to nvshmemx_init_attr, or use Open MPI 4 or later",
                  env("OMPI_COMM_WORLD_RANK"), size)};
  }
  return {"solo", "none", Status::ok()};
}

Status make_bootstrap(const Settings& settings, std::unique_ptr<Bootstrap>* bootstrap) {
  const std::string& how = settings.bootstrap;
  if (!is_one_of(settings.bootstrap_pmi, {"", "PMIX", "PMI", "PMI-2", "PMI2"})) {
    return error(Code::kInvalidValue, "NVSHMEM_BOOTSTRAP_PMI=\"%s\" is not a flavour of PMI; only PMIX is spoken",
                 settings.bootstrap_pmi.c_str());
  }
  if (!is_one_of(settings.bootstrap_pmi, {"", "PMIX"})) {
    log(LogLevel::kWarn, "NVSHMEM_BOOTSTRAP_PMI=%s: only PMIX is spoken, so PMIX is used",
        settings.bootstrap_pmi.c_str());
  }
  if (is_one_of(how, {"solo"})) {
    *bootstrap = make_solo_bootstrap();
    return Status::ok();
  }
  // The ranks of mpirun's PMIx are those of MPI_COMM_WORLD, so MPI is not needed for it.
  const LauncherInfo info = detect_launcher();
  if (is_one_of(how, {"MPI"}) && info.usable.is_ok() && info.maker == "pmix") {
    log(LogLevel::kInfo, "NVSHMEM_BOOTSTRAP=%s: nvshmem_init joins by the PMIx of the launcher", how.c_str());
    return make_pmix_bootstrap(settings, bootstrap);
  }
  if (is_one_of(how, {"MPI", "UID", "SHMEM", "plugin"})) {
    return error(Code::kInvalidValue,
                 "NVSHMEM_BOOTSTRAP=%s is no way to start through nvshmem_init: pass an MPI communicator "
                 "(NVSHMEMX_INIT_WITH_MPI_COMM) or a unique id (NVSHMEMX_INIT_WITH_UNIQUEID) to nvshmemx_init_attr, or "
                 "unset NVSHMEM_BOOTSTRAP",
                 how.c_str());
  }
  const bool forced_pmix = is_one_of(how, {"pmix"});
  if (!forced_pmix && !is_one_of(how, {"", "auto", "PMI"})) {
    return error(Code::kInvalidValue, "NVSHMEM_BOOTSTRAP=\"%s\" is not one of auto, pmix, PMI, solo", how.c_str());
  }
  HEDDLE_RETURN_IF_ERROR(info.usable);
  if (info.maker == "pmix") return make_pmix_bootstrap(settings, bootstrap);
  if (forced_pmix) {
    return error(
        Code::kNotSupported,
        "NVSHMEM_BOOTSTRAP=%s, but no PMIx launcher started this process (PMIX_NAMESPACE and PMIX_RANK are not "
        "set): start it by heddlerun, mpirun of Open MPI or srun --mpi=pmix, or unset NVSHMEM_BOOTSTRAP",
        how.c_str());
  }
  *bootstrap = make_solo_bootstrap();
  return Status::ok();
}

}  // namespace heddle
