// The names of the NVSHMEM API that kernels call. Included by nvshmem.h for CUDA compilers, after nvshmem_host.h, which
// declares those that the host has too, and says what each does; their host bodies are in libheddle.
//
// Needs no device library and no -rdc=true: the compiler of device code sees a body for every name
// (nvshmem_device_bodies.h), the compiler of host code sees declarations.
//
// Suffix _warp or _block: all threads of the warp or block call, with the same arguments. Blocking forms meet before
// and after, nbi forms after; calls.h says why.
#pragma once

#include "device/state.h"

extern "C" {

// ---- put, get, put_signal, iput and iget by a warp or block: what the thread forms in nvshmem_host.h do
//
// nvshmemx_qp_ names are the same with a queue: a handle of nvshmemx_qp_create, NVSHMEMX_QP_DEFAULT or NVSHMEMX_QP_ANY.
// All memory is mapped, and reached without a queue: they are the plain calls, and no handle orders anything more.

// Macros end in the last parameters of the names.
#define HEDDLE_DECLARE_GROUP(PREFIX, PUT, GET, TYPE, SUFFIX, ...)                                                    \
  HEDDLE_DEVICE void PREFIX##PUT##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems, __VA_ARGS__);                \
  HEDDLE_DEVICE void PREFIX##PUT##_nbi##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems, __VA_ARGS__);          \
  HEDDLE_DEVICE void PREFIX##GET##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems, __VA_ARGS__);                \
  HEDDLE_DEVICE void PREFIX##GET##_nbi##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems, __VA_ARGS__);          \
  HEDDLE_DEVICE void PREFIX##PUT##_signal##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems, uint64_t* sig_addr, \
                                                  uint64_t signal, int sig_op, __VA_ARGS__);                         \
  HEDDLE_DEVICE void PREFIX##PUT##_signal_nbi##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems,                 \
                                                      uint64_t* sig_addr, uint64_t signal, int sig_op, __VA_ARGS__);
#define HEDDLE_DECLARE_GROUP_STRIDED(IPUT, IGET, TYPE, SUFFIX)                                             \
  HEDDLE_DEVICE void nvshmemx_##IPUT##SUFFIX(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, \
                                             size_t nelems, int pe);                                       \
  HEDDLE_DEVICE void nvshmemx_##IGET##SUFFIX(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, \
                                             size_t nelems, int pe);

#define HEDDLE_DECLARE_TYPED(NAME, TYPE)                                                                          \
  HEDDLE_DECLARE_GROUP(nvshmemx_, NAME##_put, NAME##_get, TYPE, _warp, int pe)                                    \
  HEDDLE_DECLARE_GROUP(nvshmemx_, NAME##_put, NAME##_get, TYPE, _block, int pe)                                   \
  HEDDLE_DECLARE_GROUP_STRIDED(NAME##_iput, NAME##_iget, TYPE, _warp)                                             \
  HEDDLE_DECLARE_GROUP_STRIDED(NAME##_iput, NAME##_iget, TYPE, _block)                                            \
  HEDDLE_DECLARE_GROUP(nvshmemx_qp_, NAME##_put, NAME##_get, TYPE, , int pe, nvshmemx_qp_handle_t qp_index)       \
  HEDDLE_DECLARE_GROUP(nvshmemx_qp_, NAME##_put, NAME##_get, TYPE, _warp, int pe, nvshmemx_qp_handle_t qp_index)  \
  HEDDLE_DECLARE_GROUP(nvshmemx_qp_, NAME##_put, NAME##_get, TYPE, _block, int pe, nvshmemx_qp_handle_t qp_index) \
  HEDDLE_DEVICE void nvshmemx_qp_##NAME##_p(TYPE* dest, const TYPE value, int pe, nvshmemx_qp_handle_t qp_index); \
  HEDDLE_DEVICE TYPE nvshmemx_qp_##NAME##_g(const TYPE* source, int pe, nvshmemx_qp_handle_t qp_index);
HEDDLE_RMA_TYPES(HEDDLE_DECLARE_TYPED)
#undef HEDDLE_DECLARE_TYPED

#define HEDDLE_DECLARE_SIZED(BITS)                                            \
  HEDDLE_DECLARE_GROUP(nvshmemx_, put##BITS, get##BITS, void, _warp, int pe)  \
  HEDDLE_DECLARE_GROUP(nvshmemx_, put##BITS, get##BITS, void, _block, int pe) \
  HEDDLE_DECLARE_GROUP_STRIDED(iput##BITS, iget##BITS, void, _warp)           \
  HEDDLE_DECLARE_GROUP_STRIDED(iput##BITS, iget##BITS, void, _block)
HEDDLE_SIZES(HEDDLE_DECLARE_SIZED)
#undef HEDDLE_DECLARE_SIZED

HEDDLE_DECLARE_GROUP(nvshmemx_, putmem, getmem, void, _warp, int pe)
HEDDLE_DECLARE_GROUP(nvshmemx_, putmem, getmem, void, _block, int pe)
#undef HEDDLE_DECLARE_GROUP
#undef HEDDLE_DECLARE_GROUP_STRIDED

/// As nvshmemx_signal_op.
HEDDLE_DEVICE void nvshmemx_qp_signal_op(uint64_t* sig_addr, uint64_t signal, int sig_op, int pe,
                                         nvshmemx_qp_handle_t qp_index);
/// A counted put of the block. NVSHMEMX_ERROR_INVALID_VALUE as on the host; the same status in every thread.
HEDDLE_DEVICE int nvshmemx_putmem_signal_counted_nbi_block(void* dest, const void* source, size_t bytes,
                                                           uint64_t* signal_addr, int pe);

// ---- order and synchronisation by a group

/// As nvshmemx_flush, for all threads of the group.
HEDDLE_DEVICE void nvshmemx_flush_warp(void);
HEDDLE_DEVICE void nvshmemx_flush_block(void);
/// As nvshmem_fence and nvshmem_quiet, for the puts of all threads of the group. Everything is ordered or complete,
/// whatever `pe` (a PE, or NVSHMEMX_PE_ALL) and the `num_qps` handles say.
HEDDLE_DEVICE void nvshmemx_qp_fence(int pe, nvshmemx_qp_handle_t* qp_handle, int num_qps);
HEDDLE_DEVICE void nvshmemx_qp_fence_warp(int pe, nvshmemx_qp_handle_t* qp_handle, int num_qps);
HEDDLE_DEVICE void nvshmemx_qp_fence_block(int pe, nvshmemx_qp_handle_t* qp_handle, int num_qps);
HEDDLE_DEVICE void nvshmemx_qp_quiet(int pe, nvshmemx_qp_handle_t* qp_handle, int num_qps);
HEDDLE_DEVICE void nvshmemx_qp_quiet_warp(int pe, nvshmemx_qp_handle_t* qp_handle, int num_qps);
HEDDLE_DEVICE void nvshmemx_qp_quiet_block(int pe, nvshmemx_qp_handle_t* qp_handle, int num_qps);
/// Collective, called by one group of each PE. What any thread of the groups has put or stored is complete and visible.
HEDDLE_DEVICE void nvshmemx_barrier_all_warp(void);
HEDDLE_DEVICE void nvshmemx_barrier_all_block(void);
HEDDLE_DEVICE void nvshmemx_sync_all_warp(void);
HEDDLE_DEVICE void nvshmemx_sync_all_block(void);
/// The same over a team that is all PEs or this PE alone; NVSHMEMX_ERROR_NOT_SUPPORTED for others. A warp group is four
/// warps, from a thread whose number in the block is a multiple of 128 on; blocks of another size than a multiple of
/// 128 are refused: their threads end, with a record. Per PE one group at a time meets for a team.
HEDDLE_DEVICE int nvshmemx_barrier_warp(nvshmem_team_t team);
HEDDLE_DEVICE int nvshmemx_barrier_warpgroup(nvshmem_team_t team);
HEDDLE_DEVICE int nvshmemx_barrier_block(nvshmem_team_t team);
HEDDLE_DEVICE int nvshmemx_team_sync_warp(nvshmem_team_t team);
HEDDLE_DEVICE int nvshmemx_team_sync_block(nvshmem_team_t team);

// ---- regions of a block (NVSHMEM guide, regions): a record and checks, as puts are never held back. All threads call,
// and get the same status and handle.

/// NVSHMEMX_ERROR_INVALID_VALUE for a NULL handle, unknown hints, or while one is open; NVSHMEMX_ERROR_OUT_OF_MEMORY
/// when too many blocks have one.
HEDDLE_DEVICE int nvshmemx_region_start_block(nvshmemx_region_handle_t* handle, const nvshmemx_region_attrs_t* attrs);
/// NVSHMEMX_ERROR_INVALID_VALUE unless `handle` is that of the block's open region.
HEDDLE_DEVICE int nvshmemx_region_stop_block(nvshmemx_region_handle_t handle);

// ---- shared memory for bulk copies (NVSHMEM guide, using TMA). Where it is not used, calls do without.

/// All threads of the block call with the same values, then __syncthreads, before the first transfer. `smem` is aligned
/// to 16. Ignored when NVSHMEM_TMA_POLICY does not enable it, or when it is too small.
HEDDLE_DEVICE void nvshmemx_give_smem(void* smem, size_t size);
/// All threads of the block call, after the last transfer and a __syncthreads.
HEDDLE_DEVICE void nvshmemx_release_smem(void);

}  // extern "C"

#if defined(__CUDA_ARCH__)
#include "device/nvshmem_device_bodies.h"
#endif
