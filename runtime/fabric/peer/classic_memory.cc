#include "runtime/fabric/peer/classic_memory.h"

#include <unistd.h>

#include <cinttypes>
#include <cstring>

#include "runtime/fabric/peer/peer_memory.h"

namespace heddle::peer {
namespace {

/// The bytes of a ticket.
struct IpcTicket {
  CUipcMemHandle handle;
  int32_t pid;  ///< of the process that made the memory, which cannot open it
  uint32_t reserved;
};
static_assert(sizeof(IpcTicket) <= mapped::Ticket::kBytes);

}  // namespace

Status ClassicMemory::reserve_addresses(uint64_t bytes, uint64_t, std::byte**) {
  return error(Code::kNotSupported, "%" PRIu64 " bytes of addresses: cudaMalloc chooses them itself", bytes);
}

Status ClassicMemory::allocate(uint64_t bytes, Handle* handle) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  CUdeviceptr made = 0;
  const CUresult result = driver_.MemAlloc(&made, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return out_of_memory(*gpu_, "cuMemAlloc", bytes,
                         "without CUDA VMM a heap is one allocation of its full size: lower NVSHMEM_SYMMETRIC_SIZE, "
                         "free some, or run fewer processes on this GPU");
  }
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver_, result, "cuMemAlloc", "%" PRIu64 " bytes of %s", bytes, gpu_->name().c_str());
  }
  *handle = made;
  return Status::ok();
}

void ClassicMemory::release(Handle handle) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  (void)driver_.MemFree(handle);  // fails only after the driver's end, or in a context that is broken
}

Status ClassicMemory::export_memory(Handle handle, mapped::Ticket* ticket) {
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  IpcTicket body{};
  const CUresult result = driver_.IpcGetMemHandle(&body.handle, handle);
  if (result != CUDA_SUCCESS) {
    return cuda_error(driver_, result, "cuIpcGetMemHandle",
                      "memory of %s; where CUDA IPC does not work, unset NVSHMEM_DISABLE_CUDA_VMM or set "
                      "HEDDLE_FABRIC=host on all PEs",
                      gpu_->name().c_str());
  }
  body.pid = static_cast<int32_t>(getpid());
  std::memcpy(ticket->bytes, &body, sizeof body);
  ticket->has_bytes = true;
  return Status::ok();
}

Status ClassicMemory::map(std::byte** address, uint64_t, Handle handle, uint64_t) {
  *address = reinterpret_cast<std::byte*>(handle);
  return Status::ok();
}

Status ClassicMemory::map_imported(std::byte** address, uint64_t bytes, const mapped::Ticket& ticket, uint64_t) {
  if (!ticket.has_bytes) {
    return error(Code::kInternal,
                 "no CUDA IPC handle came with the message; run one version of the library on all PEs");
  }
  IpcTicket body{};
  std::memcpy(&body, ticket.bytes, sizeof body);
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  CUdeviceptr opened = 0;
  const CUresult result = driver_.IpcOpenMemHandle(&opened, body.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (result != CUDA_SUCCESS) {
    const bool own = body.pid == static_cast<int32_t>(getpid());
    return cuda_error(driver_, result, "cuIpcOpenMemHandle", "%" PRIu64 " bytes, into %s; %s", bytes,
                      gpu_->name().c_str(),
                      own ? "CUDA IPC memory cannot be opened in the process that made it: PEs that are threads of one "
                            "process need CUDA VMM (unset NVSHMEM_DISABLE_CUDA_VMM) or HEDDLE_FABRIC=host"
                          : "PEs in containers must share the host's IPC and PID name spaces");
  }
  *address = reinterpret_cast<std::byte*>(opened);
  opened_.insert(*address);
  return Status::ok();
}

Status ClassicMemory::unmap(std::byte* address, uint64_t bytes) {
  // Own memory stays where it is until release(); what could not be opened needs no closing.
  if (opened_.erase(address) == 0) return Status::ok();
  const ContextScope scope(*gpu_);
  const RelaxedCapture relaxed(*gpu_);
  const CUresult result = driver_.IpcCloseMemHandle(cuda::device_pointer(address));
  if (result == CUDA_SUCCESS) return Status::ok();
  return cuda_error(driver_, result, "cuIpcCloseMemHandle", "%" PRIu64 " bytes at %p on %s", bytes,
                    static_cast<void*>(address), gpu_->name().c_str());
}

}  // namespace heddle::peer
