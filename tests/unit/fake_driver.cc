#include "tests/unit/fake_driver.h"

#include "device/access.h"
#include "device/half_convert.h"
#include "device/internal_area.h"
#include "device/signal.h"
#include "device/wait.h"

namespace heddle::test {
namespace {

void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(at); }

constexpr auto kFabricHandlesSupported = static_cast<CUdevice_attribute>(128);

template <class Task>
Task task_of(const std::vector<char>& bytes) {
  Task task;
  std::memcpy(&task, bytes.data(), sizeof task);
  return task;
}

template <class T>
T combine(uint32_t op, T* object, T operand, T compare) {
  switch (op) {
    case 0:
      return device::load_relaxed(object);
    case 1:
    case 2:
      return device::atomic_exchange(object, operand);
    case 3:
      return device::atomic_compare_exchange(object, compare, operand);
    case 4:
      return device::atomic_fetch_add(object, operand);
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (op == 5) return device::atomic_fetch_and(object, operand);
    if (op == 6) return device::atomic_fetch_or(object, operand);
    return device::atomic_fetch_xor(object, operand);
  }
  std::abort();
}

template <class T>
uint64_t atomic(const AtomicTask& task) {
  using Word = device::Word<T>;
  const T old = combine(task.op, static_cast<T*>(task.object), device::from_word<T>(static_cast<Word>(task.operand)),
                        device::from_word<T>(static_cast<Word>(task.compare)));
  return device::to_word(old);
}

template <class T>
void wait(const WaitTask& task) {
  const auto* variables = static_cast<const T*>(task.variables);
  const auto* references = static_cast<const T*>(task.references);
  auto pause = [] {
    std::this_thread::yield();
    return true;
  };
  if (references != nullptr) {
    device::wait_until_all(variables, task.count, task.status, task.cmp, references, pause);
  } else {
    device::wait_until_all(variables, task.count, task.status, task.cmp,
                           device::OneValue<T>{static_cast<T>(task.reference)}, pause);
  }
}

void barrier(const device::HeapView& view) {
  const device::InternalArea area(static_cast<uint64_t>(view.n_pes));
  const auto word = [&](uint64_t offset) { return reinterpret_cast<uint64_t*>(view.my_heap + offset); };
  const uint64_t arrival = device::load_relaxed(word(area.device_epoch())) + 1;
  for (int pe = 0; pe < view.n_pes; ++pe) {
    device::store_release(device::translate(view, word(area.device_slot(static_cast<uint64_t>(view.my_pe))), pe),
                          arrival);
  }
  for (int pe = 0; pe < view.n_pes; ++pe) {
    while (device::load_acquire(word(area.device_slot(static_cast<uint64_t>(pe)))) < arrival) std::this_thread::yield();
  }
  device::store_relaxed(word(area.device_epoch()), arrival);
}

}  // namespace

void FakeCuda::run(const std::string& name, const std::vector<char>& bytes, const device::DeviceState& state) {
  if (name == "heddle_store") {
    const auto task = task_of<StoreTask>(bytes);
    const uint64_t words[2] = {task.low, task.high};
    const auto to = reinterpret_cast<uintptr_t>(task.destination);
    if (task.unit == 0 || task.unit > 8 || (to | task.bytes) % task.unit != 0) std::abort();
    std::memcpy(task.destination, words, task.bytes);
  } else if (name == "heddle_copy_units" || name == "heddle_copy") {
    const auto task = task_of<CopyTask>(bytes);
    const auto sides = reinterpret_cast<uintptr_t>(task.destination) | reinterpret_cast<uintptr_t>(task.source);
    if (name == "heddle_copy_units" && (task.unit == 0 || (sides | task.bytes) % task.unit != 0)) std::abort();
    std::memmove(task.destination, task.source, task.bytes);
    if (task.signal != nullptr) device::signal_release(task.signal, task.value, task.signal_op);
  } else if (name == "heddle_signal") {
    const auto task = task_of<CopyTask>(bytes);
    device::signal_release(task.signal, task.value, task.signal_op);
  } else if (name == "heddle_strided") {
    const auto task = task_of<StridedTask>(bytes);
    for (uint64_t i = 0; i < task.count; ++i) {
      std::memcpy(static_cast<char*>(task.destination) + i * task.destination_stride * task.element,
                  static_cast<const char*>(task.source) + i * task.source_stride * task.element, task.element);
    }
  } else if (name == "heddle_atomic") {
    const auto task = task_of<AtomicTask>(bytes);
    const uint64_t old = task.type == 0   ? atomic<uint32_t>(task)
                         : task.type == 1 ? atomic<uint64_t>(task)
                         : task.type == 2 ? atomic<device::Half>(task)
                         : task.type == 3 ? atomic<float>(task)
                                          : atomic<double>(task);
    if (task.result != nullptr) *task.result = old;
  } else if (name == "heddle_wait") {
    const auto task = task_of<WaitTask>(bytes);
    if (task.element == 2) return task.is_signed != 0 ? wait<int16_t>(task) : wait<uint16_t>(task);
    if (task.element == 4) return task.is_signed != 0 ? wait<int32_t>(task) : wait<uint32_t>(task);
    return task.is_signed != 0 ? wait<int64_t>(task) : wait<uint64_t>(task);
  } else if (name == "heddle_barrier") {
    barrier(state.view);
  } else {
    std::abort();
  }
}

CUresult FakeCuda::launch(Kernel& kernel, CUstream stream, void** parameters) {
  static const std::map<std::string, size_t> kSizes = {
      {"heddle_store", sizeof(StoreTask)},     {"heddle_copy_units", sizeof(CopyTask)},
      {"heddle_copy", sizeof(CopyTask)},       {"heddle_signal", sizeof(CopyTask)},
      {"heddle_strided", sizeof(StridedTask)}, {"heddle_atomic", sizeof(AtomicTask)},
      {"heddle_wait", sizeof(WaitTask)},       {"heddle_barrier", 0},
  };
  const size_t size = kSizes.at(kernel.name);
  std::vector<char> task(size);
  if (size > 0) std::memcpy(task.data(), parameters[0], size);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++launches_[kernel.name];
  }
  of(stream).push([&kernel, task] { run(kernel.name, task, kernel.image->state); });
  return CUDA_SUCCESS;
}

CUresult FakeCuda::copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  if (of(stream).is_captured()) {  // at each launch, whatever the memory
    of(stream).push([=] { std::memmove(pointer(to), pointer(from), bytes); });
  } else if (kind_of(to) == 0) {  // pageable: complete on return
    of(stream).drain();
    std::memmove(pointer(to), pointer(from), bytes);
  } else if (kind_of(from) == 0) {  // pageable: read on return
    const auto* const begin = static_cast<const char*>(pointer(from));
    of(stream).push(
        [to, data = std::vector<char>(begin, begin + bytes)] { std::memcpy(pointer(to), data.data(), data.size()); });
  } else {
    of(stream).push([=] { std::memmove(pointer(to), pointer(from), bytes); });
  }
  return CUDA_SUCCESS;
}

CUresult FakeCuda::copy_2d(const CUDA_MEMCPY2D& shape, CUstream stream) {
  const auto is_host = [](CUmemorytype type) { return type == CU_MEMORYTYPE_HOST; };
  const char* const from = is_host(shape.srcMemoryType) ? static_cast<const char*>(shape.srcHost)
                                                        : static_cast<char*>(pointer(shape.srcDevice));
  char* const to =
      is_host(shape.dstMemoryType) ? static_cast<char*>(shape.dstHost) : static_cast<char*>(pointer(shape.dstDevice));
  const auto is_pageable = [this](const void* at) { return kind_of(reinterpret_cast<uintptr_t>(at)) == 0; };
  if (is_host(shape.srcMemoryType) != is_pageable(from) || is_host(shape.dstMemoryType) != is_pageable(to)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (shape.srcPitch < shape.WidthInBytes || shape.dstPitch < shape.WidthInBytes) return CUDA_ERROR_INVALID_VALUE;
  if (std::max(shape.srcPitch, shape.dstPitch) > static_cast<size_t>(traits.max_pitch)) return CUDA_ERROR_INVALID_VALUE;
  const auto move = [=] {
    for (size_t row = 0; row < shape.Height; ++row) {
      std::memcpy(to + row * shape.dstPitch, from + row * shape.srcPitch, shape.WidthInBytes);
    }
  };
  if (of(stream).is_captured()) return of(stream).push(move), CUDA_SUCCESS;
  of(stream).drain();
  move();
  return CUDA_SUCCESS;
}

// Functions without captures: the one object is FakeCuda::the().
FakeCuda::FakeCuda() {
  cuda::Driver& d = driver_;
  add_memory();
  d.Init = [](unsigned) { return CUDA_SUCCESS; };
  d.DriverGetVersion = [](int* version) { return *version = 13000, CUDA_SUCCESS; };
  d.GetErrorName = [](CUresult result, const char** name) {
    *name = result == CUDA_ERROR_OUT_OF_MEMORY     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == CUDA_ERROR_INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT"
            : result == CUDA_ERROR_NOT_PERMITTED   ? "CUDA_ERROR_NOT_PERMITTED"
            : result == CUDA_ERROR_INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
                                                   : "CUDA_ERROR_OTHER";
    return CUDA_SUCCESS;
  };
  d.GetErrorString = [](CUresult, const char** text) { return *text = "a fake failure", CUDA_SUCCESS; };
  d.DeviceGetCount = [](int* count) { return *count = the().traits.devices, CUDA_SUCCESS; };
  d.DeviceGet = [](CUdevice* device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; };
  d.DeviceGetName = [](char* name, int size, CUdevice) {
    std::strncpy(name, the().traits.name.c_str(), static_cast<size_t>(size) - 1);
    return CUDA_SUCCESS;
  };
  d.DeviceGetUuid = [](CUuuid* uuid, CUdevice device) {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(16 * device + i + 1);
    return CUDA_SUCCESS;
  };
  d.DeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice device) {
    if (attribute == static_cast<CUdevice_attribute>(133)) {  // CU_DEVICE_ATTRIBUTE_MPS_ENABLED
      *value = the().traits.mps ? 1 : 0;
      return the().traits.knows_mps ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (attribute == kFabricHandlesSupported) return *value = the().traits.fabric_attribute ? 1 : 0, CUDA_SUCCESS;
    switch (attribute) {
      case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        *value = the().traits.vmm && the().traits.without_vmm.count(device) == 0 ? 1 : 0;
        break;
      case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        *value = the().traits.stream_writes ? 1 : 0;
        break;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        break;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        break;
      case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
        *value = the().traits.max_pitch;
        break;
      default:
        *value = 1;
    }
    return CUDA_SUCCESS;
  };
  d.DeviceCanAccessPeer = [](int* can, CUdevice from, CUdevice to) {
    // No device is a peer of itself.
    return *can = the().traits.peer_access && from != to ? 1 : 0, the().check_free("DeviceCanAccessPeer");
  };
  d.DeviceGetP2PAttribute = [](int* value, CUdevice_P2PAttribute, CUdevice, CUdevice) {
    return *value = the().traits.native_atomics ? 1 : 0, CUDA_SUCCESS;
  };
  d.DevicePrimaryCtxRetain = [](CUcontext* context, CUdevice device) {
    if (const CUresult r = the().check_free("DevicePrimaryCtxRetain"); r != CUDA_SUCCESS) return r;
    const std::lock_guard<std::mutex> lock(the().mutex_);
    ++the().contexts_[device].retained;
    *context = reinterpret_cast<CUcontext>(&the().contexts_[device]);
    return CUDA_SUCCESS;
  };
  d.DevicePrimaryCtxRelease = [](CUdevice device) {
    const std::lock_guard<std::mutex> lock(the().mutex_);
    return --the().contexts_[device].retained < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
  };
  d.DevicePrimaryCtxGetState = [](CUdevice device, unsigned* flags, int* active) {
    const std::lock_guard<std::mutex> lock(the().mutex_);
    *flags = 0;
    *active = the().contexts_[device].retained > 0 ? 1 : 0;
    return CUDA_SUCCESS;
  };
  d.CtxGetCurrent = [](CUcontext* context) {
    *context = stack().empty() ? nullptr : reinterpret_cast<CUcontext>(stack().back());
    return CUDA_SUCCESS;
  };
  d.CtxPushCurrent = [](CUcontext context) {
    stack().push_back(reinterpret_cast<Context*>(context));
    return CUDA_SUCCESS;
  };
  d.CtxPopCurrent = [](CUcontext* context) {
    if (stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *context = reinterpret_cast<CUcontext>(stack().back());
    stack().pop_back();
    return CUDA_SUCCESS;
  };
  d.CtxGetDevice = [](CUdevice* device) {
    if (stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *device = stack().back()->ordinal;
    return CUDA_SUCCESS;
  };
  d.MemcpyAsync = [](CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    if (const CUresult r = the().check("MemcpyAsync"); r != CUDA_SUCCESS) return r;
    if (the().copies_left == 0) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (the().copies_left > 0) --the().copies_left;
    ++the().copied;
    return the().copy(to, from, bytes, stream);
  };
#if CUDA_VERSION >= 13000
  d.MemcpyBatchAsync = [](CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                          CUmemcpyAttributes* attributes, size_t* first, size_t kinds, CUstream stream) {
    if (!the().traits.batches) return CUDA_ERROR_NOT_SUPPORTED;
    if (const CUresult r = the().check("MemcpyBatchAsync"); r != CUDA_SUCCESS) return r;
    if (stream == nullptr || count == 0 || kinds != 1 || *first != 0) return CUDA_ERROR_INVALID_VALUE;
    if (of(stream).spoils_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    for (size_t i = count; i-- > 0;) {  // in no particular order
      const bool now = the().kind_of(from[i]) == 0;
      if (now != (attributes->srcAccessOrder == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      ++the().batched;
      if (const CUresult r = the().copy(to[i], from[i], bytes[i], stream); r != CUDA_SUCCESS) return r;
    }
    return CUDA_SUCCESS;
  };
#endif
  d.MemcpyHtoDAsync = [](CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
    const CUresult r = the().check("MemcpyHtoDAsync");
    // The state of kernels lies in memory that only a copy to the device may name.
    if (r != CUDA_SUCCESS) return r;
    of(stream).drain();
    std::memcpy(pointer(to), from, bytes);
    return CUDA_SUCCESS;
  };
  d.MemcpyDtoHAsync = [](void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
    const CUresult r = the().check("MemcpyDtoHAsync");
    return r != CUDA_SUCCESS ? r : the().copy(reinterpret_cast<CUdeviceptr>(to), from, bytes, stream);
  };
  d.Memcpy2DAsync = [](const CUDA_MEMCPY2D* shape, CUstream stream) {
    const CUresult r = the().check("Memcpy2DAsync");
    return r != CUDA_SUCCESS ? r : the().copy_2d(*shape, stream);
  };
  d.MemsetD8Async = [](CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream) {
    if (const CUresult r = the().check("MemsetD8Async"); r != CUDA_SUCCESS) return r;
    of(stream).push([=] { std::memset(pointer(at), value, bytes); });
    return CUDA_SUCCESS;
  };
  d.PointerGetAttributes = [](unsigned count, CUpointer_attribute* attributes, void** values, CUdeviceptr at) {
    const int kind = the().kind_of(at);
    for (unsigned i = 0; i < count; ++i) {  // zeroes for memory that it does not know
      if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
        *static_cast<unsigned*>(values[i]) = kind == 2 ? CU_MEMORYTYPE_DEVICE : kind == 1 ? CU_MEMORYTYPE_HOST : 0;
      } else if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
        *static_cast<int*>(values[i]) = kind == 0 ? 0 : the().ordinal_of(at);
      } else if (attributes[i] == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR) {
        *static_cast<CUdeviceptr*>(values[i]) = the().mapping_at(at).first;
      } else if (attributes[i] == CU_POINTER_ATTRIBUTE_MAPPING_SIZE) {
        *static_cast<size_t*>(values[i]) = the().mapping_at(at).second;
      } else {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    return CUDA_SUCCESS;
  };
  d.StreamCreate = [](CUstream* stream, unsigned flags) {
    if (const CUresult r = the().check("StreamCreate"); r != CUDA_SUCCESS) return r;
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    auto* const fresh = new Stream;
    fresh->context = stack().back();
    *stream = reinterpret_cast<CUstream>(fresh);
    const std::lock_guard<std::mutex> lock(the().mutex_);
    the().streams_.insert(*stream);
    return CUDA_SUCCESS;
  };
  d.StreamDestroy = [](CUstream stream) {
    {
      const std::lock_guard<std::mutex> lock(the().mutex_);
      if (the().streams_.erase(stream) == 0) return CUDA_ERROR_INVALID_HANDLE;
    }
    delete &of(stream);
    return CUDA_SUCCESS;
  };
  d.StreamSynchronize = [](CUstream stream) {
    if (const CUresult r = the().check("StreamSynchronize"); r != CUDA_SUCCESS) return r;
    if (spoils_own_capture() || of(stream).spoils_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    of(stream).drain();
    return CUDA_SUCCESS;
  };
  d.StreamGetCtx = [](CUstream stream, CUcontext* context) {
    return *context = reinterpret_cast<CUcontext>(of(stream).context), the().check_free("StreamGetCtx");
  };
  d.StreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) {
    *status = of(stream).is_captured() ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  d.StreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
    Event& e = *reinterpret_cast<Event*>(event);
    uint64_t recorded = 0;
    {
      const std::lock_guard<std::mutex> lock(e.mutex);
      recorded = e.recorded;
    }
    of(stream).push([&e, recorded] {
      std::unique_lock<std::mutex> lock(e.mutex);
      e.changed.wait(lock, [&] { return e.reached >= recorded; });
    });
    return CUDA_SUCCESS;
  };
  d.StreamWriteValue64 = [](CUstream stream, CUdeviceptr at, cuuint64_t value, unsigned flags) {
    if (const CUresult r = the().check_write(flags); r != CUDA_SUCCESS) return r;
    if (const CUresult r = the().check("StreamWriteValue64"); r != CUDA_SUCCESS) return r;
    if (of(stream).spoils_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    ++the().writes;
    of(stream).push([=] { device::store_release(static_cast<uint64_t*>(pointer(at)), static_cast<uint64_t>(value)); });
    return CUDA_SUCCESS;
  };
  d.StreamWriteValue32 = [](CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags) {
    if (const CUresult r = the().check_write(flags); r != CUDA_SUCCESS) return r;
    if (const CUresult r = the().check("StreamWriteValue32"); r != CUDA_SUCCESS) return r;
    if (of(stream).spoils_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    ++the().writes;
    of(stream).push([=] { device::store_release(static_cast<uint32_t*>(pointer(at)), static_cast<uint32_t>(value)); });
    return CUDA_SUCCESS;
  };
  d.EventCreate = [](CUevent* event, unsigned) {
    return *event = reinterpret_cast<CUevent>(new Event), the().check("EventCreate");
  };
  d.EventDestroy = [](CUevent event) { return delete reinterpret_cast<Event*>(event), CUDA_SUCCESS; };
  d.EventQuery = [](CUevent) { return CUDA_SUCCESS; };
  d.EventRecord = [](CUevent event, CUstream stream) {
    Event& e = *reinterpret_cast<Event*>(event);
    uint64_t number = 0;
    {
      const std::lock_guard<std::mutex> lock(e.mutex);
      number = ++e.recorded;
    }
    of(stream).push([&e, number] {
      const std::lock_guard<std::mutex> lock(e.mutex);
      e.reached = number;
      e.changed.notify_all();
    });
    return CUDA_SUCCESS;
  };
  d.LibraryLoadData = [](CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*,
                         void**, unsigned) {
    uint32_t magic = 0;
    std::memcpy(&magic, code, sizeof magic);
    if (magic != 0xba55ed50) return CUDA_ERROR_INVALID_IMAGE;  // what every fat binary begins with
    *library = reinterpret_cast<CUlibrary>(new Library);
    const std::lock_guard<std::mutex> lock(the().mutex_);
    ++the().libraries_;
    return CUDA_SUCCESS;
  };
  d.LibraryUnload = [](CUlibrary library) {
    delete reinterpret_cast<Library*>(library);
    const std::lock_guard<std::mutex> lock(the().mutex_);
    --the().libraries_;
    return CUDA_SUCCESS;
  };
  d.LibraryGetKernel = [](CUkernel* kernel, CUlibrary library, const char* name) {
    static std::mutex mutex;
    static std::vector<std::unique_ptr<Kernel>> all;
    const std::lock_guard<std::mutex> lock(mutex);
    all.push_back(std::make_unique<Kernel>(Kernel{name, reinterpret_cast<Library*>(library)}));
    *kernel = reinterpret_cast<CUkernel>(all.back().get());
    return CUDA_SUCCESS;
  };
  d.LibraryGetGlobal = [](CUdeviceptr* at, size_t* bytes, CUlibrary library, const char* name) {
    if (std::string(name) != "heddle_device_state_d") return CUDA_ERROR_NOT_FOUND;
    *at = reinterpret_cast<CUdeviceptr>(&reinterpret_cast<Library*>(library)->state);
    *bytes = sizeof(device::DeviceState);
    return the().check("LibraryGetGlobal");
  };
  d.KernelGetFunction = [](CUfunction* function, CUkernel kernel) {
    return *function = reinterpret_cast<CUfunction>(kernel), the().check("KernelGetFunction");
  };
  d.ModuleGetGlobal = [](CUdeviceptr*, size_t*, CUmodule, const char*) { return CUDA_ERROR_NOT_FOUND; };
  d.LaunchKernel = [](CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      CUstream stream, void** parameters, void**) {
    if (const CUresult r = the().check("LaunchKernel"); r != CUDA_SUCCESS) return r;
    return the().launch(*reinterpret_cast<Kernel*>(function), stream, parameters);
  };
  d.ThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* mode) {
    return std::swap(*mode, capture_mode()), CUDA_SUCCESS;
  };
}

}  // namespace heddle::test
