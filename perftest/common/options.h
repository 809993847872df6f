// The command line of every performance test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace perftest {

/// What the user asked for, with defaults that suit most tests.
struct Options {
  uint64_t min_size = 1;            ///< bytes of the first size
  uint64_t max_size = 64ull << 20;  ///< bytes no size exceeds
  unsigned step = 2;                ///< factor between sizes
  int iters = 50;                   ///< samples per size; each is a batch of operations
  int warmup = 5;                   ///< samples that are not counted
  bool bidir = false;               ///< both PEs move data at once
  bool bind = true;                 ///< each PE on a core of its own
  std::string json;                 ///< file for the rows, "" for none

  /// min_size, min_size * step, ... up to max_size.
  std::vector<uint64_t> sizes() const;
};

/// Reads the command line of test `name` into `options`. True: go on. False: `exit_code` holds what main returns, after
/// help (0) or one sentence on stderr (2). Under a launcher only rank 0 speaks.
bool parse_options(int argc, char** argv, const char* name, Options* options, int* exit_code);

}  // namespace perftest
