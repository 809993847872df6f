// The fabric interface: logical endpoints and data operations on (endpoint id, offset).
//
// The endpoint half is shaped like the driver's cuLogicalEndpoint* functions (CUDA driver API; Programming Guide,
// Compute Fabric Transport), so that `cft` is one more implementation: ids from a reserved range, create and import
// that do not block, readiness that is polled, memory bound at offsets. The data half names a place by (id, offset)
// only. Where a fabric maps an endpoint into this process it says so with window(), and callers then load and store
// there directly: translation is base + offset, and nothing of this interface is on that path.
//
// Thread safety: calls on one fabric are serialised by the caller, except the data operations, which any thread may
// call at any time on ready endpoints, and a courier's delivery, which comes on the courier's own thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/owned.h"
#include "runtime/settings.h"
#include "runtime/status.h"

struct CUstream_st;

namespace heddle {

using EndpointId = uint32_t;  ///< local to the process, like CUlogicalEndpointId

/// A contiguous range of reserved ids; PE p's endpoint is base + p.
struct EndpointIds {
  EndpointId base = 0;
  uint32_t count = 0;
};

enum class EndpointType : uint32_t { kInvalid = 0, kUnicast = 1, kMulticast = 2 };

enum EndpointFlags : uint32_t { kEndpointFlagNone = 0, kEndpointFlagCountedOps = 1 };

/// What an endpoint is to be; the members of CUlogicalEndpointProp.
struct EndpointProperties {
  EndpointType type = EndpointType::kUnicast;
  int device = 0;     ///< owner: an index of the fabric's own; 0 on `host`
  uint64_t size = 0;  ///< bytes; a multiple of EndpointLimits::bind_alignment, at most max_size
  bool exportable = true;
  uint32_t flags = kEndpointFlagNone;
};

struct EndpointLimits {
  uint64_t bind_alignment = 0;  ///< offsets, sizes and memory offsets of binds are multiples of this
  uint64_t max_size = 0;        ///< largest endpoint of these properties, in bytes
};

/// 64 opaque bytes that name an endpoint to another process (CU_IPC_HANDLE_SIZE).
struct EndpointHandle {
  unsigned char data[64] = {};
};

using MemoryId = uint64_t;  ///< memory that a fabric allocated, like CUmemGenericAllocationHandle; 0 is none

/// What a fabric can do, for callers that choose and for heddle-info.
struct FabricCapabilities {
  bool mapped = false;          ///< endpoints appear in this process's address space (window())
  bool native_atomics = false;  ///< atomics are the memory's own, also against local loads and stores
  bool counted_puts = false;
  bool device_initiated = false;
  bool whole_endpoints = false;  ///< an endpoint is one allocation of its whole size, where address() says: it takes no
                                 ///< set_window and one bind, at offset 0
  bool device_memory = false;    ///< memory is a GPU's: host code must not load or store there, windows or not
  bool adopts_memory = false;    ///< memory of the program's can be bound (adopt())
  uint64_t memory_bytes = 0;     ///< all there is of the memory that it allocates; 0: the machine's
  uint64_t granularity = 0;      ///< smallest unit of memory, in bytes
};

/// Whether a fabric reaches a peer, and if not why, as a sentence for the user.
struct Reach {
  bool reached = false;
  std::string reason;
};

/// How heaps in GPU memory are made and reach other processes.
enum class GpuMemory : uint32_t {
  kDescriptors = 0,    ///< CUDA VMM, file descriptors
  kFabricHandles = 1,  ///< CUDA VMM, fabric handles
  kClassic = 2         ///< cudaMalloc, CUDA IPC
};

/// What a process publishes about itself so that fabrics can judge whether they reach it.
struct PeerIdentity {
  unsigned char boot_id[16];  ///< of the running kernel; equal on one host only
  int32_t pid;
  uint32_t uid;
  int32_t node;                 ///< launcher's node index, -1 unknown
  uint16_t gpu_capability;      ///< compute capability, 10 * major + minor; 0: no GPU
  uint8_t gpu_is_mig;           ///< 1: gpu_uuid names a MIG instance
  uint8_t gpu_keeps_to_itself;  ///< 1: NVSHMEM_DISABLE_P2P is set
  unsigned char gpu_uuid[16];   ///< of the GPU or, in MIG mode, of the instance; zero: no GPU
  uint16_t gpu_has_mps;         ///< 1: CUDA MPS serves this process on the GPU
  uint16_t gpu_mps_percentage;  ///< CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; 0: unset
  GpuMemory gpu_memory;         ///< of the heap, with a GPU
};

enum class SignalOp : int { kSet = 9, kAdd = 10 };  // NVSHMEM_SIGNAL_SET, NVSHMEM_SIGNAL_ADD

enum class AtomicOp : uint8_t { kFetch, kSet, kSwap, kCompareSwap, kAdd, kAnd, kOr, kXor };

/// Type of the object that an atomic works on. Signed integers use the unsigned type of their width: add wraps.
enum class AtomicType : uint8_t { kU32, kU64, kF16, kF32, kF64 };

/// What the GPU of a fabric can do with memory of its process.
enum class LocalMemory : uint8_t {
  kPageable,  ///< host memory that CUDA does not know; all memory, on fabrics without a GPU
  kKernels,   ///< kernels can load and store
  kCopies,    ///< copies reach it, kernels do not: memory of another GPU
};

class Gpu;
class Kernels;

/// Carries a fabric's own messages, and descriptors with them, to the same fabric in other PEs, in order per pair.
/// Given by the runtime (the control channel). Deliveries come on the channel's thread.
class Courier {
 public:
  virtual ~Courier() = default;
  virtual int my_pe() const = 0;
  /// Sends `bytes` (at most 4096) and, when fd >= 0, a duplicate of `fd` to `pe`. Does not wait for the receiver.
  virtual Status post(int pe, const void* message, size_t bytes, int fd) = 0;
  using Receiver = std::function<void(int pe, const unsigned char* message, size_t bytes, OwnedFd fd)>;
  /// Names the one receiver; an empty function removes it, and returns only when no delivery is running.
  virtual void receive(Receiver receiver) = 0;
};

class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual const char* name() const = 0;
  virtual FabricCapabilities capabilities() const = 0;
  /// The GPU whose memory this fabric maps; nullptr on the others.
  virtual Gpu* gpu() const { return nullptr; }
  /// The library's kernels on that GPU; nullptr without one.
  virtual Kernels* kernels() const { return nullptr; }
  /// Sentences on what it uses and what it does not, with the reason; for heddle-info.
  virtual std::vector<std::string> remarks() const { return {}; }
  /// Adds to `self` what this fabric's reach() in other PEs needs to know, e.g. the GPU.
  virtual void describe(PeerIdentity* /*self*/) const {}

  /// Whether endpoints of `peer` can be used here. Decided by boot id, node map and device identity, never by host
  /// name; importing the endpoint is the proof.
  virtual Reach reach(const PeerIdentity& self, const PeerIdentity& peer) const = 0;

  // ---- endpoints: errors as in the driver: kInvalidValue, kOutOfMemory, kNotSupported, kNotReady

  /// Reserves `count` consecutive ids. The base differs between processes.
  virtual Status reserve_ids(uint32_t count, EndpointIds* ids) = 0;
  /// Gives a range back; every endpoint in it must be destroyed first, or kInvalidValue.
  virtual Status release_ids(EndpointIds ids) = 0;

  virtual Status limits(const EndpointProperties& properties, EndpointLimits* limits) const = 0;

  /// Reserves `bytes` of inaccessible addresses for windows, from a multiple of `alignment` (a power of two) on.
  /// kOutOfMemory when the process may not have so many.
  virtual Status reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) = 0;
  /// Gives a reservation back; every endpoint with a window in it must be destroyed first.
  virtual void release_addresses(std::byte* base, uint64_t bytes) = 0;
  /// Tells a mapping fabric where endpoint `id` is to appear in this process's address space: `size` bytes of addresses
  /// that it reserved, at `window`. Call before create or import. kNotSupported elsewhere, and with whole_endpoints.
  virtual Status set_window(EndpointId id, std::byte* window, uint64_t size) = 0;
  /// Where endpoint `id` appears in this process, or nullptr when it is reached by data operations only. With
  /// whole_endpoints known once it is bound, or imported and ready.
  virtual std::byte* window(EndpointId id) const = 0;

  /// Starts making endpoint `id`; does not block. Usable once query says so.
  virtual Status create(EndpointId id, const EndpointProperties& properties) = 0;
  /// Writes the 64 bytes that name `id` to other processes. Needs no readiness.
  virtual Status export_handle(EndpointId id, EndpointHandle* handle) = 0;
  /// Starts making `id` an alias of another process's endpoint; does not block. Usable once query says so.
  virtual Status import_handle(EndpointId id, const EndpointHandle& handle) = 0;
  /// Polls ids [id, id + count): `ready` becomes true when every one is made and, for own endpoints, when every
  /// importer has seen every bind and unbind. A failure to build one surfaces here. Never blocks.
  virtual Status query(EndpointId id, uint32_t count, bool* ready) = 0;
  /// What endpoint `id` still waits for and from which PEs, for the text of a time-out; empty when nothing is known.
  virtual std::string pending(EndpointId /*id*/) const { return {}; }
  /// Removes an endpoint and its binds, not the memory. Needs no readiness.
  virtual Status destroy(EndpointId id) = 0;

  /// Allocates `bytes` (a multiple of the granularity) that can be bound and reached by peers.
  virtual Status allocate(uint64_t bytes, MemoryId* memory) = 0;
  /// Takes over memory that the program made and mapped at `address`: it can be bound like allocated memory until
  /// release(), and the program's own mapping stays as it is. `*taken`: how many of `bytes` (a multiple of the
  /// granularity) lie in the one allocation that is mapped there, from its start on; the rest takes further calls.
  /// kInvalidValue for memory that peers cannot reach, with how to make it so; kNotSupported without
  /// capabilities().adopts_memory.
  virtual Status adopt(const void* address, uint64_t bytes, MemoryId* memory, uint64_t* taken);
  /// Frees memory, or lets go of what was adopted; it must not be bound.
  virtual Status release(MemoryId memory) = 0;
  /// Where `memory` lies in this process, with capabilities().whole_endpoints; nullptr on the others.
  virtual std::byte* address(MemoryId /*memory*/) const { return nullptr; }

  /// Binds [memory_offset, memory_offset + size) of `memory` at `offset` of own endpoint `id`. Importers see it without
  /// importing again. All three are multiples of bind_alignment; the range must be inside the endpoint and free
  /// (kInvalidValue), the endpoint ready (kNotReady), and own (kNotSupported for an imported one).
  virtual Status bind(EndpointId id, uint64_t offset, MemoryId memory, uint64_t memory_offset, uint64_t size) = 0;
  /// Removes the bind at `offset`; `size` is that bind's or the exact sum of several consecutive ones. Operations must
  /// have been quiesced. Binding there again later is allowed.
  virtual Status unbind(EndpointId id, uint64_t offset, uint64_t size) = 0;

  // ---- data operations on ready endpoints, from any thread. Ranges are inside bound memory: the caller has checked.

  /// Writes `bytes` from local `source`, which may be reused on return; delivered by quiet().
  virtual Status put(EndpointId id, uint64_t offset, const void* source, size_t bytes) = 0;
  /// The same, but the source must not be changed before quiet().
  virtual Status put_nbi(EndpointId id, uint64_t offset, const void* source, size_t bytes) {
    return put(id, offset, source, bytes);
  }
  /// put of an object of `bytes` (1, 2, 4 or 8, aligned so) whose value is in the low bytes of `word`.
  virtual Status put_word(EndpointId id, uint64_t offset, uint64_t word, size_t bytes) {
    return put(id, offset, &word, bytes);
  }
  /// get of such an object into the low bytes of `word`.
  virtual Status get_word(EndpointId id, uint64_t offset, uint64_t* word, size_t bytes) {
    return get(id, offset, word, bytes);
  }
  /// Reads `bytes` into local `destination`, complete on return.
  virtual Status get(EndpointId id, uint64_t offset, void* destination, size_t bytes) = 0;
  /// The same, complete after quiet().
  virtual Status get_nbi(EndpointId id, uint64_t offset, void* destination, size_t bytes) {
    return get(id, offset, destination, bytes);
  }
  /// Element i, of `element` bytes, goes from source[i * source_stride] to the i * destination_stride-th behind
  /// `offset`, for i in [0, count); strides in elements. Sources may be reused on return; delivered by quiet().
  virtual Status put_strided(EndpointId id, uint64_t offset, const void* source, int64_t destination_stride,
                             int64_t source_stride, size_t count, size_t element);
  /// The same from `offset` on to `destination`, complete on return.
  virtual Status get_strided(EndpointId id, uint64_t offset, void* destination, int64_t destination_stride,
                             int64_t source_stride, size_t count, size_t element);
  /// One atomic on an object of `type`, aligned to its size. `operand` and `compare` hold the value in their low bytes;
  /// the old value goes to `result` when that is not null (then complete on return), else delivered by quiet().
  virtual Status atomic(AtomicOp op, AtomicType type, EndpointId id, uint64_t offset, uint64_t operand,
                        uint64_t compare, uint64_t* result) = 0;
  /// Puts, then updates the 8-byte signal at `signal_offset` of the same endpoint: whoever sees the signal (acquire)
  /// sees the data.
  virtual Status put_signal(EndpointId id, uint64_t offset, const void* source, size_t bytes, uint64_t signal_offset,
                            uint64_t value, SignalOp op) = 0;
  /// One signal update, ordered after nothing. Source: NVSHMEM nvshmemx_signal_op.
  virtual Status signal(EndpointId id, uint64_t offset, uint64_t value, SignalOp op) = 0;
  /// Puts and adds the bytes delivered to the 8-byte counter at `counter_offset`, in one or several steps: only the
  /// final sum says anything. Source: CUDA guide, counted operations.
  virtual Status put_counted(EndpointId id, uint64_t offset, const void* source, size_t bytes,
                             uint64_t counter_offset) = 0;
  /// Zeroes [offset, offset + bytes) of own endpoint `id`; complete on return.
  virtual Status clear(EndpointId id, uint64_t offset, uint64_t bytes) = 0;
  /// Orders this process's earlier puts, atomics and signals to each PE before its later ones.
  virtual Status fence() = 0;
  /// Returns when this process's earlier operations are complete and visible everywhere.
  virtual Status quiet() = 0;
  /// Orders this process's earlier operations before what is enqueued on `stream` later. Does not wait where it can do
  /// without.
  virtual Status join(CUstream_st* /*stream*/) { return quiet(); }
  /// What gpu() can do at `address` of this process.
  virtual LocalMemory local_memory(const void* /*address*/) const { return LocalMemory::kPageable; }
  bool is_device_accessible(const void* address) const { return local_memory(address) == LocalMemory::kKernels; }
};

/// One choice of fabric and why it can or cannot be used here.
struct FabricChoice {
  std::string name;
  bool usable = false;
  std::string reason;  ///< why not, or what it rests on
};

/// The fabrics of design order (cft, peer, host, net), each with its reason, for selection and heddle-info.
std::vector<FabricChoice> list_fabrics(const Settings& settings);

/// What making a fabric depends on besides the settings.
struct FabricRequest {
  int cuda_device = -1;  ///< the GPU that the program asked for, as an ordinal; -1: none in particular
  int local_rank = 0;    ///< this PE's place among those of its node, by which GPUs are dealt out
};

/// Makes the fabric of `settings` (HEDDLE_FABRIC, wrapped by HEDDLE_FAULT when that is set). Decided by what this
/// process sees alone: judge_choices tells whether all PEs came to the same.
Status make_fabric(const Settings& settings, const FabricRequest& request, std::unique_ptr<Courier> courier,
                   std::unique_ptr<Fabric>* fabric);
inline Status make_fabric(const Settings& settings, std::unique_ptr<Courier> courier, std::unique_ptr<Fabric>* fabric) {
  return make_fabric(settings, {}, std::move(courier), fabric);
}

/// Whether all PEs chose one fabric and one kind of memory, from the fabric's name and the identity of each in PE
/// order: every PE decides alike. kNotSupported, naming a PE on each side and the remedy.
Status judge_choices(const std::vector<std::string>& names, const std::vector<PeerIdentity>& identities);

/// The fabric on memfd and shared mappings; on any Linux.
std::unique_ptr<Fabric> make_host_fabric(std::unique_ptr<Courier> courier);

/// The fabric on memory of one GPU per PE, mapped by the others: by CUDA virtual memory management, or cudaMalloc and
/// CUDA IPC (kNotSupported with the reason when there is no usable GPU or the library was built without CUDA).
Status make_peer_fabric(const Settings& settings, const FabricRequest& request, std::unique_ptr<Courier> courier,
                        std::unique_ptr<Fabric>* fabric);
/// Whether make_peer_fabric can work here, found out without making a context: a choice named "peer".
FabricChoice peer_choice(const Settings& settings);

/// Polls query(id, count) with growing pauses until ready. kTimeout after `deadline` names `what` and who is missing;
/// kPeerLost as soon as `poison` (1 + the lost PE; may be nullptr) is not 0.
Status await_ready(Fabric& fabric, EndpointId id, uint32_t count, Deadline deadline, const std::string& what,
                   const std::atomic<uint32_t>* poison = nullptr);

}  // namespace heddle
