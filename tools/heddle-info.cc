// heddle-info: what Heddle would do here and why: build, launcher, fabrics, heap, topology and every setting.
//
// One report is gathered as JSON and then printed, as it is or as aligned text. The exit status is 1 when nvshmem_init
// would fail here: a malformed setting, a launcher that cannot work or no usable fabric.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "include/nvshmem_types.h"
#include "runtime/fabric/fabric.h"
#include "runtime/settings.h"
#include "tools/topology.h"

namespace {

using Json = nlohmann::ordered_json;

// The settings of this environment. A malformed one goes to `errors` and keeps its default, so that all are found.
heddle::Settings read_settings(Json* errors, Json* warnings) {
  std::vector<std::string> good;
  std::vector<std::string> texts;
  heddle::Settings settings;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const heddle::Status status = heddle::Settings::from_list({*entry}, &settings, &texts);
    if (status.is_ok()) {
      good.emplace_back(*entry);
    } else {
      errors->push_back(status.text());
    }
  }
  texts.clear();
  // No error is left in what remains.
  (void)heddle::Settings::from_list(good, &settings, &texts);
  for (const std::string& text : texts) warnings->push_back(text);
  return settings;
}

Json gather() {
  Json errors = Json::array();
  Json warnings = Json::array();
  const heddle::Settings settings = read_settings(&errors, &warnings);

  Json report;
  report["version"] = HEDDLE_VERSION_STRING;
  report["api"] = NVSHMEM_VENDOR_STRING;
  report["build"] = {
      {"cuda", HEDDLE_INFO_CUDA != 0}, {"pmix", HEDDLE_INFO_PMIX != 0}, {"hwloc", HEDDLE_HAVE_HWLOC != 0}};

  const heddle::LauncherInfo launcher = heddle::detect_launcher();
  report["launcher"] = {{"name", launcher.launcher},
                        {"bootstrap", launcher.maker},
                        {"usable", launcher.usable.is_ok()},
                        {"reason", launcher.usable.text()}};
  if (!launcher.usable.is_ok()) errors.push_back(launcher.usable.text());

  report["fabrics"] = Json::array();
  for (const heddle::FabricChoice& choice : heddle::list_fabrics(settings)) {
    report["fabrics"].push_back({{"name", choice.name}, {"usable", choice.usable}, {"reason", choice.reason}});
  }
  // Making one is the proof, and checks HEDDLE_FABRIC and HEDDLE_FAULT; without a courier it reaches nobody.
  std::unique_ptr<heddle::Fabric> fabric;
  const heddle::Status made = heddle::make_fabric(settings, nullptr, &fabric);
  report["fabric"] = made.is_ok() ? fabric->name() : "";
  if (!made.is_ok()) errors.push_back(made.text());
  report["fabric_remarks"] = made.is_ok() ? fabric->remarks() : std::vector<std::string>();

  const auto memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const bool limited = std::count(settings.given.begin(), settings.given.end(), "NVSHMEM_SYMMETRIC_SIZE") > 0;
  report["heap"] = {{"limit", settings.symmetric_size},
                    {"gpu_limit", limited ? settings.symmetric_size : settings.max_memory_per_gpu},
                    {"chunk", settings.granularity},
                    {"physical_memory", memory}};

  const heddle::Topology topology = heddle::read_topology();
  Json gpus = Json::array();
  for (const heddle::PciGpu& gpu : topology.gpus) {
    gpus.push_back({{"bus_id", gpu.bus_id}, {"name", gpu.name}, {"numa_node", gpu.numa_node}});
  }
  report["topology"] = {{"known", topology.known},     {"packages", topology.packages},     {"cores", topology.cores},
                        {"threads", topology.threads}, {"numa_nodes", topology.numa_nodes}, {"gpus", gpus}};

  report["settings"] = Json::array();
  for (const heddle::SettingRow& row : settings.rows()) {
    report["settings"].push_back({{"name", row.name},
                                  {"kind", row.kind},
                                  {"value", row.value},
                                  {"default", row.fallback},
                                  {"source", row.from_environment ? "environment" : "default"},
                                  {"help", row.help}});
  }
  report["warnings"] = warnings;
  report["errors"] = errors;
  return report;
}

std::string text_of(const Json& value) { return value.get<std::string>(); }

// "1 core", "2 cores", "no GPU".
std::string counted(size_t count, const std::string& noun) {
  return (count == 0 ? "no" : std::to_string(count)) + " " + noun + (count > 1 ? "s" : "");
}

void print_fabrics(const Json& report) {
  const char* title = "fabrics";
  for (const Json& fabric : report["fabrics"]) {
    std::printf("%-10s%-6s%-5s%s\n", title, text_of(fabric["name"]).c_str(),
                fabric["usable"].get<bool>() ? "yes" : "no", text_of(fabric["reason"]).c_str());
    title = "";
  }
  for (const Json& remark : report["fabric_remarks"]) {
    std::printf("%-10s%-6s%-5s%s\n", "", "", "", text_of(remark).c_str());
  }
}

void print_settings(const Json& report, bool all) {
  size_t name_width = 0;
  size_t value_width = 0;
  std::vector<Json> rows;
  for (const Json& row : report["settings"]) {
    if (!all && row["source"] == "default") continue;
    rows.push_back(row);
    name_width = std::max(name_width, text_of(row["name"]).size());
    value_width = std::max(value_width, text_of(row["value"]).size());
  }
  if (rows.empty()) std::printf("settings  all have their defaults (heddle-info --settings lists them)\n");
  for (const Json& row : rows) {
    std::printf("%-*s  %-*s  %-11s  %s\n", static_cast<int>(name_width), text_of(row["name"]).c_str(),
                static_cast<int>(value_width), text_of(row["value"]).c_str(), text_of(row["source"]).c_str(),
                text_of(row["help"]).c_str());
  }
}

void print_overview(const Json& report) {
  const auto yes_no = [](const Json& value) { return value.get<bool>() ? "yes" : "no"; };
  std::printf("%s\n", text_of(report["api"]).c_str());
  std::printf("build     CUDA %s, PMIx %s, hwloc %s\n", yes_no(report["build"]["cuda"]),
              yes_no(report["build"]["pmix"]), yes_no(report["build"]["hwloc"]));
  const Json& launcher = report["launcher"];
  std::printf("launcher  %s, bootstrap %s%s\n", text_of(launcher["name"]).c_str(),
              text_of(launcher["bootstrap"]).c_str(),
              launcher["usable"].get<bool>() ? "" : ": cannot work, see the error below");
  const Json& heap = report["heap"];
  std::printf("heap      limit %s, in GPU memory %s, grows by %s; memory of this machine %.1f GiB\n",
              heddle::size_text(heap["limit"].get<uint64_t>()).c_str(),
              heddle::size_text(heap["gpu_limit"].get<uint64_t>()).c_str(),
              heddle::size_text(heap["chunk"].get<uint64_t>()).c_str(),
              static_cast<double>(heap["physical_memory"].get<uint64_t>()) / (1024.0 * 1024.0 * 1024.0));
  const Json& topology = report["topology"];
  if (topology["known"].get<bool>()) {
    const auto count = [&](const char* key, const char* noun) { return counted(topology[key].get<size_t>(), noun); };
    std::printf("topology  %s, %s, %s, %s, %s\n", count("packages", "package").c_str(), count("cores", "core").c_str(),
                count("threads", "hardware thread").c_str(), count("numa_nodes", "NUMA node").c_str(),
                counted(topology["gpus"].size(), "GPU").c_str());
    for (const Json& gpu : topology["gpus"]) {
      std::printf("          GPU %s %s, NUMA node %d\n", text_of(gpu["bus_id"]).c_str(), text_of(gpu["name"]).c_str(),
                  gpu["numa_node"].get<int>());
    }
  } else {
    std::printf("topology  unknown: built without hwloc, or hwloc could not read this machine\n");
  }
  print_fabrics(report);
  print_settings(report, false);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Says what Heddle would do on this machine, in this environment, and why.", "heddle-info");
  bool settings = false;
  bool fabrics = false;
  bool json = false;
  auto* settings_flag = app.add_flag("--settings", settings, "Every setting with value, source and meaning");
  auto* fabrics_flag = app.add_flag("--fabrics", fabrics, "The fabrics only, each with its reason");
  app.add_flag("--json", json, "Everything, as JSON")->excludes(settings_flag)->excludes(fabrics_flag);
  app.set_version_flag("--version", HEDDLE_VERSION_STRING);
  CLI11_PARSE(app, argc, argv);

  const Json report = gather();
  if (json) {
    std::printf("%s\n", report.dump(2).c_str());
  } else {
    if (settings) print_settings(report, true);
    if (fabrics) print_fabrics(report);
    if (!settings && !fabrics) print_overview(report);
    std::fflush(stdout);
    for (const Json& text : report["warnings"]) std::fprintf(stderr, "warning: %s\n", text_of(text).c_str());
    for (const Json& text : report["errors"]) std::fprintf(stderr, "error: %s\n", text_of(text).c_str());
  }
  return report["errors"].empty() ? 0 : 1;
}
