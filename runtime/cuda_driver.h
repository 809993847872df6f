// The CUDA driver, reached by dlopen and cuGetProcAddress: never linked, so that the library loads on machines without
// one. Only in builds with a CUDA toolkit (HEDDLE_HAVE_CUDA), whose headers give the types.
#pragma once

#include <cuda.h>

#include <string>

#include "runtime/status.h"

/// The driver's functions that the library calls, without their "cu": required ones, in every driver from CUDA 12.0 on,
/// in the form that they had then. So DeviceGetUuid is cuDeviceGetUuid_v2, which names the instance in MIG mode.
#define HEDDLE_DRIVER_FUNCTIONS(X)        \
  X(Init)                                 \
  X(DriverGetVersion)                     \
  X(GetErrorName)                         \
  X(GetErrorString)                       \
  X(DeviceGetCount)                       \
  X(DeviceGet)                            \
  X(DeviceGetName)                        \
  X(DeviceGetUuid)                        \
  X(DeviceGetAttribute)                   \
  X(DeviceCanAccessPeer)                  \
  X(DeviceGetP2PAttribute)                \
  X(DevicePrimaryCtxRetain)               \
  X(DevicePrimaryCtxRelease)              \
  X(DevicePrimaryCtxGetState)             \
  X(CtxGetCurrent)                        \
  X(CtxPushCurrent)                       \
  X(CtxPopCurrent)                        \
  X(CtxGetDevice)                         \
  X(MemGetInfo)                           \
  X(MemGetAllocationGranularity)          \
  X(MemCreate)                            \
  X(MemRelease)                           \
  X(MemRetainAllocationHandle)            \
  X(MemGetAllocationPropertiesFromHandle) \
  X(MemExportToShareableHandle)           \
  X(MemImportFromShareableHandle)         \
  X(MemAddressReserve)                    \
  X(MemAddressFree)                       \
  X(MemMap)                               \
  X(MemUnmap)                             \
  X(MemSetAccess)                         \
  X(MemAlloc)                             \
  X(MemFree)                              \
  X(IpcGetMemHandle)                      \
  X(IpcOpenMemHandle)                     \
  X(IpcCloseMemHandle)                    \
  X(MemHostAlloc)                         \
  X(MemFreeHost)                          \
  X(MemHostGetDevicePointer)              \
  X(MemcpyAsync)                          \
  X(MemcpyHtoDAsync)                      \
  X(MemcpyDtoHAsync)                      \
  X(Memcpy2DAsync)                        \
  X(MemsetD8Async)                        \
  X(PointerGetAttributes)                 \
  X(StreamCreate)                         \
  X(StreamDestroy)                        \
  X(StreamSynchronize)                    \
  X(StreamGetCtx)                         \
  X(StreamIsCapturing)                    \
  X(StreamWaitEvent)                      \
  X(StreamWriteValue32)                   \
  X(StreamWriteValue64)                   \
  X(EventCreate)                          \
  X(EventDestroy)                         \
  X(EventRecord)                          \
  X(EventQuery)                           \
  X(LibraryLoadData)                      \
  X(LibraryUnload)                        \
  X(LibraryGetKernel)                     \
  X(LibraryGetGlobal)                     \
  X(KernelGetFunction)                    \
  X(ModuleGetGlobal)                      \
  X(LaunchKernel)                         \
  X(ThreadExchangeStreamCaptureMode)

/// Functions that older drivers lack; nullptr there.
#define HEDDLE_OPTIONAL_DRIVER_FUNCTIONS(X) X(FuncLoad)

/// Functions whose present signature came with CUDA 13.0; nullptr in older drivers. Older toolkits do not declare it.
#if CUDA_VERSION >= 13000
#define HEDDLE_DRIVER_FUNCTIONS_OF_13(X) X(MemcpyBatchAsync)
#else
#define HEDDLE_DRIVER_FUNCTIONS_OF_13(X)
#endif

namespace heddle::cuda {

/// The table of functions. Members are named as the driver names them, so that its documentation is theirs.
struct Driver {
#define HEDDLE_DRIVER_MEMBER(NAME) decltype(&::cu##NAME) NAME = nullptr;
  HEDDLE_DRIVER_FUNCTIONS(HEDDLE_DRIVER_MEMBER)
  HEDDLE_OPTIONAL_DRIVER_FUNCTIONS(HEDDLE_DRIVER_MEMBER)
  HEDDLE_DRIVER_FUNCTIONS_OF_13(HEDDLE_DRIVER_MEMBER)
#undef HEDDLE_DRIVER_MEMBER
};

/// The driver, opened and initialised at the first call, for the life of the process. kNotSupported, with a sentence
/// for the user and always the same, when there is none, it is too old, or it has no GPU.
Status get_driver(const Driver** driver);

/// Replaces the driver for tests; nullptr brings the real one back. Not while anything uses the former.
void set_driver_for_tests(const Driver* driver);

/// The status of a failed call: "cuMemCreate(<values>): CUDA_ERROR_OUT_OF_MEMORY: out of memory". The code follows the
/// error: kOutOfMemory, kNotSupported, else kInternal.
[[gnu::format(printf, 4, 5)]] Status cuda_error(const Driver& driver, CUresult result, const char* call,
                                                const char* pattern, ...);

/// A device pointer as an address and back: one number in a unified address space.
inline CUdeviceptr device_pointer(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

}  // namespace heddle::cuda
