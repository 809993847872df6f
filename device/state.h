// What a kernel knows of its world: one small copy in constant memory per translation unit, filled by libheddle.
#pragma once

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
  kNotInitialized,
  kBadArgument,
  kBadCompare,   ///< `bytes`: the comparison
  kBadSignalOp,  ///< `bytes`: the operation
  kBadStride,    ///< `bytes`: the stride
  kOverlap,      ///< a counted put whose counter lies in its destination
  kNullBuffer,   ///< a buffer of the caller's own is NULL
  kGlobalExit    ///< no failure: a kernel called nvshmem_global_exit(`bytes`)
};

/// Grids that are remembered as failed at a time; their numbers choose the place.
constexpr uint32_t kFailedGrids = 16;

/// The first failure of a kernel of this process, in host memory that kernels can write. The host logs it and clears
/// it.
struct DeviceErrorRecord {
  uint32_t claimed;                ///< 0 free; the thread that changes it to 1 writes the rest
  uint32_t complete;               ///< 1 when the rest is written (release)
  uint32_t error;                  ///< a DeviceError
  int32_t pe;                      ///< PE it is about, or -1
  uint64_t address;                ///< symmetric address or waited-for variable
  uint64_t bytes;                  ///< from that address on; what else it holds is said at each DeviceError
  uint32_t block[3], thread[3];    ///< who failed
  uint32_t blocks[3], threads[3];  ///< dimensions of the grid and of its blocks
  uint64_t grid;                   ///< the grid's number (%gridid)
  char call[48];                   ///< name of the device call
  /// Numbers of the grids that have failed lately, plus 1: waits of the same grid end, since what they wait for may
  /// never come. Not part of the one failure above; the host clears an entry after some seconds.
  uint64_t failed_grids[kFailedGrids];
};

/// What a block of a running kernel has registered: donated shared memory and an open region. In device memory, zeroed
/// when the table is made; a block that leaves something registered only wastes its slot.
struct alignas(16) BlockSlot {
  uint64_t owner;       ///< grid and block, 0 free; claimed by compare-exchange
  uint32_t smem;        ///< shared-memory address of donated memory: read with the owner, in one load
  uint32_t smem_bytes;  ///< of donated memory, 0 none
  uint64_t region;      ///< handle of the open region, 0 none
  uint32_t hints;       ///< of the open region
  uint32_t regions;     ///< how many regions this slot has seen, so that handles differ
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
  uint32_t version;        ///< kStateVersion of the library that filled it
  BlockSlot* block_slots;  ///< in memory of this device; nullptr: no regions and no donated shared memory
  uint32_t slot_count;     ///< a power of two
  // Teams of PEs that share GPUs: such PEs need not lie at one stride, so their members are listed.
  uint32_t same_gpu_n_pes;     ///< NVSHMEMI_TEAM_SAME_GPU
  uint32_t gpu_leaders_n_pes;  ///< NVSHMEMI_TEAM_GPU_LEADERS; 0 when this PE is none of them
  const int32_t* gpu_teams;    ///< the members of the one, then of the other, ascending; in memory of this device.
                               ///< nullptr: every PE has a GPU of its own
};
constexpr uint32_t kStateVersion = 7;

}  // namespace heddle::device

#if !defined(__CUDACC_RTC__)
extern "C" {
/// A translation unit's way to receive the state: copies `bytes` from `state` into its constant memory with its own
/// CUDA runtime, on the current device, and returns that runtime's error code (0: done). Does not wait for kernels.
/// Where `record` is not NULL, it first moves there what kernels of the unit have recorded while there was no state (a
/// DeviceErrorRecord, all zero when nothing).
typedef int (*heddle_state_receiver)(const void* state, unsigned long bytes, void* record);
/// Called by a static constructor of every translation unit with device code. The receiver is called at init, at
/// finalize (a zeroed state), when the heap has grown, and at once when the world exists already. With -rdc=true a
/// receiver can fail until the last translation unit of its program or library has registered: those that failed are
/// called again at every later registration and at every later change of state.
void heddle_register_state(heddle_state_receiver receiver);
/// Called by the matching static destructor (a library that is closed with dlclose).
void heddle_unregister_state(heddle_state_receiver receiver);
}
#endif

// ---- the state of this translation unit

#if defined(__CUDACC_RTC__) || defined(HEDDLE_MODULE)
// A module that is loaded by hand: nvshmemx_cumodule_init and nvshmemx_culibrary_init find the state by this name.
// Define HEDDLE_MODULE for cubins and PTX made by nvcc.
extern "C" {
#if defined(__CUDACC_RDC__)
inline  // one for all translation units that are linked into the module
#endif
    __constant__ heddle::device::DeviceState heddle_device_state_d = {};
#if defined(__CUDACC_RDC__)
inline
#endif
    __device__ heddle::device::DeviceErrorRecord heddle_device_record_d = {};
}
namespace heddle::device {
HEDDLE_DEVICE HEDDLE_INLINE const DeviceState& device_state() { return heddle_device_state_d; }
HEDDLE_DEVICE HEDDLE_INLINE DeviceErrorRecord* own_record() { return &heddle_device_record_d; }
}  // namespace heddle::device
#elif defined(__CUDACC__)
namespace heddle::device {
static __constant__ DeviceState this_unit_state = {};
static __device__ DeviceErrorRecord this_unit_record = {};  // for failures while there is no state
#if defined(__CUDA_ARCH__)
HEDDLE_DEVICE HEDDLE_INLINE const DeviceState& device_state() { return this_unit_state; }
HEDDLE_DEVICE HEDDLE_INLINE DeviceErrorRecord* own_record() { return &this_unit_record; }
#else
/// Own stream and relaxed capture: neither waits for running kernels nor disturbs a capture in another thread.
static int receive_state(const void* state, unsigned long bytes, void* record) {
  if (bytes != sizeof(DeviceState)) return cudaErrorInvalidValue;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaError_t status = cudaThreadExchangeStreamCaptureMode(&mode);
  if (status != cudaSuccess) return status;
  cudaStream_t stream = nullptr;
  status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (status == cudaSuccess) {
    if (record != nullptr) {
      const DeviceErrorRecord none{};
      status = cudaMemcpyFromSymbolAsync(record, this_unit_record, sizeof none, 0, cudaMemcpyDeviceToHost, stream);
      if (status == cudaSuccess) {
        status = cudaMemcpyToSymbolAsync(this_unit_record, &none, sizeof none, 0, cudaMemcpyHostToDevice, stream);
      }
    }
    if (status == cudaSuccess) {
      status = cudaMemcpyToSymbolAsync(this_unit_state, state, bytes, 0, cudaMemcpyHostToDevice, stream);
    }
    const cudaError_t done = cudaStreamSynchronize(stream);
    if (status == cudaSuccess) status = done;
    (void)cudaStreamDestroy(stream);
  }
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (status != cudaSuccess) (void)cudaGetLastError();  // a failure here is the library's to tell, not the program's
  return status;
}

struct StateRegistration {
  explicit StateRegistration(heddle_state_receiver receiver) : receiver_(receiver) { heddle_register_state(receiver_); }
  ~StateRegistration() { heddle_unregister_state(receiver_); }
  heddle_state_receiver receiver_;
};
static StateRegistration state_registration(&receive_state);
#endif
}  // namespace heddle::device
#endif
