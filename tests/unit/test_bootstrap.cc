// The bootstraps that need no other process: solo, and the reading of the environment.
#include <cstdlib>
#include <cstring>

#include "bootstrap/bootstrap.h"
#include "bootstrap/rank_list.h"
#include "catch.h"

using namespace heddle;

namespace {

/// Removes every launcher's variables for its life, and sets those given.
class Environment {
 public:
  explicit Environment(std::initializer_list<std::pair<const char*, const char*>> values) {
    std::vector<std::string> names;
    for (char** entry = environ; *entry; ++entry) {
      const std::string text = *entry;
      for (const char* prefix : {"PMIX_", "PMI_", "SLURM_", "OMPI_", "PRTE_"}) {
        if (text.rfind(prefix, 0) == 0) names.push_back(text.substr(0, text.find('=')));
      }
    }
    for (const std::string& name : names) {
      saved_.emplace_back(name, getenv(name.c_str()));
      unsetenv(name.c_str());
    }
    for (const auto& [name, value] : values) {
      setenv(name, value, 1);
      set_.push_back(name);
    }
  }
  ~Environment() {
    for (const std::string& name : set_) unsetenv(name.c_str());
    for (const auto& [name, value] : saved_) setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::vector<std::pair<std::string, std::string>> saved_;
  std::vector<std::string> set_;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("solo is one PE that gathers from itself") {
  const std::unique_ptr<Bootstrap> boot = make_solo_bootstrap();
  CHECK(std::string(boot->name()) == "solo");
  CHECK(boot->rank() == 0);
  CHECK(boot->size() == 1);
  CHECK(boot->node_of(0) == 0);
  CHECK(boot->node_of(1) == -1);
  const std::string mine = "every byte of it";
  std::string all(mine.size(), '?');
  CHECK(boot->allgather(mine.data(), mine.size(), all.data(), Deadline::none()).is_ok());
  CHECK(all == mine);
  CHECK(boot->allgather(nullptr, 0, nullptr, Deadline::none()).is_ok());
  CHECK(boot->barrier(Deadline::none()).is_ok());
}

TEST_CASE("ranks are named in messages") {
  CHECK(rank_list({3}) == "rank 3");
  CHECK(rank_list({1, 4}) == "ranks 1, 4");
  std::vector<int> many(20);
  for (int i = 0; i < 20; ++i) many[static_cast<size_t>(i)] = i;
  CHECK(contains(rank_list(many), "15 and 4 more"));
}

TEST_CASE("the environment says how a process was started") {
  SECTION("no launcher") {
    Environment env({});
    CHECK(detect_launcher().maker == "solo");
    CHECK(detect_launcher().launcher == "none");
    CHECK(detect_launcher().usable.is_ok());
  }
  SECTION("heddlerun") {
    Environment env({{"PMIX_NAMESPACE", "heddlerun-77"}, {"PMIX_RANK", "0"}});
    CHECK(detect_launcher().maker == "pmix");
    CHECK(detect_launcher().launcher == "heddlerun");
    CHECK(detect_launcher().usable.is_ok());
  }
  SECTION("mpirun, also inside a Slurm job") {
    Environment env({{"PMIX_NAMESPACE", "123"},
                     {"PMIX_RANK", "1"},
                     {"OMPI_COMM_WORLD_RANK", "1"},
                     {"OMPI_COMM_WORLD_SIZE", "4"},
                     {"SLURM_PROCID", "0"},
                     {"SLURM_STEP_ID", "0"},
                     {"SLURM_STEP_NUM_TASKS", "2"}});
    CHECK(detect_launcher().maker == "pmix");
    CHECK(detect_launcher().launcher == "mpirun");
    CHECK(detect_launcher().usable.is_ok());
  }
  SECTION("srun with PMIx") {
    Environment env({{"PMIX_NAMESPACE", "slurm.pmix.1.0"},
                     {"PMIX_RANK", "1"},
                     {"SLURM_PROCID", "1"},
                     {"SLURM_STEP_ID", "0"},
                     {"SLURM_STEP_NUM_TASKS", "4"}});
    CHECK(detect_launcher().maker == "pmix");
    CHECK(detect_launcher().launcher == "srun");
  }
  SECTION("srun without PMIx") {
    Environment env({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}});
    const LauncherInfo info = detect_launcher();
    CHECK(info.launcher == "srun");
    CHECK(info.usable.code() == Code::kNotSupported);
    CHECK(contains(info.usable.text(), "started by srun without --mpi=pmix"));
    std::unique_ptr<Bootstrap> boot;
    CHECK(make_bootstrap(Settings(), &boot).text() == info.usable.text());
    CHECK(boot == nullptr);
  }
  SECTION("srun without PMIx and without a step count") {
    Environment env({{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}});
    CHECK(contains(detect_launcher().usable.text(), "started by srun without --mpi=pmix"));
  }
  SECTION("a batch script of a job of four tasks, and a step of one task") {
    Environment batch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}});
    CHECK(detect_launcher().maker == "solo");
    CHECK(detect_launcher().usable.is_ok());
    Environment step({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}});
    CHECK(detect_launcher().maker == "solo");
    CHECK(detect_launcher().usable.is_ok());
  }
  SECTION("a launcher that speaks PMI only") {
    Environment env({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
    CHECK(detect_launcher().usable.code() == Code::kNotSupported);
    CHECK(contains(detect_launcher().usable.text(), "speaks PMI and not PMIx"));
    Environment one({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}});
    CHECK(detect_launcher().usable.is_ok());
  }
  SECTION("half of PMIx") {
    Environment env({{"PMIX_RANK", "0"}});
    CHECK(detect_launcher().usable.code() == Code::kInvalidValue);
    CHECK(contains(detect_launcher().usable.text(), "PMIX_NAMESPACE is not"));
  }
}

TEST_CASE("NVSHMEM_BOOTSTRAP chooses") {
  Environment env({});
  Settings settings;
  std::unique_ptr<Bootstrap> boot;
  for (const char* how : {"", "auto", "AUTO", "PMI", "solo"}) {
    settings.bootstrap = how;
    CHECK(make_bootstrap(settings, &boot).text() == "");
    REQUIRE(boot != nullptr);
    CHECK(std::string(boot->name()) == "solo");
    boot.reset();
  }
  settings.bootstrap = "pmix";
  CHECK(make_bootstrap(settings, &boot).code() == Code::kNotSupported);
  for (const char* how : {"MPI", "UID", "SHMEM", "plugin"}) {
    settings.bootstrap = how;
    const Status status = make_bootstrap(settings, &boot);
    CHECK(status.code() == Code::kInvalidValue);
    CHECK(contains(status.text(), "nvshmemx_init_attr"));
  }
  settings.bootstrap = "pmxi";
  CHECK(contains(make_bootstrap(settings, &boot).text(), "\"pmxi\""));
  settings.bootstrap = "auto";
  settings.bootstrap_pmi = "PMI-9";
  CHECK(contains(make_bootstrap(settings, &boot).text(), "\"PMI-9\""));
  CHECK(boot == nullptr);
  setenv("SLURM_PROCID", "1", 1);
  setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  settings.bootstrap = "solo";
  settings.bootstrap_pmi = "";
  CHECK(make_bootstrap(settings, &boot).is_ok());  // forced: no launcher can spoil it
  unsetenv("SLURM_PROCID");
  unsetenv("SLURM_STEP_NUM_TASKS");
}
