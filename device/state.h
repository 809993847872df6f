// What a kernel knows of its world: one small copy in constant memory per translation unit, filled by libheddle.
#pragma once

#include <cstdint>

#include "device/handle.h"

namespace heddle::device {

/// Why a device call gave up or was refused.
enum class DeviceError : uint32_t {
  kNone = 0,
  kPeerLost,
  kTimeout,
  kBadPe,
  kBadAddress,
  kBadAlignment,
  kNotInitialized
};

/// The first failure of a kernel of this process, in host memory that kernels can write. The host logs it and clears
/// it.
struct DeviceErrorRecord {
  uint32_t claimed;   ///< 0 free; the thread that changes it to 1 writes the rest
  uint32_t complete;  ///< 1 when the rest is written (release)
  uint32_t error;     ///< a DeviceError
  int32_t pe;         ///< PE it is about, or -1
  uint64_t address;   ///< symmetric address or waited-for variable
  uint64_t bytes;
  uint32_t block[3];
  uint32_t thread[3];
  char call[40];  ///< name of the device call
};

/// All that device code needs; the same bytes in every translation unit. A zeroed state means: no world yet.
struct DeviceState {
  HeapView view;              ///< of the heap that kernels reach
  const uint32_t* poison;     ///< non-zero once a PE is lost: 1 + that PE. In mapped host memory; nullptr: none
  DeviceErrorRecord* errors;  ///< in mapped host memory
  uint64_t wait_timeout_ns;   ///< of waits in kernels; 0: none
  uint32_t tma_policy;        ///< 0 DISABLE, 1 ENABLE, 2 FORCE (NVSHMEM_TMA_POLICY)
  uint32_t node_my_pe;        ///< team queries of NVSHMEMX_TEAM_NODE
  uint32_t node_n_pes;
  uint32_t version;  ///< kStateVersion of the library that filled it
};
constexpr uint32_t kStateVersion = 1;

}  // namespace heddle::device

extern "C" {
/// A translation unit's way to receive the state: copies `bytes` from `state` into its constant memory with its own
/// CUDA runtime, and returns that runtime's error code.
typedef int (*heddle_state_receiver)(const void* state, unsigned long bytes);
/// Called by a static constructor of every translation unit with device code. The receiver is called at init, at
/// finalize (a zeroed state), when the heap has grown, and at once when the world exists already.
void heddle_register_state(heddle_state_receiver receiver);
/// Called by the matching static destructor (a library that is closed with dlclose).
void heddle_unregister_state(heddle_state_receiver receiver);
}
