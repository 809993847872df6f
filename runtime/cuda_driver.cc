#include "runtime/cuda_driver.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <mutex>

namespace heddle::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kOldestVersion = 12000;  // whose signatures the table has

struct Opened {
  Status status;
  Driver driver;
};

std::string version_text(int version) { return format("%d.%d", version / 1000, version % 1000 / 10); }

Status resolve(void* library, Driver* driver) {
  using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  const auto version_of = reinterpret_cast<decltype(&::cuDriverGetVersion)>(dlsym(library, "cuDriverGetVersion"));
  int version = 0;
  if (version_of != nullptr) (void)version_of(&version);
  if (get == nullptr || version < kOldestVersion) {
    return error(Code::kNotSupported, "the NVIDIA driver serves CUDA %s; %s or newer is needed: update the driver",
                 version_text(version).c_str(), version_text(kOldestVersion).c_str());
  }
  const auto find = [&](const char* name, void** function) {
    return get(name, function, kOldestVersion, CU_GET_PROC_ADDRESS_LEGACY_STREAM, nullptr) == CUDA_SUCCESS &&
           *function != nullptr;
  };
#define HEDDLE_RESOLVE(NAME)                                                                                \
  if (!find("cu" #NAME, reinterpret_cast<void**>(&driver->NAME))) {                                         \
    return error(Code::kNotSupported, "the NVIDIA driver (CUDA %s) has no function cu" #NAME "; update it", \
                 version_text(version).c_str());                                                            \
  }
  HEDDLE_DRIVER_FUNCTIONS(HEDDLE_RESOLVE)
#undef HEDDLE_RESOLVE
  // Newer than the table's version, with one signature only.
#define HEDDLE_RESOLVE(NAME)                                                                                    \
  if (get("cu" #NAME, reinterpret_cast<void**>(&driver->NAME), CUDA_VERSION, CU_GET_PROC_ADDRESS_LEGACY_STREAM, \
          nullptr) != CUDA_SUCCESS) {                                                                           \
    driver->NAME = nullptr;                                                                                     \
  }
  HEDDLE_OPTIONAL_DRIVER_FUNCTIONS(HEDDLE_RESOLVE)
  // An older driver would give the function under its older signature.
  if (version >= 13000) {
    HEDDLE_DRIVER_FUNCTIONS_OF_13(HEDDLE_RESOLVE)
  }
#undef HEDDLE_RESOLVE
  return Status::ok();
}

Status open_driver(Driver* driver) {
  // Never closed: the driver does not survive that.
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    return error(Code::kNotSupported, "no NVIDIA driver: %s", why == nullptr ? kLibrary : why);
  }
  HEDDLE_RETURN_IF_ERROR(resolve(library, driver));
  const CUresult started = driver->Init(0);
  if (started == CUDA_ERROR_NO_DEVICE) {
    return error(Code::kNotSupported,
                 "the NVIDIA driver shows no GPU to this process (CUDA_ERROR_NO_DEVICE); look at CUDA_VISIBLE_DEVICES");
  }
  if (started != CUDA_SUCCESS) {
    return error(Code::kNotSupported, "%s", cuda_error(*driver, started, "cuInit", "0").text().c_str());
  }
  int count = 0;
  const CUresult counted = driver->DeviceGetCount(&count);
  if (counted != CUDA_SUCCESS || count == 0) {
    return error(Code::kNotSupported, "the NVIDIA driver shows no GPU to this process; look at CUDA_VISIBLE_DEVICES");
  }
  return Status::ok();
}

std::atomic<const Driver*> replacement{nullptr};

}  // namespace

Status get_driver(const Driver** driver) {
  // acquire: the table was filled before it was given
  if (const Driver* const given = replacement.load(std::memory_order_acquire); given != nullptr) {
    *driver = given;
    return Status::ok();
  }
  static const Opened* const kOpened = [] {
    auto* fresh = new Opened;  // kept for ever, like the driver
    fresh->status = open_driver(&fresh->driver);
    return fresh;
  }();
  *driver = kOpened->status.is_ok() ? &kOpened->driver : nullptr;
  return kOpened->status;
}

void set_driver_for_tests(const Driver* driver) {
  replacement.store(driver, std::memory_order_release);  // release: pairs with get_driver
}

Status cuda_error(const Driver& driver, CUresult result, const char* call, const char* pattern, ...) {
  char values[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(values, sizeof values, pattern, arguments);
  va_end(arguments);
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.GetErrorName == nullptr || driver.GetErrorName(result, &name) != CUDA_SUCCESS) name = nullptr;
  if (driver.GetErrorString == nullptr || driver.GetErrorString(result, &text) != CUDA_SUCCESS) text = nullptr;
  const Code code = result == CUDA_ERROR_OUT_OF_MEMORY   ? Code::kOutOfMemory
                    : result == CUDA_ERROR_NOT_SUPPORTED ? Code::kNotSupported
                                                         : Code::kInternal;
  return error(code, "%s(%s): %s: %s", call, values,
               name != nullptr ? name : format("CUDA error %d", static_cast<int>(result)).c_str(),
               text != nullptr ? text : "no description");
}

}  // namespace heddle::cuda
