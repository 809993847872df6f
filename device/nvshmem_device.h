// The names of the NVSHMEM API that kernels call. Included by nvshmem.h for
// CUDA compilers, after nvshmem_host.h, which declares those that the host has
// too (and says what each does); their host bodies are in libheddle.
//
// Needs no device library and no -rdc=true: the compiler of device code sees a
// body for each name below, the compiler of host code sees declarations only.
// Suffix _warp or _block: all threads of the warp or block call, with the same
// arguments. What such calls do beyond their thread form is said in calls.h.
#pragma once

#include "device/state.h"
// calls.h is for kernels; the host compiler needs the state alone.
#if defined(__CUDA_ARCH__)
#include "device/block_slots.h"
#include "device/calls.h"
#endif

// A body in the device pass, a declaration in the host pass.
#if defined(__CUDA_ARCH__)
#define HEDDLE_D_NAME HEDDLE_DEVICE HEDDLE_INLINE
#define HEDDLE_BODY(...) \
  { __VA_ARGS__ }
#else
#define HEDDLE_D_NAME HEDDLE_DEVICE
#define HEDDLE_BODY(...) ;
#endif

extern "C" {

// ---- names that only kernels have

// Typed and sized calls of warps and blocks. NAME: the name without scope;
// BYTES_OF: bytes of `nelems` elements.
#define HEDDLE_GROUP_RMA(PUT, GET, TYPE, ELEMENT, NBI, BLOCKING, SUFFIX, SCOPE)                                     \
  HEDDLE_D_NAME void nvshmemx_##PUT##NBI##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems, int pe)             \
      HEDDLE_BODY(heddle::device::put<heddle::device::SCOPE, BLOCKING>("nvshmemx_" #PUT #NBI #SUFFIX, dest, source, \
                                                                       nelems * ELEMENT, ELEMENT, pe);)             \
          HEDDLE_D_NAME void nvshmemx_##GET##NBI##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems, int pe)     \
              HEDDLE_BODY(heddle::device::get<heddle::device::SCOPE, BLOCKING>(                                     \
                              "nvshmemx_" #GET #NBI #SUFFIX, dest, source, nelems * ELEMENT, ELEMENT, pe);)
#define HEDDLE_GROUP_SIGNAL(PUT, TYPE, ELEMENT, NBI, BLOCKING, SUFFIX, SCOPE)                                          \
  HEDDLE_D_NAME void nvshmemx_##PUT##_signal##NBI##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems,               \
                                                          uint64_t* sig_addr, uint64_t signal, int sig_op, int pe)     \
      HEDDLE_BODY(heddle::device::put_signal<heddle::device::SCOPE, BLOCKING>("nvshmemx_" #PUT "_signal" #NBI #SUFFIX, \
                                                                              dest, source, nelems * ELEMENT, ELEMENT, \
                                                                              sig_addr, signal, sig_op, pe);)
#define HEDDLE_GROUP_STRIDED(IPUT, IGET, TYPE, ELEMENT, SUFFIX, SCOPE)                                               \
  HEDDLE_D_NAME void nvshmemx_##IPUT##SUFFIX(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst,           \
                                             size_t nelems, int pe)                                                  \
      HEDDLE_BODY(heddle::device::iput<heddle::device::SCOPE, ELEMENT>("nvshmemx_" #IPUT #SUFFIX, dest, source, dst, \
                                                                       sst, nelems, pe);)                            \
          HEDDLE_D_NAME void nvshmemx_##IGET##SUFFIX(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst,   \
                                                     size_t nelems, int pe)                                          \
              HEDDLE_BODY(heddle::device::iget<heddle::device::SCOPE, ELEMENT>("nvshmemx_" #IGET #SUFFIX, dest,      \
                                                                               source, dst, sst, nelems, pe);)
#define HEDDLE_GROUP_FORMS(PUT, GET, TYPE, ELEMENT, SUFFIX, SCOPE)      \
  HEDDLE_GROUP_RMA(PUT, GET, TYPE, ELEMENT, , true, SUFFIX, SCOPE)      \
  HEDDLE_GROUP_RMA(PUT, GET, TYPE, ELEMENT, _nbi, false, SUFFIX, SCOPE) \
  HEDDLE_GROUP_SIGNAL(PUT, TYPE, ELEMENT, , true, SUFFIX, SCOPE)        \
  HEDDLE_GROUP_SIGNAL(PUT, TYPE, ELEMENT, _nbi, false, SUFFIX, SCOPE)

#define HEDDLE_GROUP_TYPED(NAME, TYPE)                                                 \
  HEDDLE_GROUP_FORMS(NAME##_put, NAME##_get, TYPE, sizeof(TYPE), _warp, WarpScope)     \
  HEDDLE_GROUP_FORMS(NAME##_put, NAME##_get, TYPE, sizeof(TYPE), _block, BlockScope)   \
  HEDDLE_GROUP_STRIDED(NAME##_iput, NAME##_iget, TYPE, sizeof(TYPE), _warp, WarpScope) \
  HEDDLE_GROUP_STRIDED(NAME##_iput, NAME##_iget, TYPE, sizeof(TYPE), _block, BlockScope)
HEDDLE_RMA_TYPES(HEDDLE_GROUP_TYPED)

#define HEDDLE_GROUP_SIZED(BITS)                                                   \
  HEDDLE_GROUP_FORMS(put##BITS, get##BITS, void, (BITS / 8), _warp, WarpScope)     \
  HEDDLE_GROUP_FORMS(put##BITS, get##BITS, void, (BITS / 8), _block, BlockScope)   \
  HEDDLE_GROUP_STRIDED(iput##BITS, iget##BITS, void, (BITS / 8), _warp, WarpScope) \
  HEDDLE_GROUP_STRIDED(iput##BITS, iget##BITS, void, (BITS / 8), _block, BlockScope)
HEDDLE_SIZES(HEDDLE_GROUP_SIZED)

HEDDLE_GROUP_FORMS(putmem, getmem, void, 1, _warp, WarpScope)
HEDDLE_GROUP_FORMS(putmem, getmem, void, 1, _block, BlockScope)

#undef HEDDLE_GROUP_RMA
#undef HEDDLE_GROUP_SIGNAL
#undef HEDDLE_GROUP_STRIDED
#undef HEDDLE_GROUP_FORMS
#undef HEDDLE_GROUP_TYPED
#undef HEDDLE_GROUP_SIZED

// A counted put of the block. NVSHMEMX_ERROR_INVALID_VALUE as on the host; the
// same status in every thread.
HEDDLE_D_NAME int nvshmemx_putmem_signal_counted_nbi_block(void* dest, const void* source, size_t bytes,
                                                           uint64_t* signal_addr, int pe)
    HEDDLE_BODY(return heddle::device::put_counted(dest, source, bytes, signal_addr, pe);)
// Barriers by a group: what any of its threads has put or stored is complete
// and visible. Of teams, those that are the whole world or this PE alone;
// NVSHMEMX_ERROR_NOT_SUPPORTED for others.
#define HEDDLE_GROUP_SYNC(SUFFIX, SCOPE)                          \
  HEDDLE_D_NAME int nvshmemx_barrier##SUFFIX(nvshmem_team_t team) \
      HEDDLE_BODY(return heddle::device::meet_team<heddle::device::SCOPE>("nvshmemx_barrier" #SUFFIX, team);)
        HEDDLE_GROUP_SYNC(_warp, WarpScope) HEDDLE_GROUP_SYNC(_warpgroup, WarpgroupScope)
            HEDDLE_GROUP_SYNC(_block, BlockScope)
#undef HEDDLE_GROUP_SYNC
#define HEDDLE_GROUP_SYNC(SUFFIX, SCOPE)                                                                         \
  HEDDLE_D_NAME int nvshmemx_team_sync##SUFFIX(nvshmem_team_t team)                                              \
      HEDDLE_BODY(return heddle::device::meet_team<heddle::device::SCOPE>("nvshmemx_team_sync" #SUFFIX, team);)  \
          HEDDLE_D_NAME void nvshmemx_barrier_all##SUFFIX(void)                                                  \
              HEDDLE_BODY(heddle::device::meet_all<heddle::device::SCOPE>("nvshmemx_barrier_all" #SUFFIX);)      \
                  HEDDLE_D_NAME void nvshmemx_sync_all##SUFFIX(void)                                             \
                      HEDDLE_BODY(heddle::device::meet_all<heddle::device::SCOPE>("nvshmemx_sync_all" #SUFFIX);) \
                          HEDDLE_D_NAME void nvshmemx_flush##SUFFIX(void) HEDDLE_BODY(heddle::device::SCOPE().sync();)
                HEDDLE_GROUP_SYNC(_warp, WarpScope) HEDDLE_GROUP_SYNC(_block, BlockScope)
#undef HEDDLE_GROUP_SYNC

    // Regions of a block: a record and checks, as puts are never held back. All
    // threads call.
    HEDDLE_D_NAME
    int nvshmemx_region_start_block(nvshmemx_region_handle_t* handle, const nvshmemx_region_attrs_t* attrs)
        HEDDLE_BODY(const uint32_t hints = attrs == nullptr ? 0 : attrs->hints;
                    if (handle == nullptr || (hints & ~static_cast<uint32_t>(NVSHMEMX_REGION_HINT_BATCH_RMA)) !=
                                                 0) return NVSHMEMX_ERROR_INVALID_VALUE;
                    return heddle::device::start_region(handle, hints);) HEDDLE_D_NAME
    int nvshmemx_region_stop_block(nvshmemx_region_handle_t handle)
        HEDDLE_BODY(return heddle::device::stop_region(handle);)

    // Shared memory that the library may use for bulk copies (NVSHMEM guide,
    // using TMA): how much to give, give, take back. Giving and taking back are
    // calls of all threads of the block. Where it is not used, calls do
    // without.
    HEDDLE_HD inline int nvshmemx_ask_smem(nvshmemx_smem_amount_t flag) {
  return flag == NVSHMEMX_SMEM_BARRIERS_ONLY ? 128 : flag == NVSHMEMX_SMEM_MINIMUM ? 32768 : 65536;
}
HEDDLE_D_NAME void nvshmemx_give_smem(void* smem, size_t size)
    HEDDLE_BODY(heddle::device::give_smem(smem, size);) HEDDLE_D_NAME void nvshmemx_release_smem(void)
        HEDDLE_BODY(heddle::device::release_smem();)

}  // extern "C"

#if defined(__CUDA_ARCH__)
#include "device/nvshmem_device_bodies.h"
#endif

#undef HEDDLE_D_NAME
#undef HEDDLE_BODY
