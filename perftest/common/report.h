// Rows of results: the table on stdout, the JSON file, the progress line on a terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace perftest {

/// What a table's figure is, and thereby what `raw` and `ratio` mean.
enum class Figure {
  kBandwidth,  ///< GB/s; ratio = ours / raw, more is better
  kLatency,    ///< us; ratio = ours / raw, less is better
};

/// One measured line. A value that was not measured is negative: "-" in the table, null in JSON.
struct Row {
  std::string test;
  uint64_t bytes = 0;
  double us = -1;                     ///< median time of one operation, microseconds
  double us_p99 = -1;                 ///< 99th percentile over the samples
  double gbps = -1;                   ///< 1e9 bytes per second at the median
  double raw = -1;                    ///< the plain memory figure of the same run: GB/s or us
  std::string scope = "host";         ///< who moves the data: host, thread, warp, block, stream
  std::optional<Figure> figure = {};  ///< of this row alone; else the table's
};

/// Collects the rows of one program. Only PE 0 keeps one that prints.
class Report {
 public:
  /// `raw_name` says what raw is, e.g. "memcpy to a plain shared mapping".
  Report(std::string name, std::string fabric, int pes, Figure figure, std::string raw_name, bool own_cores,
         bool quiet);

  /// Prints the row (and before the first one the header).
  void add(const Row& row);
  /// Shows `text` in place on stderr until the next row, when stderr is a terminal.
  void progress(const std::string& text);
  /// Writes all rows to `path` as one array of flat objects. False after one sentence on stderr when it cannot.
  bool write_json(const std::string& path) const;

 private:
  std::string name_, fabric_, raw_name_;
  int pes_;
  Figure figure_;
  bool own_cores_, quiet_;
  std::vector<Row> rows_;
};

}  // namespace perftest
