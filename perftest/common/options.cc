#include "perftest/common/options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace perftest {
namespace {

/// Is this the process that speaks for its job? Every process sees the same command line.
bool speaks() {
  for (const char* name : {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) return std::string(rank) == "0";
  }
  return true;
}

/// CLI11 check: found before minutes of measuring rather than after.
std::string writable_file(const std::string& path) {
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (access(folder.c_str(), W_OK) == 0) return {};
  return "cannot write in folder \"" + folder.string() + "\" of \"" + path + "\"; create it or name another file";
}

}  // namespace

std::vector<uint64_t> Options::sizes() const {
  std::vector<uint64_t> sizes;
  for (uint64_t size = min_size; size <= max_size; size *= step) sizes.push_back(size);
  return sizes;
}

bool parse_options(int argc, char** argv, const char* name, Options* options, int* exit_code) {
  CLI::App app("Measures " + std::string(name) + ". Run it with 2 PEs, e.g. mpirun -n 2 or heddlerun -n 2.", name);
  const CLI::AsSizeValue as_size(false);
  constexpr uint64_t kLargest = 16ull << 30;
  app.add_option("-b,--min_size", options->min_size, "first size in bytes; K, M, G are powers of 1024")
      ->transform(as_size)
      ->check(CLI::Range(uint64_t{1}, kLargest))
      ->capture_default_str();
  app.add_option("-e,--max_size", options->max_size, "last size in bytes")
      ->transform(as_size)
      ->check(CLI::Range(uint64_t{1}, kLargest))
      ->capture_default_str();
  app.add_option("-f,--step", options->step, "factor between sizes")
      ->check(CLI::Range(2u, 1u << 20))
      ->capture_default_str();
  app.add_option("-n,--iters", options->iters, "samples per size, each a batch of operations")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("-w,--warmup_iters", options->warmup, "samples before those")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  app.add_flag("--bidir", options->bidir, "both PEs move data at once (bandwidth tests)");
  app.add_flag_callback(
      "--no-bind", [options] { options->bind = false; }, "let the system place the PEs instead of one core for each");
  app.add_option("--json", options->json, "also write the rows to this file, as one JSON array")->check(writable_file);
  try {
    app.parse(argc, argv);
    if (options->max_size < options->min_size) {
      throw CLI::ValidationError("--max_size", std::to_string(options->max_size) + " is less than --min_size " +
                                                   std::to_string(options->min_size));
    }
    return true;
  } catch (const CLI::ParseError& problem) {
    std::ostringstream out, err;
    *exit_code = app.exit(problem, out, err) == 0 ? 0 : 2;
    if (speaks()) {
      fputs(out.str().c_str(), stdout);
      fputs(err.str().c_str(), stderr);
    }
    return false;
  }
}

}  // namespace perftest
