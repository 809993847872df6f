// The list of rows, by file.
#pragma once

#include <string>
#include <vector>

#include "perftest/device/session.h"

namespace perftest {

/// One line of the table: collective; false after a message. The row comes with its name set.
struct RowEntry {
  std::string name;
  std::function<bool(Session&, Row*)> measure;
  bool any_pes = false;  ///< needs no peer
};

std::vector<RowEntry> bandwidth_rows();
std::vector<RowEntry> latency_rows();
std::vector<RowEntry> ping_pong_rows();
std::vector<RowEntry> host_rows();
std::vector<RowEntry> raw_rows();
/// With registered shared memory; empty where the library has no such thing.
std::vector<RowEntry> smem_rows();

}  // namespace perftest
