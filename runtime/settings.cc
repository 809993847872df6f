#include "runtime/settings.h"

#include <strings.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

extern char** environ;

namespace heddle {
namespace {

// The parsers' message leads with what is wrong; the caller adds name and quoted value.
Status parse_value(const std::string& text, bool* value) {
  for (const char* word : {"0", "n", "no", "f", "false", "off"}) {
    if (strcasecmp(text.c_str(), word) == 0) return *value = false, Status::ok();
  }
  for (const char* word : {"1", "y", "yes", "t", "true", "on"}) {
    if (strcasecmp(text.c_str(), word) == 0) return *value = true, Status::ok();
  }
  return error(Code::kInvalidValue, "not one of 1, 0, yes, no, true, false, on, off");
}

Status parse_value(const std::string& text, uint64_t* value) { return parse_size(text, value); }

[[maybe_unused]] Status parse_value(const std::string& text, int64_t* value) {
  char* end = nullptr;
  errno = 0;
  const long long parsed = std::strtoll(text.c_str(), &end, 0);
  if (errno != 0 || end == text.c_str() || *end != '\0') return error(Code::kInvalidValue, "not a whole number");
  *value = parsed;
  return Status::ok();
}

Status parse_value(const std::string& text, double* value) {
  char* end = nullptr;
  const double parsed = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || (*end != '\0' && std::strcmp(end, "s") != 0) || !std::isfinite(parsed) || parsed < 0) {
    return error(Code::kInvalidValue, "not a number of seconds that is 0 or more");
  }
  *value = parsed;
  return Status::ok();
}

Status parse_value(const std::string& text, std::string* value) { return *value = text, Status::ok(); }

std::string value_text(bool value) { return value ? "1" : "0"; }
std::string value_text(uint64_t value) { return size_text(value); }
[[maybe_unused]] std::string value_text(int64_t value) { return std::to_string(value); }
std::string value_text(double value) { return format("%g", value); }
std::string value_text(const std::string& value) { return value; }

struct KnownName {
  const char* name;
};
constexpr KnownName kKnownNames[] = {
#define HEDDLE_SETTING(member, kind, name, fallback, help) {name},
#include "runtime/settings.inc"
#undef HEDDLE_SETTING
};

// Settings that other parts of a job read and that are no mistake: perftests and test harnesses.
bool read_elsewhere(const std::string& name) {
  return name.rfind("NVSHMEMTEST_", 0) == 0 || name == "NVSHMEM_HOME" || name == "NVSHMEM_PREFIX" ||
         name == "NVSHMEM_MACHINE_READABLE_OUTPUT" || name == "HEDDLE_HOME";
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

/// What is said of a name that is in no row. Only a slip of the pen is worth a guess.
std::string unknown_text(const std::string& name) {
  constexpr size_t kSlip = 2;
  const char* best = kKnownNames[0].name;
  for (const KnownName& known : kKnownNames) {
    if (edit_distance(name, known.name) < edit_distance(name, best)) best = known.name;
  }
  if (edit_distance(name, best) <= kSlip) {
    return format("unknown setting %s is ignored; the nearest known name is %s", name.c_str(), best);
  }
  return format("setting %s has no effect here; heddle-info --settings lists those that have", name.c_str());
}

/// Sets `value` from what was given, or to the fallback when that is nothing or malformed.
/// Texts that only some words make sense for; an empty list takes any.
struct Words {
  const char* name;
  std::vector<const char*> words;
};
const std::vector<Words>& limited_texts() {
  static const std::vector<Words> kTexts = {
      {"NVSHMEM_DEBUG", {"", "VERSION", "WARN", "INFO", "ABORT", "TRACE"}},
      {"NVSHMEM_CUMEM_HANDLE_TYPE", {"FILE_DESCRIPTOR", "FABRIC", "ANY"}},
      {"NVSHMEM_TMA_POLICY", {"DISABLE", "ENABLE", "FORCE"}},
  };
  return kTexts;
}

Status check_words(const char* name, const std::string& value) {
  for (const Words& text : limited_texts()) {
    if (std::strcmp(text.name, name) != 0) continue;
    std::string all;
    for (const char* word : text.words) {
      if (strcasecmp(word, value.c_str()) == 0) return Status::ok();
      if (*word != '\0') all.append(all.empty() ? "" : ", ").append(word);
    }
    return error(Code::kInvalidValue, "%s=\"%s\" is none of %s; unset it or give one of them", name, value.c_str(),
                 all.c_str());
  }
  return Status::ok();
}

template <class T>
Status set_value(const char* name, const char* fallback, const std::string* given, T* value) {
  const Status status = parse_value(given != nullptr ? *given : std::string(fallback), value);
  if (status.is_ok()) return given != nullptr ? check_words(name, *given) : status;
  if (given != nullptr) (void)parse_value(std::string(fallback), value);
  return error(Code::kInvalidValue, "%s=\"%s\" is %s; unset it or give a value such as \"%s\"", name,
               given != nullptr ? given->c_str() : fallback, status.text().c_str(), fallback);
}

}  // namespace

Status parse_size(const std::string& text, uint64_t* bytes) {
  const auto refuse = [&] {
    return error(Code::kInvalidValue, "not a size: a number of bytes, optionally with K, M, G or T");
  };
  if (text.empty() || !(std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '.')) return refuse();
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  double scale = 1;
  const char unit = static_cast<char>(std::toupper(static_cast<unsigned char>(*end)));
  if (unit != '\0') {
    const char* units = "KMGT";
    const char* at = std::strchr(units, unit);
    if (at == nullptr && unit != 'B') return refuse();
    if (at != nullptr) {
      scale = std::pow(1024.0, static_cast<double>(at - units + 1));
      ++end;
    }
    if (strcasecmp(end, "") != 0 && strcasecmp(end, "B") != 0 && strcasecmp(end, "iB") != 0) return refuse();
  }
  const double total = number * scale;
  if (!std::isfinite(total) || total > 9e18) return refuse();
  // Whole numbers keep every digit; only fractions and exponents go through the double.
  const bool whole = text.find_first_of(".eE") == std::string::npos && text.find_first_of("xX") == std::string::npos;
  *bytes =
      whole ? std::strtoull(text.c_str(), nullptr, 10) * static_cast<uint64_t>(scale) : static_cast<uint64_t>(total);
  return Status::ok();
}

std::string size_text(uint64_t bytes) {
  const char* unit = "";
  for (const char* next : {"K", "M", "G", "T"}) {
    if (bytes == 0 || bytes % 1024 != 0) break;
    bytes /= 1024;
    unit = next;
  }
  return std::to_string(bytes) + unit;
}

Status Settings::from_environment(Settings* settings, std::vector<std::string>* warnings) {
  std::vector<std::string> list;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "NVSHMEM", 7) == 0 || std::strncmp(*entry, "HEDDLE", 6) == 0) list.emplace_back(*entry);
  }
  return from_list(list, settings, warnings);
}

Status Settings::from_list(const std::vector<std::string>& environment, Settings* settings,
                           std::vector<std::string>* warnings) {
  *settings = Settings();
  const auto find = [&](const char* name, std::string* value) {
    for (const std::string& entry : environment) {
      const size_t equals = entry.find('=');
      if (equals == std::string::npos || entry.compare(0, equals, name) != 0 || equals + 1 == entry.size()) continue;
      *value = entry.substr(equals + 1);
      return true;
    }
    return false;
  };
  std::string value;
  bool given = false;
  Status first;  // the first malformed value; the others are read all the same
#define HEDDLE_SETTING(member, kind, name, fallback, help)                                                \
  given = find(name, &value);                                                                             \
  if (Status one = set_value(name, fallback, given ? &value : nullptr, &settings->member); first.is_ok()) \
    first = std::move(one);                                                                               \
  if (given) settings->given.emplace_back(name);
#include "runtime/settings.inc"
#undef HEDDLE_SETTING
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (name.rfind("NVSHMEM_", 0) != 0 && name.rfind("HEDDLE_", 0) != 0) continue;
    const bool known = std::any_of(std::begin(kKnownNames), std::end(kKnownNames),
                                   [&](const KnownName& row) { return name == row.name; });
    if (known || read_elsewhere(name)) continue;
    warnings->push_back(unknown_text(name));
  }
  return first;
}

std::vector<SettingRow> Settings::rows() const {
  std::vector<SettingRow> rows;
#define HEDDLE_SETTING(member, kind, name, fallback, help) \
  rows.push_back({name, #kind, value_text(member), fallback, help, std::count(given.begin(), given.end(), name) > 0});
#include "runtime/settings.inc"
#undef HEDDLE_SETTING
  return rows;
}

}  // namespace heddle
