#include "perftest/common/report.h"

#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

namespace perftest {
namespace {

double ratio(const Row& row, Figure figure) {
  const double ours = figure == Figure::kBandwidth ? row.gbps : row.us;
  return ours >= 0 && row.raw > 0 ? ours / row.raw : -1;
}

void print_number(int width, int digits, double value) {
  if (value < 0) {
    printf(" %*s", width, "-");
  } else {
    printf(" %*.*f", width, digits, value);
  }
}

}  // namespace

Report::Report(std::string name, std::string fabric, int pes, Figure figure, std::string raw_name, bool own_cores,
               bool quiet)
    : name_(std::move(name)),
      fabric_(std::move(fabric)),
      raw_name_(std::move(raw_name)),
      pes_(pes),
      figure_(figure),
      own_cores_(own_cores),
      quiet_(quiet) {}

void Report::add(const Row& row) {
  const bool first = rows_.empty();
  rows_.push_back(row);
  if (quiet_) return;
  if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
  const char* unit = figure_ == Figure::kBandwidth ? "GB/s" : "us";
  if (first) {
    printf("# %s: fabric %s, %d %s%s", name_.c_str(), fabric_.c_str(), pes_, pes_ == 1 ? "PE" : "PEs",
           own_cores_ ? ", each on its own core" : "");
    if (!raw_name_.empty()) printf("; raw is %s", raw_name_.c_str());
    printf("\n%-22s %10s %10s %11s %11s %8s %4s %7s\n", "# test", "bytes", "GB/s", "us", "p99 us", "raw", "", "ratio");
  }
  printf("%-22s %10" PRIu64, row.test.c_str(), row.bytes);
  print_number(10, 3, row.gbps);
  print_number(11, 4, row.us);
  print_number(11, 4, row.us_p99);
  print_number(8, figure_ == Figure::kBandwidth ? 2 : 4, row.raw);
  printf(" %4s", unit);
  print_number(7, 3, ratio(row, figure_));
  printf("\n");
  fflush(stdout);  // a row that was measured is shown even if the program is stopped later
}

void Report::progress(const std::string& text) {
  if (quiet_ || !isatty(STDERR_FILENO)) return;
  fprintf(stderr, "\r\033[K%s: %s", name_.c_str(), text.c_str());
}

bool Report::write_json(const std::string& path) const {
  if (quiet_ || path.empty()) return true;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  auto number = [](double value) { return value < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(value); };
  for (const Row& row : rows_) {
    rows.push_back({{"test", row.test},
                    {"fabric", fabric_},
                    {"pes", pes_},
                    {"scope", "host"},
                    {"bytes", row.bytes},
                    {"us", number(row.us)},
                    {"us_p99", number(row.us_p99)},
                    {"gbps", number(row.gbps)},
                    {"raw", number(row.raw)},
                    {"ratio", number(ratio(row, figure_))}});
  }
  std::ofstream file(path);
  file << rows.dump(1) << '\n';
  file.close();
  if (file) return true;
  fprintf(stderr, "%s: cannot write \"%s\": %s\n", name_.c_str(), path.c_str(), strerror(errno));
  return false;
}

}  // namespace perftest
