/* NVSHMEM API: every name that host code may call. Plain C11 or C++11; needs no CUDA toolkit.
 *
 * What holds for all calls, and is not repeated below:
 * - A symmetric address is an address in a block of nvshmem_malloc, _calloc or _align of the calling PE; `pe` says
 * whose copy is meant. Local addresses are any memory of the process, symmetric or not. The two must not overlap, but
 * for the same copy of the same bytes.
 * - Addresses are aligned as their type needs. Sizes of `mem` calls are bytes, all others count elements. Any count is
 *   allowed; 0 does nothing but check.
 * - An error (PE out of range, address outside the heap, lost PE, ...) is logged once and kept for heddle_last_error()
 *   (heddle.h); nothing ends the process but nvshmem_global_exit. Calls that return a status give 0 or
 * NVSHMEMX_ERROR_*; void calls then do nothing, calls that return a value return 0 unless they say otherwise, pointers
 * are NULL.
 * - Outside init and finalize every call fails so; where there is a status it is NVSHMEMX_ERROR_INTERNAL. The text says
 *   which, and repeats why an earlier init failed. Exceptions are marked "any time".
 * - Any thread may call, as with NVSHMEM_THREAD_MULTIPLE. Collective calls are made by every PE in the same order; two
 *   at once from one PE wait for each other.
 * - nvshmem_*_nbi on a heap in host memory have read their source when they return, like the blocking forms. On a heap
 * in GPU memory the source, and the destination of a get, may be used after nvshmem_quiet only.
 * - With a heap in GPU memory the addresses of nvshmem_malloc and nvshmem_ptr are for kernels and CUDA calls: host code
 *   reaches that memory by calls only. Waits and tests there look by small copies, which takes some microseconds each.
 *
 * Sources: OpenSHMEM 1.5 (chapter numbers below), and the NVSHMEM guide for nvshmemx_ names. */
#ifndef NVSHMEM_HOST_H
#define NVSHMEM_HOST_H

#include <stddef.h>
#include <stdint.h>

#include "nvshmem_cuda_types.h"
#include "nvshmem_names.h"
#include "nvshmem_types.h"

/* Marks the names that kernels may call too; the device headers hold their bodies. */
#define HEDDLE_HD_NAME
#if defined(__CUDACC__) && !defined(NVSHMEM_HOSTLIB_ONLY)
#if __has_include("device/nvshmem_device.h")
#undef HEDDLE_HD_NAME
#define HEDDLE_HD_NAME __host__ __device__
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- set-up (OpenSHMEM 1.5, 9.1; NVSHMEM guide, library set-up)
 *
 * Set-up is collective: it returns when every PE of the job has called, or fails on all of them with the same cause, at
 * the latest after HEDDLE_TIMEOUT. A further init with the same parameters succeeds and is counted, and as many
 * finalizes are then needed; one with others is NVSHMEMX_ERROR_INVALID_VALUE. After the last finalize a new init may
 * take new parameters. */

/// Where there are GPUs the heap is in the memory of one: that of attributes->args.cuda_device_id (structures of
/// version 2 that were initialised), else the current device (cudaSetDevice before init), else the PE's by its place on
/// the node. Joins the job that the launcher describes; one PE without a launcher. A failure shows in
/// nvshmemx_init_status() and heddle_last_error(), and every later call repeats its cause.
void nvshmem_init(void);
/// The same with a wish for thread support (NVSHMEM_THREAD_*), all of which is there: `*provided` becomes `requested`.
/// NVSHMEMX_ERROR_INVALID_VALUE for another value or a NULL `provided`.
int nvshmem_init_thread(int requested, int* provided);
/// The highest level that was asked for; NVSHMEM_THREAD_SINGLE after nvshmem_init.
void nvshmem_query_thread(int* provided);
/// Joins as `flags` say: NVSHMEMX_INIT_WITH_MPI_COMM (attributes->mpi_comm points to the communicator),
/// NVSHMEMX_INIT_WITH_UNIQUEID (attributes->args.uid_args), or 0 for what nvshmem_init does (attributes may be NULL).
/// Start the structure from NVSHMEMX_INIT_ATTR_INITIALIZER; only the members that `flags` ask for are read, so that
/// programs that set nothing but mpi_comm work too.
/// NVSHMEMX_ERROR_INVALID_VALUE for both flags, unknown flags and missing arguments;
/// NVSHMEMX_ERROR_NOT_SUPPORTED for NVSHMEMX_INIT_WITH_SHMEM and NVSHMEMX_INIT_THREAD_PES; else what set-up says.
int nvshmemx_init_attr(unsigned int flags, nvshmemx_init_attr_t* attributes);
/// NVSHMEM_STATUS_NOT_INITIALIZED or NVSHMEM_STATUS_IS_INITIALIZED; where PEs of the job share GPUs, on all PEs
/// NVSHMEM_STATUS_FULL_MPG instead when CUDA MPS serves them all, else NVSHMEM_STATUS_LIMITED_MPG. Any time.
int nvshmemx_init_status(void);
/// Same as nvshmemx_init_attr and nvshmem_finalize.
int nvshmemx_hostlib_init_attr(unsigned int flags, nvshmemx_init_attr_t* attr);
void nvshmemx_hostlib_finalize(void);
/// Makes an id for one job: call it on one PE, carry the 128 bytes to the others, then nvshmemx_init_attr on all. The
/// calling process serves the meeting of the PEs and must live until they have joined. Any time.
int nvshmemx_get_uniqueid(nvshmemx_uniqueid_t* uniqueid);
/// Fill `attr` for nvshmemx_init_attr. They keep the pointers, which must be valid until init. Any time.
/// NVSHMEMX_ERROR_INVALID_VALUE for NULL, a rank not in [0, nranks), or a structure of unknown version.
int nvshmemx_set_attr_uniqueid_args(const int myrank, const int nranks, const nvshmemx_uniqueid_t* uniqueid,
                                    nvshmemx_init_attr_t* attr);
int nvshmemx_set_attr_mpi_comm_args(void* mpi_comm, nvshmemx_init_attr_t* nvshmem_attr);
/// Undoes one init; the last one completes all operations, waits for every PE and gives everything back. Reported, and
/// nothing else, without an init.
void nvshmem_finalize(void);
/// Ends the whole job with `status`: the other PEs, through the launcher where status is not 0, then this process by
/// exit(status). Does not return. Any time. (OpenSHMEM 1.5, 9.1)
HEDDLE_HD_NAME void nvshmem_global_exit(int status);

/* ---- queries (OpenSHMEM 1.5, 9.1 and 9.2) */

/// This PE's number and the number of PEs; -1 on error.
HEDDLE_HD_NAME int nvshmem_my_pe(void);
HEDDLE_HD_NAME int nvshmem_n_pes(void);
/// The OpenSHMEM version that the API follows. Any time; NULL pointers are skipped.
HEDDLE_HD_NAME void nvshmem_info_get_version(int* major, int* minor);
/// Writes NVSHMEM_VENDOR_STRING, at most NVSHMEM_MAX_NAME_LEN bytes with its end. Any time.
HEDDLE_HD_NAME void nvshmem_info_get_name(char* name);
/// The NVSHMEM version that the API follows (NVSHMEM_VENDOR_*). Any time; NULL pointers are skipped.
HEDDLE_HD_NAME void nvshmemx_vendor_get_version_info(int* major, int* minor, int* patch);
/// Name of a status, e.g. "NVSHMEMX_ERROR_SYMMETRY"; "NVSHMEMX_ERROR_<unknown>" for other values. Any time.
const char* nvshmemx_status_string(int status);

/* ---- symmetric memory (OpenSHMEM 1.5, 9.3). malloc, calloc, align and free are collective and wait for every PE.
 *
 * All PEs get a block at the same place of their heaps, or all get NULL with the same cause: arguments that differ
 * between PEs (the text names two of them), no room (it gives asked, free and limit bytes, and NVSHMEM_SYMMETRIC_SIZE),
 * or wrong arguments on any PE. Blocks are aligned to 256 bytes at least. */

/// `size` bytes, not zeroed; NULL without error for 0 on every PE.
void* nvshmem_malloc(size_t size);
/// `count` elements of `size` bytes, zeroed before any PE returns.
void* nvshmem_calloc(size_t count, size_t size);
/// `size` bytes at a multiple of `alignment`, a power of two up to 2 MiB.
void* nvshmem_align(size_t alignment, size_t size);
/// Gives a block back, after completing this PE's puts; nothing is freed anywhere when `ptr` is not the start of a live
/// block on some PE. NULL is ignored, without waiting.
void nvshmem_free(void* ptr);
/// Where this process can load and store `pe`'s copy of symmetric `ptr`, or NULL when it cannot: not symmetric, no such
/// PE, not mapped. Not an error.
HEDDLE_HD_NAME void* nvshmem_ptr(const void* ptr, int pe);
/// The multicast address of `ptr` in `team`; NULL, as no fabric here has multicast.
HEDDLE_HD_NAME void* nvshmemx_mc_ptr(nvshmem_team_t team, const void* ptr);

/* ---- registration (NVSHMEM guide, memory management) */

/// Notes that [addr, addr + length) is the local side of later calls. NVSHMEMX_ERROR_INVALID_VALUE for NULL, 0 bytes, a
/// range that overlaps a registered one (named in the text). Local; forgotten at finalize.
int nvshmemx_buffer_register(void* addr, size_t length);
/// Forgets the range that starts at `addr`; NVSHMEMX_ERROR_INVALID_VALUE when there is none.
int nvshmemx_buffer_unregister(void* addr);
void nvshmemx_buffer_unregister_all(void);
/// Makes memory of the program symmetric: every PE passes a buffer of its own, of one size, and gets the address by
/// which it is reached like a block of nvshmem_malloc, by kernels, host calls and calls on streams. Collective; all PEs
/// succeed, or all get NULL with the same text. The buffer is CUDA VMM memory of this PE's GPU: of cuMemCreate, with
/// requestedHandleTypes CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR (CU_MEM_HANDLE_TYPE_FABRIC where
/// NVSHMEM_CUMEM_HANDLE_TYPE=FABRIC), mapped at `buf_ptr` from the start of an allocation on; several that follow each
/// other are fine. Address and size are multiples of the driver's granularity, 2 MiB. It takes room in the heap's
/// addresses, which NVSHMEM_SYMMETRIC_SIZE bounds. Contents stay. `flags` is 0.
///
/// The program's mapping stays as it is, and may go at any time: the memory lives until it is unregistered. The GPU
/// does not order accesses by the two addresses within a kernel (PTX: fence.proxy.alias does); use one of them there.
/// NVSHMEMX_ERROR_INVALID_VALUE, _SYMMETRY, _OUT_OF_MEMORY without room, and _NOT_SUPPORTED where heaps are not CUDA
/// VMM memory.
void* nvshmemx_buffer_register_symmetric(void* buf_ptr, size_t size, int flags);
/// The same at `preferred_addr`, an address in this PE's heap range at the same offset on every PE, where nothing is
/// yet: there, or NULL. NULL as the address asks for none in particular.
void* nvshmemx_buffer_register_symmetric_at_preferred_address(void* buf_ptr, size_t size, void* preferred_addr,
                                                              int flags);
/// Takes a registered buffer out of every PE's heap, after completing this PE's host puts; the program's own mapping
/// stays. Collective. Work of kernels and streams with it must have ended. `mmap_ptr` and `size`: what registering
/// returned and was given; NVSHMEMX_ERROR_INVALID_VALUE, alike on all PEs, when they are not. What is left at finalize
/// is let go there.
int nvshmemx_buffer_unregister_symmetric(void* mmap_ptr, size_t size);

/* ---- regions (NVSHMEM guide, regions): a bracket around nbi calls that may be batched. One per process. Puts here are
 * never held back, so a region is a record and checks; it completes nothing. */

/// Opens a region; `attrs` NULL means no hints. NVSHMEMX_ERROR_INVALID_VALUE for a NULL handle, unknown hints, or while
/// one is open.
int nvshmemx_region_start(nvshmemx_region_handle_t* handle, const nvshmemx_region_attrs_t* attrs);
/// Closes it; NVSHMEMX_ERROR_INVALID_VALUE unless `handle` is the open region's.
int nvshmemx_region_stop(nvshmemx_region_handle_t handle);
/// `*active` becomes 1 when a region is open that has all of `hints` (0: any region), else 0.
HEDDLE_HD_NAME int nvshmemx_region_is_active(uint32_t hints, int* active);

/* ---- shared memory for bulk copies of kernels (NVSHMEM guide, using TMA) */

/// How many bytes of shared memory a kernel should give to the library (nvshmemx_give_smem), for a NVSHMEMX_SMEM_*
/// amount; that of NVSHMEMX_SMEM_RECOMMENDED for other values. Any time.
HEDDLE_HD_NAME int nvshmemx_ask_smem(nvshmemx_smem_amount_t flag);

/* ---- queues (NVSHMEM guide, queue pair APIs): nvshmemx_qp_ calls of kernels name one. All memory is mapped, and
 * reached without queues: there is the default queue alone, and kernels' calls are the plain ones. */

/// `*out_qp_array` becomes a new array of `num_qps` handles, each NVSHMEMX_QP_DEFAULT; the caller gives it back with
/// free(), after nvshmem_finalize. NULL for 0. NVSHMEM has all PEs call, with the same number; nobody is waited for
/// here. NVSHMEMX_ERROR_INVALID_VALUE for a number below 0 or above 65536 or a NULL `out_qp_array`;
/// NVSHMEMX_ERROR_OUT_OF_MEMORY. `*out_qp_array` is NULL after an error.
int nvshmemx_qp_create(int num_qps, nvshmemx_qp_handle_t** out_qp_array);

/* ---- teams (OpenSHMEM 1.5, 9.4): the predefined ones. WORLD: all PEs; SHARED: PEs whose memory is mapped here; NODE:
 * PEs of this node; SAME_MYPE_NODE: PEs with this PE's place in their nodes; SAME_GPU: PEs on this PE's GPU, this PE
 * alone without one; GPU_LEADERS: the lowest PE of each GPU, and every PE without one; MC_SHARED: this PE alone. */

/// Place in and size of a team; -1 for NVSHMEM_TEAM_INVALID and for NVSHMEMI_TEAM_GPU_LEADERS on PEs that do not lead,
/// and with an error for an unknown team.
HEDDLE_HD_NAME int nvshmem_team_my_pe(nvshmem_team_t team);
HEDDLE_HD_NAME int nvshmem_team_n_pes(nvshmem_team_t team);
/// The place in `dest_team` of the PE at `src_pe` of `src_team`; -1 when it is in only one of them.
HEDDLE_HD_NAME int nvshmem_team_translate_pe(nvshmem_team_t src_team, int src_pe, nvshmem_team_t dest_team);

/* ---- order and synchronisation (OpenSHMEM 1.5, 9.10 to 9.12) */

/// Orders this thread's earlier puts, atomics and signals to each PE before its later ones. Does not wait for PEs.
HEDDLE_HD_NAME void nvshmem_fence(void);
/// Returns when this PE's earlier operations are complete and visible to every PE.
HEDDLE_HD_NAME void nvshmem_quiet(void);
/// Sources of this PE's earlier nbi puts may be overwritten; says nothing of delivery.
HEDDLE_HD_NAME void nvshmemx_flush(void);
/// Collective: quiet, then waits for every PE. Reported when a PE is lost, or after HEDDLE_WAIT_TIMEOUT, naming the
/// PEs.
HEDDLE_HD_NAME void nvshmem_barrier_all(void);
/// Collective: waits for every PE; completes nothing but this PE's stores to its own memory.
HEDDLE_HD_NAME void nvshmem_sync_all(void);
/// The same over a team that is all PEs or this PE alone; NVSHMEMX_ERROR_NOT_SUPPORTED for others so far.
HEDDLE_HD_NAME int nvshmem_barrier(nvshmem_team_t team);
HEDDLE_HD_NAME int nvshmem_team_sync(nvshmem_team_t team);

/* ---- put and get (OpenSHMEM 1.5, 9.5 and 9.6)
 *
 * T_put, putSZ, putmem: `nelems` elements (or bytes) from local `source` to symmetric `dest` at `pe`. The source may be
 * reused on return; delivery is completed by quiet or a barrier. T_get, getSZ, getmem: from symmetric `source` at `pe`
 * to local `dest`, there on return. iput, iget: element i goes from source[i * sst] to dest[i * dst], strides in
 * elements, at least 1. T_p stores and T_g loads one element, in one access. */
#define HEDDLE_DECLARE_RMA(NAME, TYPE)                                                                    \
  HEDDLE_HD_NAME void nvshmem_##NAME##_put(TYPE* dest, const TYPE* source, size_t nelems, int pe);        \
  HEDDLE_HD_NAME void nvshmem_##NAME##_put_nbi(TYPE* dest, const TYPE* source, size_t nelems, int pe);    \
  HEDDLE_HD_NAME void nvshmem_##NAME##_get(TYPE* dest, const TYPE* source, size_t nelems, int pe);        \
  HEDDLE_HD_NAME void nvshmem_##NAME##_get_nbi(TYPE* dest, const TYPE* source, size_t nelems, int pe);    \
  HEDDLE_HD_NAME void nvshmem_##NAME##_iput(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, \
                                            size_t nelems, int pe);                                       \
  HEDDLE_HD_NAME void nvshmem_##NAME##_iget(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, \
                                            size_t nelems, int pe);                                       \
  HEDDLE_HD_NAME void nvshmem_##NAME##_p(TYPE* dest, const TYPE value, int pe);                           \
  HEDDLE_HD_NAME TYPE nvshmem_##NAME##_g(const TYPE* src, int pe);
HEDDLE_RMA_TYPES(HEDDLE_DECLARE_RMA)
#undef HEDDLE_DECLARE_RMA

#define HEDDLE_DECLARE_SIZED(BITS)                                                                                    \
  HEDDLE_HD_NAME void nvshmem_put##BITS(void* dest, const void* source, size_t nelems, int pe);                       \
  HEDDLE_HD_NAME void nvshmem_put##BITS##_nbi(void* dest, const void* source, size_t nelems, int pe);                 \
  HEDDLE_HD_NAME void nvshmem_get##BITS(void* dest, const void* source, size_t nelems, int pe);                       \
  HEDDLE_HD_NAME void nvshmem_get##BITS##_nbi(void* dest, const void* source, size_t nelems, int pe);                 \
  HEDDLE_HD_NAME void nvshmem_iput##BITS(void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, \
                                         int pe);                                                                     \
  HEDDLE_HD_NAME void nvshmem_iget##BITS(void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, \
                                         int pe);
HEDDLE_SIZES(HEDDLE_DECLARE_SIZED)
#undef HEDDLE_DECLARE_SIZED

HEDDLE_HD_NAME void nvshmem_putmem(void* dest, const void* source, size_t bytes, int pe);
HEDDLE_HD_NAME void nvshmem_putmem_nbi(void* dest, const void* source, size_t bytes, int pe);
HEDDLE_HD_NAME void nvshmem_getmem(void* dest, const void* source, size_t bytes, int pe);
HEDDLE_HD_NAME void nvshmem_getmem_nbi(void* dest, const void* source, size_t bytes, int pe);

/* ---- signals (OpenSHMEM 1.5, 9.8)
 *
 * put_signal: a put, then an update of the 8-byte symmetric `sig_addr` at `pe`: NVSHMEM_SIGNAL_SET stores `signal`,
 * NVSHMEM_SIGNAL_ADD adds it. Whoever sees the signal by signal_fetch, signal_wait_until, wait or test sees the data.
 * The signal is ordered after this put only. Neither waits. An unknown `sig_op` is an error, and nothing is put. */
#define HEDDLE_DECLARE_PUT_SIGNAL(NAME, TYPE)                                                                        \
  HEDDLE_HD_NAME void nvshmem_##NAME##_put_signal(TYPE* dest, const TYPE* source, size_t nelems, uint64_t* sig_addr, \
                                                  uint64_t signal, int sig_op, int pe);                              \
  HEDDLE_HD_NAME void nvshmem_##NAME##_put_signal_nbi(TYPE* dest, const TYPE* source, size_t nelems,                 \
                                                      uint64_t* sig_addr, uint64_t signal, int sig_op, int pe);
HEDDLE_RMA_TYPES(HEDDLE_DECLARE_PUT_SIGNAL)
#undef HEDDLE_DECLARE_PUT_SIGNAL

#define HEDDLE_DECLARE_SIZED_SIGNAL(BITS)                                                                           \
  HEDDLE_HD_NAME void nvshmem_put##BITS##_signal(void* dest, const void* source, size_t nelems, uint64_t* sig_addr, \
                                                 uint64_t signal, int sig_op, int pe);                              \
  HEDDLE_HD_NAME void nvshmem_put##BITS##_signal_nbi(void* dest, const void* source, size_t nelems,                 \
                                                     uint64_t* sig_addr, uint64_t signal, int sig_op, int pe);
HEDDLE_SIZES(HEDDLE_DECLARE_SIZED_SIGNAL)
#undef HEDDLE_DECLARE_SIZED_SIGNAL

HEDDLE_HD_NAME void nvshmem_putmem_signal(void* dest, const void* source, size_t bytes, uint64_t* sig_addr,
                                          uint64_t signal, int sig_op, int pe);
HEDDLE_HD_NAME void nvshmem_putmem_signal_nbi(void* dest, const void* source, size_t bytes, uint64_t* sig_addr,
                                              uint64_t signal, int sig_op, int pe);
/// Updates a signal alone, ordered after nothing; use fence or quiet where it must be.
HEDDLE_HD_NAME void nvshmemx_signal_op(uint64_t* sig_addr, uint64_t signal, int sig_op, int pe);
/// This PE's signal now; what was put before it is then visible.
HEDDLE_HD_NAME uint64_t nvshmem_signal_fetch(uint64_t* sig_addr);
/// Waits until this PE's signal compares as `cmp` (NVSHMEM_CMP_*) with `cmp_val`, and returns the value that did.
HEDDLE_HD_NAME uint64_t nvshmem_signal_wait_until(uint64_t* sig_addr, int cmp, uint64_t cmp_val);

/* Counted puts (NVSHMEM guide, counted signals): the bytes delivered are added to an 8-byte counter, of any number of
 * writers; only the sum says anything. */

/// `dest`, `source` and `bytes` are multiples of 16, `signal_addr` a symmetric address at a multiple of 256 bytes of
/// the heap (the start of any block is) outside the destination. 0 bytes: success, nothing done. Does not wait.
/// NVSHMEMX_ERROR_INVALID_VALUE when an argument is wrong; NVSHMEMX_ERROR_NOT_SUPPORTED where the fabric cannot count.
int nvshmemx_putmem_signal_counted_nbi(void* dest, const void* source, size_t bytes, uint64_t* signal_addr, int pe);
/// This PE's counter now; orders nothing.
HEDDLE_HD_NAME uint64_t nvshmemx_signal_counted_load(const uint64_t* signal_addr);
/// Waits until this PE's counter has reached `expected`, also when both have wrapped; the data is then visible.
HEDDLE_HD_NAME void nvshmemx_signal_counted_wait_until(const uint64_t* signal_addr, uint64_t expected);
/// Sets this PE's counter to 0; no counted put to it may be under way.
HEDDLE_HD_NAME void nvshmemx_signal_counted_reset(uint64_t* signal_addr);

/* ---- atomics (OpenSHMEM 1.5, 9.7)
 *
 * One atomic operation on the symmetric object `dest` at `pe`, against all other atomics on it, and p and g. The
 * fetching forms return the value before. They carry no order of their own: fence and quiet give it. compare_swap
 * stores `value` if the object equals `cond`. Integers wrap; half, float and double add is one IEEE addition. */
#define HEDDLE_DECLARE_EXTENDED(NAME, TYPE)                                        \
  HEDDLE_HD_NAME TYPE nvshmem_##NAME##_atomic_fetch(const TYPE* dest, int pe);     \
  HEDDLE_HD_NAME void nvshmem_##NAME##_atomic_set(TYPE* dest, TYPE value, int pe); \
  HEDDLE_HD_NAME TYPE nvshmem_##NAME##_atomic_swap(TYPE* dest, TYPE value, int pe);
HEDDLE_AMO_EXTENDED_TYPES(HEDDLE_DECLARE_EXTENDED)
#undef HEDDLE_DECLARE_EXTENDED

#define HEDDLE_DECLARE_STANDARD(NAME, TYPE)                                              \
  HEDDLE_HD_NAME void nvshmem_##NAME##_atomic_inc(TYPE* dest, int pe);                   \
  HEDDLE_HD_NAME TYPE nvshmem_##NAME##_atomic_fetch_inc(TYPE* dest, int pe);             \
  HEDDLE_HD_NAME void nvshmem_##NAME##_atomic_add(TYPE* dest, TYPE value, int pe);       \
  HEDDLE_HD_NAME TYPE nvshmem_##NAME##_atomic_fetch_add(TYPE* dest, TYPE value, int pe); \
  HEDDLE_HD_NAME TYPE nvshmem_##NAME##_atomic_compare_swap(TYPE* dest, TYPE cond, TYPE value, int pe);
HEDDLE_AMO_STANDARD_TYPES(HEDDLE_DECLARE_STANDARD)
#undef HEDDLE_DECLARE_STANDARD

#define HEDDLE_DECLARE_BITWISE(NAME, TYPE)                                               \
  HEDDLE_HD_NAME void nvshmem_##NAME##_atomic_and(TYPE* dest, TYPE value, int pe);       \
  HEDDLE_HD_NAME TYPE nvshmem_##NAME##_atomic_fetch_and(TYPE* dest, TYPE value, int pe); \
  HEDDLE_HD_NAME void nvshmem_##NAME##_atomic_or(TYPE* dest, TYPE value, int pe);        \
  HEDDLE_HD_NAME TYPE nvshmem_##NAME##_atomic_fetch_or(TYPE* dest, TYPE value, int pe);  \
  HEDDLE_HD_NAME void nvshmem_##NAME##_atomic_xor(TYPE* dest, TYPE value, int pe);       \
  HEDDLE_HD_NAME TYPE nvshmem_##NAME##_atomic_fetch_xor(TYPE* dest, TYPE value, int pe);
HEDDLE_AMO_BITWISE_TYPES(HEDDLE_DECLARE_BITWISE)
#undef HEDDLE_DECLARE_BITWISE

#define HEDDLE_DECLARE_FLOAT(NAME, TYPE)                                            \
  HEDDLE_HD_NAME void nvshmemx_##NAME##_atomic_add(TYPE* dest, TYPE value, int pe); \
  HEDDLE_HD_NAME TYPE nvshmemx_##NAME##_atomic_fetch_add(TYPE* dest, TYPE value, int pe);
HEDDLE_AMO_FLOAT_TYPES(HEDDLE_DECLARE_FLOAT)
#undef HEDDLE_DECLARE_FLOAT

/* ---- wait and test (OpenSHMEM 1.5, 9.9)
 *
 * Compare this PE's symmetric variables with a value (vector forms: one value each) as `cmp` (NVSHMEM_CMP_*). What was
 * put before a variable's new value, with a fence between or by put_signal, is visible once it is seen. Variables whose
 * `status` entry is not 0 are left out; a NULL `status` leaves none out.
 * wait_until, _all: return when the one, or every one, compares true. _any: an index that does; SIZE_MAX for an empty
 * set. _some: how many do, at least one, and which in `indices`; 0 for an empty set. test forms look once: 1 or 0; an
 * index or SIZE_MAX; a count. Waits end early, reported, when a PE is lost or after HEDDLE_WAIT_TIMEOUT: _any then
 * gives SIZE_MAX and _some 0. A wrong `cmp` or an address outside the heap is reported and ends at once in the same
 * way. */
#define HEDDLE_DECLARE_WAIT(NAME, TYPE)                                                                                \
  HEDDLE_HD_NAME void nvshmem_##NAME##_wait_until(TYPE* ivar, int cmp, TYPE cmp_value);                                \
  HEDDLE_HD_NAME void nvshmem_##NAME##_wait_until_all(TYPE* ivars, size_t nelems, const int* status, int cmp,          \
                                                      TYPE cmp_value);                                                 \
  HEDDLE_HD_NAME size_t nvshmem_##NAME##_wait_until_any(TYPE* ivars, size_t nelems, const int* status, int cmp,        \
                                                        TYPE cmp_value);                                               \
  HEDDLE_HD_NAME size_t nvshmem_##NAME##_wait_until_some(TYPE* ivars, size_t nelems, size_t* indices,                  \
                                                         const int* status, int cmp, TYPE cmp_value);                  \
  HEDDLE_HD_NAME void nvshmem_##NAME##_wait_until_all_vector(TYPE* ivars, size_t nelems, const int* status, int cmp,   \
                                                             TYPE* cmp_values);                                        \
  HEDDLE_HD_NAME size_t nvshmem_##NAME##_wait_until_any_vector(TYPE* ivars, size_t nelems, const int* status, int cmp, \
                                                               TYPE* cmp_values);                                      \
  HEDDLE_HD_NAME size_t nvshmem_##NAME##_wait_until_some_vector(TYPE* ivars, size_t nelems, size_t* indices,           \
                                                                const int* status, int cmp, TYPE* cmp_values);         \
  HEDDLE_HD_NAME int nvshmem_##NAME##_test(TYPE* ivar, int cmp, TYPE cmp_value);                                       \
  HEDDLE_HD_NAME int nvshmem_##NAME##_test_all(TYPE* ivars, size_t nelems, const int* status, int cmp,                 \
                                               TYPE cmp_value);                                                        \
  HEDDLE_HD_NAME size_t nvshmem_##NAME##_test_any(TYPE* ivars, size_t nelems, const int* status, int cmp,              \
                                                  TYPE cmp_value);                                                     \
  HEDDLE_HD_NAME size_t nvshmem_##NAME##_test_some(TYPE* ivars, size_t nelems, size_t* indices, const int* status,     \
                                                   int cmp, TYPE cmp_value);                                           \
  HEDDLE_HD_NAME int nvshmem_##NAME##_test_all_vector(TYPE* ivars, size_t nelems, const int* status, int cmp,          \
                                                      TYPE* cmp_values);                                               \
  HEDDLE_HD_NAME size_t nvshmem_##NAME##_test_any_vector(TYPE* ivars, size_t nelems, const int* status, int cmp,       \
                                                         TYPE* cmp_values);                                            \
  HEDDLE_HD_NAME size_t nvshmem_##NAME##_test_some_vector(TYPE* ivars, size_t nelems, size_t* indices,                 \
                                                          const int* status, int cmp, TYPE* cmp_values);
HEDDLE_WAIT_TYPES(HEDDLE_DECLARE_WAIT)
#undef HEDDLE_DECLARE_WAIT

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#include "nvshmemx_stream.h"

#endif
