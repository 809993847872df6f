#include "perftest/common/report.h"

#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

namespace perftest {
namespace {

double ratio(const Row& row, Figure figure) {
  const double ours = row.figure.value_or(figure) == Figure::kBandwidth ? row.gbps : row.us;
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
  const bool bandwidth = row.figure.value_or(figure_) == Figure::kBandwidth;
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
  print_number(8, bandwidth ? 2 : 4, row.raw);
  printf(" %4s", bandwidth ? "GB/s" : "us");
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
  // Flat rows of our own names need no JSON library, and the device tests build where there is none.
  std::ofstream file(path);
  file.precision(9);
  file << "[";
  for (const Row& row : rows_) {
    file << (&row == rows_.data() ? "\n" : ",\n") << R"( {"test": ")" << row.test << R"(", "fabric": ")" << fabric_
         << R"(", "pes": )" << pes_ << R"(, "scope": ")" << row.scope << R"(", "bytes": )" << row.bytes;
    const std::pair<const char*, double> numbers[] = {
        {"us", row.us}, {"us_p99", row.us_p99}, {"gbps", row.gbps}, {"raw", row.raw}, {"ratio", ratio(row, figure_)}};
    for (const auto& [name, value] : numbers) {
      file << ", \"" << name << "\": ";
      if (value < 0) {
        file << "null";
      } else {
        file << value;
      }
    }
    file << "}";
  }
  file << "\n]\n";
  file.close();
  if (file) return true;
  fprintf(stderr, "%s: cannot write \"%s\": %s\n", name_.c_str(), path.c_str(), strerror(errno));
  return false;
}

}  // namespace perftest
