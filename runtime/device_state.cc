#include "runtime/device_state.h"

#include <dlfcn.h>

#include <algorithm>
#include <cinttypes>
#include <mutex>
#include <vector>

#ifdef HEDDLE_HAVE_CUDA
#include "runtime/gpu.h"
#include "runtime/kernels.h"
#endif
#include "runtime/device_side.h"
#include "runtime/log.h"

namespace heddle {
namespace {

/// A translation unit.
struct Unit {
  const heddle_unit* its = nullptr;
  bool fits = true;      ///< is of this library's version
  bool current = false;  ///< has the present state
  bool alone = true;     ///< has no world's state, so its kernels' failures are in its own record
};

/// A module that was loaded by hand.
struct Module {
  void* handle = nullptr;
  uint64_t address = 0;  ///< of its state on the device
  bool current = true;   ///< has the present state
};

/// Never destroyed: static destructors of the program unregister after ours.
struct Registry {
  std::mutex mutex;  // guards all members, and is held while receivers run
  std::vector<Unit> units;
  std::vector<Module> modules;
  device::DeviceState state{};
  Gpu* gpu = nullptr;          // nullptr: no state is published
  DeviceSide* side = nullptr;  // whose state it is
};

Registry& registry() {
  static Registry* all = new Registry;
  return *all;
}

/// By the program or library that it is in.
Status check_version(const heddle_unit& unit) {
  Dl_info place{};
  const bool known = dladdr(&unit, &place) != 0 && place.dli_fname != nullptr;
  return check_state_version(format("device code in %s", known ? place.dli_fname : "this process"), unit.version,
                             unit.state_bytes, unit.record_bytes);
}

#ifdef HEDDLE_HAVE_CUDA
constexpr const char* kStateName = "heddle_device_state_d";
constexpr const char* kRecordName = "heddle_device_record_d";

/// Reports what kernels have recorded while there was no state.
void report_stray(const device::DeviceErrorRecord& record) {
  if (record.complete != 0) (void)report("kernel", device_failure(record));
}

/// Calls the receivers that lack the present state; the last error code of theirs, 0 for none.
int give_units(Registry& all, Gpu& gpu) {
  const ContextScope scope(gpu);
  int failure = 0;
  for (Unit& unit : all.units) {
    if (unit.current || !unit.fits) continue;
    device::DeviceErrorRecord stray{};
    const int code = unit.its->receive(&all.state, sizeof all.state, unit.alone ? &stray : nullptr, sizeof stray);
    unit.current = code == 0;
    if (code != 0) failure = code;
    if (code == 0) unit.alone = all.state.errors == nullptr;
    report_stray(stray);
  }
  return failure;
}

/// Reports what kernels of translation units have recorded on GPUs where there is no heap, as far as the program has
/// used them: they lack a state there. The receivers are the only way to the units' memory.
void report_elsewhere(const Registry& all, const Gpu& gpu) {
  const cuda::Driver& driver = gpu.driver();
  int count = 0;
  if (all.units.empty() || driver.DeviceGetCount(&count) != CUDA_SUCCESS) return;
  const device::DeviceState none{};
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    CUcontext context = nullptr, popped = nullptr;
    unsigned flags = 0;
    int is_active = 0;
    if (driver.DeviceGet(&device, ordinal) != CUDA_SUCCESS || device == gpu.device() ||
        driver.DevicePrimaryCtxGetState(device, &flags, &is_active) != CUDA_SUCCESS || is_active == 0 ||
        driver.DevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) {
      continue;
    }
    if (driver.CtxPushCurrent(context) == CUDA_SUCCESS) {
      for (const Unit& unit : all.units) {
        device::DeviceErrorRecord stray{};
        if (unit.fits && unit.its->receive(&none, sizeof none, &stray, sizeof stray) == 0) report_stray(stray);
      }
      (void)driver.CtxPopCurrent(&popped);
    }
    (void)driver.DevicePrimaryCtxRelease(device);
  }
}

/// A stream of its own, so that the copy waits for nobody's kernels. `record`: where the module's kernels have recorded
/// failures while they had no state, 0: nowhere.
Status give_module(const Gpu& gpu, const Module& module, const device::DeviceState& state, CUdeviceptr record = 0) {
  const cuda::Driver& driver = gpu.driver();
  const ContextScope scope(gpu);
  const RelaxedCapture relaxed(gpu);
  CUstream stream = nullptr;
  const CUresult made = driver.StreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  if (made != CUDA_SUCCESS) return cuda_error(driver, made, "cuStreamCreate", "%s", gpu.name().c_str());
  if (record != 0) {
    device::DeviceErrorRecord stray{};
    if (driver.MemcpyDtoHAsync(&stray, record, sizeof stray, stream) == CUDA_SUCCESS &&
        driver.StreamSynchronize(stream) == CUDA_SUCCESS) {
      report_stray(stray);
    }
  }
  const Status status = copy_to_device(gpu, stream, module.address, &state, sizeof state, "the state of a module");
  (void)driver.StreamDestroy(stream);
  return status;
}

void give_all(Registry& all, Gpu& gpu) {
  for (Unit& unit : all.units) unit.current = false;
  const int failure = give_units(all, gpu);
  if (failure != 0) {
    log(LogLevel::kWarn,
        "kernels of %td translation unit(s) cannot make calls: the program's CUDA runtime did not take their state "
        "(CUDA error %d)",
        std::count_if(all.units.begin(), all.units.end(), [](const Unit& unit) { return unit.fits && !unit.current; }),
        failure);
  }
  for (Module& module : all.modules) {
    const Status given = give_module(gpu, module, all.state);
    module.current = given.is_ok();
    if (!given.is_ok()) log(LogLevel::kWarn, "kernels of a module cannot make calls: %s", given.text().c_str());
  }
}

/// `find(name, &address, &bytes)` asks the driver for a symbol of the module, by the function `call`.
template <class Find>
Status add_module(Registry& all, void* handle, const char* call, const Find& find) {
  const cuda::Driver& driver = all.gpu->driver();
  const ContextScope scope(*all.gpu);
  CUdeviceptr address = 0, record = 0;
  size_t bytes = 0, record_bytes = 0;
  const CUresult found = find(kStateName, &address, &bytes);
  if (found == CUDA_ERROR_NOT_FOUND) {
    return error(Code::kInvalidValue,
                 "%p has no symbol %s: include nvshmem.h in its source and compile that with HEDDLE_MODULE defined "
                 "(NVRTC needs no definition)",
                 handle, kStateName);
  }
  if (found != CUDA_SUCCESS) return cuda_error(driver, found, call, "%p, %s", handle, kStateName);
  if (find(kRecordName, &record, &record_bytes) != CUDA_SUCCESS) record = record_bytes = 0;  // no kernel there records
  uint32_t version = 0;
  HEDDLE_RETURN_IF_ERROR(read_state_version(*all.gpu, address, &version));
  HEDDLE_RETURN_IF_ERROR(check_state_version(format("module %p", handle), version, bytes, record_bytes));
  const Module module{handle, address};
  HEDDLE_RETURN_IF_ERROR(give_module(*all.gpu, module, all.state, record));
  const auto same =
      std::find_if(all.modules.begin(), all.modules.end(), [&](const Module& one) { return one.handle == handle; });
  if (same == all.modules.end()) {
    all.modules.push_back(module);
  } else {
    *same = module;
  }
  return Status::ok();
}
#endif

Status no_state() {
  return error(Code::kNotInitialized,
               "there is no state for kernels: this PE's heap is not in GPU memory, or init has not been called");
}

}  // namespace

Status check_state_version(const std::string& who, uint32_t version, uint64_t state_bytes, uint64_t record_bytes) {
  if (version == device::kStateVersion && state_bytes == sizeof(device::DeviceState) &&
      (record_bytes == 0 || record_bytes == sizeof(device::DeviceErrorRecord))) {
    return Status::ok();
  }
  return error(Code::kInvalidValue,
               "%s was compiled with device headers of version %u (state %" PRIu64 " bytes, record %" PRIu64
               "), this library has version %u (%zu, %zu): compile it anew with the headers of this library",
               who.c_str(), version, state_bytes, record_bytes, device::kStateVersion, sizeof(device::DeviceState),
               sizeof(device::DeviceErrorRecord));
}

#ifdef HEDDLE_HAVE_CUDA

Status publish_state(Gpu& gpu, const device::DeviceState& state, DeviceSide* side) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (Unit& unit : all.units) {
    const Status fit = check_version(*unit.its);
    unit.fits = fit.is_ok();
    // Later it has been reported already, and what fails then is a call of the program's, such as nvshmem_malloc.
    if (all.gpu == nullptr && !unit.fits) return fit;
  }
  all.state = state;
  all.gpu = &gpu;
  all.side = side;
  give_all(all, gpu);
  return Status::ok();
}

void renew_state() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.gpu == nullptr) return;
  (void)give_units(all, *all.gpu);
  for (Module& module : all.modules) {
    if (!module.current) module.current = give_module(*all.gpu, module, all.state).is_ok();
  }
}

void withdraw_state() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.gpu == nullptr) return;
  report_elsewhere(all, *all.gpu);
  all.state = {};
  give_all(all, *all.gpu);
  all.gpu = nullptr;
  all.side = nullptr;
  all.modules.clear();
}

void forget_failed_grids() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);  // the side withdraws its state, under it, before it ends
  if (all.side != nullptr) all.side->forget();
}

void find_stray_failures() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const cuda::Driver* driver = nullptr;
  CUcontext context = nullptr;
  if (all.gpu != nullptr || all.units.empty() || !cuda::get_driver(&driver).is_ok()) return;
  if (driver->CtxGetCurrent(&context) != CUDA_SUCCESS || context == nullptr) return;  // so no kernel ran here
  for (const Unit& unit : all.units) {
    device::DeviceErrorRecord stray{};
    if (unit.fits && unit.its->receive(&all.state, sizeof all.state, &stray, sizeof stray) == 0) report_stray(stray);
  }
}

Status register_module(void* module) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.gpu == nullptr) return no_state();
  HEDDLE_RETURN_IF_ERROR(check_current(*all.gpu));  // a module is the current context's
  return add_module(all, module, "cuModuleGetGlobal", [&](const char* name, CUdeviceptr* address, size_t* bytes) {
    return all.gpu->driver().ModuleGetGlobal(address, bytes, static_cast<CUmodule>(module), name);
  });
}

Status register_library(void* library) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  if (all.gpu == nullptr) return no_state();
  return add_module(all, library, "cuLibraryGetGlobal", [&](const char* name, CUdeviceptr* address, size_t* bytes) {
    return all.gpu->driver().LibraryGetGlobal(address, bytes, static_cast<CUlibrary>(library), name);
  });
}

Status unregister_module(void* module_or_library) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = std::find_if(all.modules.begin(), all.modules.end(),
                                  [&](const Module& one) { return one.handle == module_or_library; });
  if (found == all.modules.end()) {
    return error(Code::kInvalidValue, "%p is no module or library that was registered", module_or_library);
  }
  const Module module = *found;
  all.modules.erase(found);
  return give_module(*all.gpu, module, {});
}

#else

// Without CUDA there is no Gpu, so nobody calls this.
Status publish_state(Gpu&, const device::DeviceState&, DeviceSide*) { return no_state(); }
void renew_state() {}
void withdraw_state() {}
void find_stray_failures() {}
void forget_failed_grids() {}
Status register_module(void*) { return no_state(); }
Status register_library(void*) { return no_state(); }
Status unregister_module(void*) { return no_state(); }

#endif

}  // namespace heddle

extern "C" {

__attribute__((visibility("default"))) void heddle_register_unit(const heddle_unit* unit) {
  heddle::Registry& all = heddle::registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.units.push_back({unit});
  const heddle::Status fit = heddle::check_version(*unit);
  all.units.back().fits = fit.is_ok();
#ifdef HEDDLE_HAVE_CUDA
  if (all.gpu == nullptr) return;  // init says it
  if (!fit.is_ok()) {
    (void)heddle::report("device code that came after init", fit);
    return;
  }
  const int failure = heddle::give_units(all, *all.gpu);
  // Not a warning: with -rdc=true the first units of a program fail until the last has registered.
  if (failure != 0) {
    heddle::log(heddle::LogLevel::kInfo,
                "a translation unit that came late does not take its state yet (CUDA error %d)", failure);
  }
#endif
}

__attribute__((visibility("default"))) void heddle_unregister_unit(const heddle_unit* its) {
  heddle::Registry& all = heddle::registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found =
      std::find_if(all.units.begin(), all.units.end(), [&](const heddle::Unit& unit) { return unit.its == its; });
  if (found != all.units.end()) all.units.erase(found);
}

}  // extern "C"
