// Settings: every NVSHMEM_* and HEDDLE_* variable, parsed once from the table settings.inc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace heddle {

namespace setting {
using Bool = bool;
using Int = int64_t;
using Size = uint64_t;
using Seconds = double;
using Text = std::string;
using Accepted = std::string;
}  // namespace setting

/// One line of the table with its present value, as heddle-info and NVSHMEM_INFO=1 show it.
struct SettingRow {
  std::string name, kind, value, fallback, help;
  bool from_environment = false;
};

/// The values of all settings.
struct Settings {
#define HEDDLE_SETTING(member, kind, name, fallback, help) setting::kind member{};
#include "runtime/settings.inc"
#undef HEDDLE_SETTING

  /// Reads the table's variables from the process environment.
  /// An empty value counts as unset. A malformed value is kInvalidValue and quotes it; the setting then has its
  /// default, and all others are read, so that the failure can be told to the other PEs. A variable that starts with
  /// NVSHMEM_ or HEDDLE_ and is in no table row is put into `warnings`, with the known name that it may be meant for.
  static Status from_environment(Settings* settings, std::vector<std::string>* warnings);

  /// The same over a given environment of "NAME=value" strings, for tests.
  static Status from_list(const std::vector<std::string>& environment, Settings* settings,
                          std::vector<std::string>* warnings);

  /// Every row in table order.
  std::vector<SettingRow> rows() const;

  std::vector<std::string> given;  ///< names that the environment set
};

/// Reads "4096", "64K", "1.5G", "1e9" (suffixes K M G T, powers of 1024, optional B or iB) as bytes.
Status parse_size(const std::string& text, uint64_t* bytes);

/// Writes bytes the way parse_size reads them, e.g. "32M" or "1536".
std::string size_text(uint64_t bytes);

}  // namespace heddle
