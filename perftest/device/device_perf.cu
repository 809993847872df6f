// Every figure of the device side from one start of two PEs: ours and the plain twin of each row in turns.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "perftest/device/rows.h"

namespace perftest {
namespace {

constexpr char kHelp[] =
    "usage: device_perf [--rows A,B,...] [--smem] [--json FILE] [--samples N] [--divide N] [--list]\n"
    "Measures puts, gets, atomics and signals of kernels on two GPUs: mpirun -n 2 device_perf, or heddlerun -n 2.\n"
    "  --rows A,B,...  only these rows; a word that ends in * stands for all that begin so\n"
    "  --smem          the rows with registered shared memory (NVSHMEM_TMA_POLICY=ENABLE) instead of the others\n"
    "  --json FILE     also write the rows to FILE, after each\n"
    "  --samples N     samples of each kind (15)\n"
    "  --divide N      N times fewer operations a sample: for PEs that share one GPU (1)\n"
    "  --list          print the names of all rows and end\n";

/// CLI11 reads the options of the host programs; these are few, so that one compiler and no library build this program.
bool parse(int argc, char** argv, DeviceOptions* options, bool* list, bool* help) {
  const auto number = [](const char* text, int* value) {
    char* end = nullptr;
    const long parsed = strtol(text, &end, 10);
    *value = static_cast<int>(parsed);
    return *end == 0 && end != text && parsed >= 1 && parsed <= 10000;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "-h" || name == "--help") {
      *help = true;
    } else if (name == "--list") {
      *list = true;
    } else if (name == "--smem") {
      options->smem = true;
    } else if (name == "--rows" || name == "--json" || name == "--samples" || name == "--divide") {
      if (++i == argc) {
        fprintf(stderr, "device_perf: %s needs a value\n", name.c_str());
        return false;
      }
      if (name == "--json") {
        options->json = argv[i];
      } else if (name == "--rows") {
        std::istringstream words(argv[i]);
        for (std::string word; std::getline(words, word, ',');) options->rows.push_back(word);
      } else if (!number(argv[i], name == "--samples" ? &options->samples : &options->divide)) {
        fprintf(stderr, "device_perf: %s %s: expected a number from 1 to 10000\n", name.c_str(), argv[i]);
        return false;
      }
    } else {
      fprintf(stderr, "device_perf: unknown option \"%s\"; see --help\n", name.c_str());
      return false;
    }
  }
  return true;
}

bool matches(const std::string& word, const std::string& name) {
  if (!word.empty() && word.back() == '*') return name.compare(0, word.size() - 1, word, 0, word.size() - 1) == 0;
  return word == name;
}

/// The rows of the options, in the table's order. False when a word names none.
bool choose(const DeviceOptions& options, std::vector<RowEntry>* chosen) {
  std::vector<RowEntry> all;
  const auto add = [&](std::vector<RowEntry> rows) { all.insert(all.end(), rows.begin(), rows.end()); };
  if (options.smem) {
    add(smem_rows());
  } else {
    for (const auto& rows : {host_rows, bandwidth_rows, latency_rows, ping_pong_rows, raw_rows}) add(rows());
  }
  for (const std::string& word : options.rows) {
    const auto named = [&](const RowEntry& entry) { return matches(word, entry.name); };
    if (std::none_of(all.begin(), all.end(), named)) {
      fprintf(stderr, "device_perf: there is no row \"%s\"%s; see --list\n", word.c_str(),
              options.smem ? " with --smem" : "");
      return false;
    }
  }
  for (const RowEntry& entry : all) {
    const auto takes = [&](const std::string& word) { return matches(word, entry.name); };
    if (options.rows.empty() || std::any_of(options.rows.begin(), options.rows.end(), takes)) chosen->push_back(entry);
  }
  return true;
}

/// Measures the rows; true when all were measured and their data were right.
bool measure(const DeviceOptions& options, const std::vector<RowEntry>& rows) {
  Session session(options);
  Report report("device_perf", session.fabric(), session.n(), Figure::kLatency,
                "plain loads, stores and copies in the same shape", false, session.me() != 0);
  int failed = 0;
  for (const RowEntry& entry : rows) {
    session.begin_row(entry.name.c_str());
    if (!entry.any_pes && !session.make_buffers()) return false;
    Row row;
    row.test = entry.name;
    if (session.all_true(entry.measure(session, &row))) {
      report.add(row);
    } else {
      ++failed;
    }
    // After every row: what was measured stays when a later row ends the process.
    if (!report.write_json(options.json)) ++failed;
  }
  if (session.me() == 0) {
    printf("# %d of %d rows measured\n", static_cast<int>(rows.size()) - failed, static_cast<int>(rows.size()));
    fflush(stdout);
  }
  return failed == 0;
}

}  // namespace
}  // namespace perftest

int main(int argc, char** argv) {
  perftest::DeviceOptions options;
  bool list = false, help = false;
  std::vector<perftest::RowEntry> rows;
  if (!perftest::parse(argc, argv, &options, &list, &help)) return 2;
  if (help) {
    fputs(perftest::kHelp, stdout);
    return 0;
  }
  if (!perftest::choose(options, &rows)) return 2;
  if (list) {
    for (const perftest::RowEntry& entry : rows) puts(entry.name.c_str());
    return 0;
  }
  if (rows.empty()) {
    puts("device_perf: this library has no registered shared memory; nothing to measure");
    return 77;
  }
  return perftest::measure(options, rows) ? 0 : 1;
}
