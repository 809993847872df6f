// Parsing of settings: sizes, malformed values, unknown names.
#include "catch.h"
#include "runtime/settings.h"

using namespace heddle;  // NOLINT

namespace {

Status parse(const std::vector<std::string>& environment, Settings* settings, std::vector<std::string>* warnings) {
  return Settings::from_list(environment, settings, warnings);
}

}  // namespace

TEST_CASE("sizes are read with suffixes, fractions and exponents, and written back") {
  uint64_t bytes = 0;
  const std::pair<const char*, uint64_t> good[] = {
      {"0", 0},           {"4096", 4096},       {"64K", 65536},    {"64k", 65536},
      {"1M", 1 << 20},    {"1.5G", 3ULL << 29}, {"0.5g", 1 << 29}, {"1e9", 1000000000},
      {"2T", 2ULL << 40}, {"1GiB", 1 << 30},    {"7B", 7},         {"9007199254740993", 9007199254740993}};
  for (const auto& [text, value] : good) {
    CAPTURE(text);
    REQUIRE(parse_size(text, &bytes).is_ok());
    CHECK(bytes == value);
  }
  for (const char* text : {"", "-1", "1Q", "10x", "abc", "1 G", "nan", "inf", "1e30", "M", "1GG", "+5"}) {
    CAPTURE(text);
    CHECK(parse_size(text, &bytes).code() == Code::kInvalidValue);
  }
  CHECK(size_text(0) == "0");
  CHECK(size_text(1536) == "1536");
  CHECK(size_text(65536) == "64K");
  CHECK(size_text(3ULL << 29) == "1536M");
}

TEST_CASE("a malformed value is an error that quotes it") {
  Settings settings;
  std::vector<std::string> warnings;
  for (const char* entry :
       {"NVSHMEM_SYMMETRIC_SIZE=1Q", "NVSHMEM_SYMMETRIC_SIZE=-1", "HEDDLE_TIMEOUT=abc", "HEDDLE_TIMEOUT=-3",
        "NVSHMEM_INFO=maybe", "NVSHMEM_DEBUG=blah", "NVSHMEM_TMA_POLICY=maybe", "NVSHMEM_CUMEM_HANDLE_TYPE=foo"}) {
    const std::string text = entry;
    CAPTURE(text);
    const Status status = parse({text}, &settings, &warnings);
    CHECK(status.code() == Code::kInvalidValue);
    const std::string value = text.substr(text.find('=') + 1), quoted = std::string("=\"").append(value).append("\"");
    CHECK(status.text().find(quoted) != std::string::npos);
    CHECK(status.text().find(text.substr(0, text.find('='))) != std::string::npos);
  }
  for (const char* entry : {"NVSHMEM_DEBUG=info", "NVSHMEM_TMA_POLICY=enable", "NVSHMEM_CUMEM_HANDLE_TYPE=fabric",
                            "NVSHMEM_INFO=off", "HEDDLE_TIMEOUT=2.5", "NVSHMEM_SYMMETRIC_SIZE="}) {
    CAPTURE(entry);
    CHECK(parse({entry}, &settings, &warnings).is_ok());
  }
  CHECK(warnings.empty());
}

TEST_CASE("an unknown name is warned about with the nearest known one") {
  Settings settings;
  std::vector<std::string> warnings;
  REQUIRE(
      parse({"NVSHMEM_SYMETRIC_SIZE=1G", "HEDDLE_FABRICS=host", "NVSHMEMTEST_X=1", "PATH=/bin"}, &settings, &warnings)
          .is_ok());
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[0].find("NVSHMEM_SYMETRIC_SIZE") != std::string::npos);
  CHECK(warnings[0].find("NVSHMEM_SYMMETRIC_SIZE") != std::string::npos);
  CHECK(warnings[1].find("HEDDLE_FABRIC") != std::string::npos);
  CHECK(settings.symmetric_size == 1ULL << 30);  // the default, not the misspelt value
}

TEST_CASE("a name that is no slip of the pen is said to have no effect, and no other name is guessed") {
  Settings settings;
  std::vector<std::string> warnings;
  REQUIRE(parse({"NVSHMEM_DISABLE_GDRCOPY=1", "HEDDLE_COLOUR=red"}, &settings, &warnings).is_ok());
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[0] ==
        "setting NVSHMEM_DISABLE_GDRCOPY has no effect here; heddle-info --settings lists those that have");
  CHECK(warnings[1].find("HEDDLE_COLOUR has no effect") != std::string::npos);
  warnings.clear();
  REQUIRE(parse({"NVSHMEM_IB_ENABLE_IBGDA=1", "NVSHMEM_HCA_LIST=mlx5_0", "NVSHMEM_QP_DEPTH=4096"}, &settings, &warnings)
              .is_ok());
  CHECK(warnings.empty());  // known to have none
}
