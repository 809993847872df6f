// What a kernel knows of its world: one small copy in constant memory per translation unit, filled by libheddle.
#pragma once

#include "device/failed_grids.h"
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
  kBadBlock,     ///< a warp group of a block of `bytes` threads
  kGridFailed    ///< a wait or barrier of a grid of which a thread had failed before
};

/// Counts the changes of what library and kernels share: the structures below, and the numbers above.
constexpr uint32_t kStateVersion = 8;
/// What a unit's receiver returns for a state of another version.
constexpr int kOtherVersion = -1;

/// In DeviceErrorRecord::exit, beside the status in its lower half.
constexpr uint64_t kExitAsked = uint64_t{1} << 32;

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
  // What follows is no part of the one failure above.
  uint64_t exit;  ///< kExitAsked and a status once a kernel has called nvshmem_global_exit; else 0
  uint64_t failed_grids[kFailedGrids];  ///< see failed_grids.h
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

/// All that device code needs; the same bytes in every translation unit. A fresh state means: no world.
struct DeviceState {
  uint32_t version = kStateVersion;  ///< of whoever made it; first, so that every version finds it
  HeapView view;                     ///< of the heap that kernels reach
  const uint32_t* poison;            ///< non-zero once a PE is lost: 1 + that PE. In mapped host memory; nullptr: none
  DeviceErrorRecord* errors;         ///< in mapped host memory
  uint64_t wait_timeout_ns;          ///< of waits in kernels; 0: none
  uint32_t tma_policy;               ///< 0 DISABLE, 1 ENABLE, 2 FORCE (NVSHMEM_TMA_POLICY)
  uint32_t node_my_pe;               ///< team queries of NVSHMEMX_TEAM_NODE
  uint32_t node_n_pes;
  BlockSlot* block_slots;  ///< in memory of this device; nullptr: no regions and no donated shared memory
  uint32_t slot_count;     ///< a power of two
  uint64_t* meetings;      ///< arrivals of warp groups, a line for each predefined team; in memory of this device
  // Teams of PEs that share GPUs: such PEs need not lie at one stride, so their members are listed.
  uint32_t same_gpu_n_pes;     ///< NVSHMEMI_TEAM_SAME_GPU
  uint32_t gpu_leaders_n_pes;  ///< NVSHMEMI_TEAM_GPU_LEADERS; 0 when this PE is none of them
  const int32_t* gpu_teams;    ///< the members of the one, then of the other, ascending; in memory of this device.
                               ///< nullptr: every PE has a GPU of its own
};
}  // namespace heddle::device

#if !defined(__CUDACC_RTC__)
extern "C" {
/// What a translation unit with device code tells of itself. `version` stays the first member for ever.
struct heddle_unit {
  uint32_t version;                    ///< kStateVersion of the headers that it was compiled with
  uint32_t state_bytes, record_bytes;  ///< of their DeviceState and DeviceErrorRecord
  /// Copies a DeviceState into the unit's constant memory with its own CUDA runtime, on the current device, and returns
  /// that runtime's error code (0: done), or kOtherVersion when the bytes or the state's version are not the unit's
  /// own; nothing is touched then. Does not wait for kernels. Where `record` is not NULL, it first moves there what
  /// kernels of the unit have recorded while there was no state (a DeviceErrorRecord, all zero when nothing).
  int (*receive)(const void* state, unsigned long state_bytes, void* record, unsigned long record_bytes);
};
/// Called by a static constructor of every translation unit with device code; the unit must stay until it unregisters.
/// Its receiver is called at init, at finalize (a fresh state), when the heap has grown, and at once when the world
/// exists already. With -rdc=true a receiver can fail until the last translation unit of its program or library has
/// registered: those that failed are called again at every later registration and at every later change of state.
/// Init fails when a unit's version is not the library's. A unit that comes after init is then told of in an error, and
/// never gets a state.
void heddle_register_unit(const struct heddle_unit* unit);
/// Called by the matching static destructor (a library that is closed with dlclose).
void heddle_unregister_unit(const struct heddle_unit* unit);
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
static int receive_state(const void* state, unsigned long bytes, void* record, unsigned long record_bytes) {
  if (bytes != sizeof(DeviceState) || static_cast<const DeviceState*>(state)->version != kStateVersion ||
      (record != nullptr && record_bytes != sizeof(DeviceErrorRecord))) {
    return kOtherVersion;
  }
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

struct UnitRegistration {
  explicit UnitRegistration(const heddle_unit* unit) : unit_(unit) { heddle_register_unit(unit_); }
  ~UnitRegistration() { heddle_unregister_unit(unit_); }
  const heddle_unit* unit_;
};
static const heddle_unit this_unit = {kStateVersion, sizeof(DeviceState), sizeof(DeviceErrorRecord), &receive_state};
static UnitRegistration this_registration(&this_unit);
#endif
}  // namespace heddle::device
#endif
