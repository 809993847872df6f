// Which fabrics there are, and making the one that the settings ask for.
#include <algorithm>
#include <thread>

#include "runtime/fabric/fabric.h"
#include "runtime/fabric/fault/fault_fabric.h"

namespace heddle {

std::vector<FabricChoice> list_fabrics(const Settings& /*settings*/) {
  return {
      {"cft", false, "needs a GPU of sm_100 or newer, CUDA 13.3+, driver R610+ and IMEX; not built into this version"},
      {"peer", false, "needs CUDA virtual memory management; not built into this version"},
      {"host", true, "shared memory of one host (memfd)"},
      {"net", false, "no network fabric in this version"},
  };
}

Status make_fabric(const Settings& settings, std::unique_ptr<Courier> courier, std::unique_ptr<Fabric>* fabric) {
  const std::vector<FabricChoice> choices = list_fabrics(settings);
  const std::string& asked = settings.fabric;
  auto choice = choices.end();
  if (asked.empty() || asked == "auto") {
    choice = std::find_if(choices.begin(), choices.end(), [](const FabricChoice& one) { return one.usable; });
  } else {
    choice = std::find_if(choices.begin(), choices.end(), [&](const FabricChoice& one) { return one.name == asked; });
    if (choice == choices.end()) {
      std::string known = "auto";
      for (const FabricChoice& one : choices) known += ", " + one.name;
      return error(Code::kInvalidValue, "HEDDLE_FABRIC=\"%s\" names no fabric; known are %s", asked.c_str(),
                   known.c_str());
    }
    if (!choice->usable) {
      return error(Code::kNotSupported, "HEDDLE_FABRIC=\"%s\" cannot be used: %s; unset it or choose host",
                   asked.c_str(), choice->reason.c_str());
    }
  }
  const int my_pe = courier ? courier->my_pe() : 0;
  FaultPlan plan;
  HEDDLE_RETURN_IF_ERROR(FaultPlan::parse(settings.fault, my_pe, &plan));
  std::unique_ptr<Fabric> made = make_host_fabric(std::move(courier));  // the only usable one
  if (!settings.fault.empty()) made = std::make_unique<FaultFabric>(std::move(made), std::move(plan));
  *fabric = std::move(made);
  return Status::ok();
}

Status await_ready(Fabric& fabric, EndpointId id, uint32_t count, Deadline deadline, const std::string& what,
                   const std::atomic<uint32_t>* poison) {
  constexpr std::chrono::microseconds kShortest{10}, kLongest{1000};
  for (auto pause = kShortest;; pause = std::min(pause * 2, kLongest)) {
    bool ready = false;
    HEDDLE_RETURN_IF_ERROR(fabric.query(id, count, &ready).in(what));
    if (ready) return Status::ok();
    // acquire: whoever sees the word may read the text of the loss
    if (poison != nullptr && poison->load(std::memory_order_acquire) != 0) {
      return error(Code::kPeerLost, "%s: PE %u was lost meanwhile", what.c_str(),
                   poison->load(std::memory_order_relaxed) - 1);  // relaxed: the first loss stays
    }
    if (deadline.passed()) break;
    std::this_thread::sleep_for(pause);
  }
  std::string missing;
  for (uint32_t i = 0; i < count; ++i) {
    const std::string pending = fabric.pending(id + i);
    if (!pending.empty()) missing += (missing.empty() ? "" : "; ") + pending;
  }
  return error(Code::kTimeout,
               "%s: endpoints %u to %u were not ready in time (%s); raise HEDDLE_TIMEOUT or HEDDLE_WAIT_TIMEOUT if the "
               "PEs are only slow",
               what.c_str(), id, id + count - 1, missing.empty() ? "the fabric does not say why" : missing.c_str());
}

}  // namespace heddle
