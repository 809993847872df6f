// Uses the bootstrap as nvshmem_init does, under whatever launcher started it, and checks every byte that it gathers.
//
//   boot_probe ok [nodes]         several bootstraps one after the other, records of several sizes, the node map
//   boot_probe die-before RANK    RANK ends before the others gather: they must fail, and name it
//   boot_probe die-in RANK        RANK ends while the others wait: they must fail
//   boot_probe late RANK          RANK comes after the others' deadline: they must time out, and name it
//   boot_probe uneven RANK        RANK gathers another number of bytes: all must fail, and name a rank
//   boot_probe abort RANK CODE    RANK ends the whole job
//   boot_probe cycles N           N bootstraps: neither memory nor descriptors may grow
//
// Exit code 0: as expected. A rank that is to die leaves with code 0, so the launcher's exit code is the survivors'
// word.
#include <dirent.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "bootstrap/bootstrap.h"

using namespace heddle;

namespace {

int my_rank = -1;

[[gnu::format(printf, 1, 2)]] bool complain(const char* pattern, ...) {
  char text[2048];
  va_list args;
  va_start(args, pattern);
  std::vsnprintf(text, sizeof text, pattern, args);
  va_end(args);
  std::fprintf(stderr, "boot_probe: rank %d: %s\n", my_rank, text);
  return false;
}

bool expect_ok(const char* what, const Status& status) {
  return status.is_ok() || complain("%s failed: %s", what, status.text().c_str());
}

bool expect_failure(const Status& status, std::initializer_list<Code> codes, const std::string& named) {
  if (status.is_ok()) return complain("succeeded, but was to fail");
  bool right = false;
  for (Code code : codes) right |= status.code() == code;
  if (!right) return complain("failed with %s: %s", code_name(status.code()), status.text().c_str());
  if (status.text().find(named) == std::string::npos) {
    return complain("the text does not say \"%s\": %s", named.c_str(), status.text().c_str());
  }
  return true;
}

unsigned char byte_of(int rank, size_t index, int round) {
  return static_cast<unsigned char>(rank * 37 + static_cast<int>(index) * 11 + round * 101);
}

bool gather(Bootstrap& boot, size_t bytes, int round) {
  std::vector<unsigned char> mine(bytes), all(bytes * static_cast<size_t>(boot.size()), 0xee);
  for (size_t i = 0; i < bytes; ++i) mine[i] = byte_of(boot.rank(), i, round);
  const std::string what = format("allgather of %zu bytes in round %d", bytes, round);
  if (!expect_ok(what.c_str(), boot.allgather(mine.data(), bytes, all.data(), Deadline::in(60)))) return false;
  for (int rank = 0; rank < boot.size(); ++rank) {
    for (size_t i = 0; i < bytes; ++i) {
      const unsigned char got = all[static_cast<size_t>(rank) * bytes + i];
      if (got != byte_of(rank, i, round)) {
        return complain("round %d: byte %zu of %zu of rank %d is %d", round, i, bytes, rank, got);
      }
    }
  }
  return true;
}

/// A barrier proven: nobody's clock on leaving is before anybody's clock on entering (one host, one clock).
bool barrier_holds(Bootstrap& boot) {
  const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
  if (boot.rank() == boot.size() / 2) std::this_thread::sleep_for(std::chrono::milliseconds(30));
  int64_t times[2] = {now(), 0};
  if (!expect_ok("barrier", boot.barrier(Deadline::in(60)))) return false;
  times[1] = now();
  std::vector<int64_t> all(2 * static_cast<size_t>(boot.size()));
  if (!expect_ok("allgather", boot.allgather(times, sizeof times, all.data(), Deadline::in(60)))) return false;
  for (size_t k = 0; k < all.size(); k += 2) {
    if (all[k] > times[1]) return complain("left the barrier before rank %zu came", k / 2);
  }
  return true;
}

bool nodes_are(const Bootstrap& boot, int nodes) {
  std::set<int> seen;
  for (int rank = 0; rank < boot.size(); ++rank) {
    const int node = boot.node_of(rank);
    if (node < 0) return complain("the node of rank %d is unknown", rank);
    if (rank > 0 && nodes == 1 && node != boot.node_of(0)) return complain("rank %d is on another node", rank);
    seen.insert(node);
  }
  if (boot.node_of(boot.size()) != -1 || boot.node_of(-1) != -1) return complain("a rank out of range has a node");
  return static_cast<int>(seen.size()) == nodes || complain("%zu nodes, not %d", seen.size(), nodes);
}

long resident_kib() {
  long pages = 0, resident = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = -1;
    std::fclose(file);
  }
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

int open_descriptors() {
  int count = 0;
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (readdir(folder)) ++count;
    closedir(folder);
  }
  return count;
}

bool run_cycles(const Settings& settings, int cycles) {
  long memory = 0;
  int descriptors = 0;
  for (int i = 0; i < cycles; ++i) {
    std::unique_ptr<Bootstrap> boot;
    if (!expect_ok("make_bootstrap", make_bootstrap(settings, &boot)) || !gather(*boot, 300, i)) return false;
    if (i == cycles / 4) {
      memory = resident_kib();
      descriptors = open_descriptors();
    }
  }
  const long grown = resident_kib() - memory;
  if (open_descriptors() != descriptors) return complain("%d descriptors became %d", descriptors, open_descriptors());
  // A store without shared memory keeps one record per cycle and rank.
  const char* store = std::getenv("PMIX_GDS_MODULE");
  const bool replaces = !store || std::strncmp(store, "ds", 2) == 0;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr bool kMemoryTells = false;  // sanitizers keep freed memory for a while
#else
  constexpr bool kMemoryTells = true;
#endif
  return !kMemoryTells || grown < (replaces ? 1024 : 2048 + cycles * 8L) ||
         complain("%d cycles cost %ld KiB", cycles - cycles / 4, grown);
}

bool run_ok(const Settings& settings, int nodes) {
  for (int cycle = 0; cycle < 3; ++cycle) {
    std::unique_ptr<Bootstrap> boot;
    if (!expect_ok("make_bootstrap", make_bootstrap(settings, &boot))) return false;
    my_rank = boot->rank();
    int round = cycle * 100;
    for (size_t bytes : {size_t{1}, size_t{256}, size_t{4097}, size_t{0}, size_t{100000}}) {
      if (!gather(*boot, bytes, ++round)) return false;
    }
    if (!barrier_holds(*boot) || !nodes_are(*boot, nodes)) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "ok";
  const int argument = argc > 2 ? std::atoi(argv[2]) : 1;
  Settings settings;
  std::vector<std::string> warnings;
  if (!expect_ok("settings", Settings::from_environment(&settings, &warnings))) return 1;
  if (mode == "ok") return run_ok(settings, argument) ? 0 : 1;
  if (mode == "cycles") return run_cycles(settings, argument) ? 0 : 1;

  const auto started = std::chrono::steady_clock::now();
  std::unique_ptr<Bootstrap> boot;
  if (!expect_ok("make_bootstrap", make_bootstrap(settings, &boot))) return 1;
  my_rank = boot->rank();
  if (argument < 0 || argument >= boot->size()) {
    complain("there is no rank %d among %d", argument, boot->size());
    return 1;
  }
  // One exchange that works, so that records of an earlier one are there to be mistaken for this one's.
  if (!gather(*boot, 64, 1)) return 1;
  const bool chosen = boot->rank() == argument;
  const std::string named = "rank " + std::to_string(argument);
  char mine[64] = {};
  std::vector<char> all(sizeof mine * static_cast<size_t>(boot->size()));
  const auto exchange = [&](double seconds) {
    return boot->allgather(mine, sizeof mine, all.data(), Deadline::in(seconds));
  };

  if (mode == "die-before") {
    if (chosen) _exit(0);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return expect_failure(exchange(10), {Code::kPeerLost, Code::kTimeout}, named) ? 0 : 1;
  }
  if (mode == "die-in") {
    if (chosen) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      _exit(0);
    }
    const bool right = expect_failure(exchange(10), {Code::kPeerLost, Code::kTimeout}, named);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
    return right && (took.count() < 30 || complain("took %.1f s", took.count())) ? 0 : 1;
  }
  if (mode == "late") {
    if (chosen) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5000));
      return 0;
    }
    const auto before = std::chrono::steady_clock::now();
    if (!expect_failure(exchange(0.5), {Code::kTimeout}, named)) return 1;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - before;
    if (took.count() < 0.5 || took.count() > 4.9) {
      complain("the deadline of 0.5 s came after %.2f s", took.count());
      return 1;
    }
    // Out of step now: a further exchange must fail at once instead of mixing records.
    return exchange(0.5).is_ok() ? (complain("went on after a timeout"), 1) : 0;
  }
  if (mode == "uneven") {
    const size_t bytes = chosen ? 32 : 64;
    return expect_failure(boot->allgather(mine, bytes, all.data(), Deadline::in(10)), {Code::kSymmetry}, "rank ") ? 0
                                                                                                                  : 1;
  }
  if (mode == "abort") {
    if (chosen) boot->abort(argc > 3 ? std::atoi(argv[3]) : 1, "boot_probe was asked to");
    std::this_thread::sleep_for(std::chrono::seconds(20));
    complain("outlived an abort");
    return 1;
  }
  complain("unknown mode %s", mode.c_str());
  return 2;
}
