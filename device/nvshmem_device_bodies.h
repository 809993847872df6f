// Device bodies of all names that kernels may call; nvshmem_host.h and nvshmem_device.h declare them and say what each
// does. Included by nvshmem_device.h, in device passes only: the host compiler must not see them.
#pragma once

#include "device/block_slots.h"
#include "device/calls.h"

#define HEDDLE_HD_BODY __host__ __device__ HEDDLE_INLINE
#define HEDDLE_D_BODY __device__ HEDDLE_INLINE

extern "C" {

// ---- queries

HEDDLE_HD_BODY int nvshmem_my_pe(void) { return heddle::device::device_state().view.my_pe; }
HEDDLE_HD_BODY int nvshmem_n_pes(void) { return heddle::device::device_state().view.n_pes; }
HEDDLE_HD_BODY void nvshmem_info_get_version(int* major, int* minor) {
  if (major != nullptr) *major = NVSHMEM_MAJOR_VERSION;
  if (minor != nullptr) *minor = NVSHMEM_MINOR_VERSION;
}
HEDDLE_HD_BODY void nvshmem_info_get_name(char* name) {
  const char* const text = NVSHMEM_VENDOR_STRING;
  for (size_t i = 0; name != nullptr && i < sizeof NVSHMEM_VENDOR_STRING; ++i) name[i] = text[i];
}
HEDDLE_HD_BODY void nvshmemx_vendor_get_version_info(int* major, int* minor, int* patch) {
  if (major != nullptr) *major = NVSHMEM_VENDOR_MAJOR_VERSION;
  if (minor != nullptr) *minor = NVSHMEM_VENDOR_MINOR_VERSION;
  if (patch != nullptr) *patch = NVSHMEM_VENDOR_PATCH_VERSION;
}
HEDDLE_HD_BODY void* nvshmem_ptr(const void* ptr, int pe) {
  using namespace heddle::device;
  const HeapView& view = device_state().view;
  if (view.direct == 0 || !is_pe(view, pe) || !in_heap(view, ptr, 1)) return nullptr;
  return const_cast<void*>(static_cast<const void*>(translate(view, static_cast<const char*>(ptr), pe)));
}
HEDDLE_HD_BODY void* nvshmemx_mc_ptr(nvshmem_team_t, const void*) { return nullptr; }

/// Leaves the wish for the host to carry out, and ends the thread.
HEDDLE_HD_BODY void nvshmem_global_exit(int status) {
  heddle::device::require_world("nvshmem_global_exit");
  heddle::device::ask_for_exit(status);
  heddle::device::exit_thread();
}

HEDDLE_HD_BODY int nvshmem_team_my_pe(nvshmem_team_t team) {
  const auto view = heddle::device::team_view(team);
  return view.size == 0 ? -1 : view.index_of(heddle::device::device_state().view.my_pe);
}
HEDDLE_HD_BODY int nvshmem_team_n_pes(nvshmem_team_t team) {
  const int size = heddle::device::team_view(team).size;
  return size == 0 ? -1 : size;
}
HEDDLE_HD_BODY int nvshmem_team_translate_pe(nvshmem_team_t src_team, int src_pe, nvshmem_team_t dest_team) {
  const auto from = heddle::device::team_view(src_team), to = heddle::device::team_view(dest_team);
  if (src_pe < 0 || src_pe >= from.size || to.size == 0) return -1;
  return to.index_of(from.pe_at(src_pe));
}
HEDDLE_HD_BODY int nvshmemx_region_is_active(uint32_t hints, int* active) {
  if (active == nullptr) return NVSHMEMX_ERROR_INVALID_VALUE;
  *active = heddle::device::region_is_active(hints) ? 1 : 0;
  return NVSHMEMX_SUCCESS;
}

HEDDLE_D_BODY int nvshmemx_region_start_block(nvshmemx_region_handle_t* handle, const nvshmemx_region_attrs_t* attrs) {
  const uint32_t hints = attrs == nullptr ? 0 : attrs->hints;
  const bool known = (hints & ~static_cast<uint32_t>(NVSHMEMX_REGION_HINT_BATCH_RMA)) == 0;
  if (handle == nullptr || !known) return NVSHMEMX_ERROR_INVALID_VALUE;
  return heddle::device::start_region(handle, hints);
}
HEDDLE_D_BODY int nvshmemx_region_stop_block(nvshmemx_region_handle_t handle) {
  return heddle::device::stop_region(handle);
}

HEDDLE_HD_BODY int nvshmemx_ask_smem(nvshmemx_smem_amount_t flag) { return heddle::device::smem_to_give(flag); }
HEDDLE_D_BODY void nvshmemx_give_smem(void* smem, size_t size) { heddle::device::give_smem(smem, size); }
HEDDLE_D_BODY void nvshmemx_release_smem(void) { heddle::device::release_smem(); }

// ---- order and synchronisation

HEDDLE_HD_BODY void nvshmem_fence(void) {
  heddle::device::check_world("nvshmem_fence");
  heddle::device::fence_release();
}
HEDDLE_HD_BODY void nvshmem_quiet(void) {
  heddle::device::check_world("nvshmem_quiet");
  heddle::device::fence_system();
}
/// Sources have been read when a put returns.
HEDDLE_HD_BODY void nvshmemx_flush(void) {}
HEDDLE_D_BODY void nvshmemx_flush_warp(void) { heddle::device::WarpScope().sync(); }
HEDDLE_D_BODY void nvshmemx_flush_block(void) { heddle::device::BlockScope().sync(); }

// The group meets first, so that each member's own fence covers what the others have put.
#define HEDDLE_QUEUE_ORDER(SUFFIX, SCOPE)                                         \
  HEDDLE_D_BODY void nvshmemx_qp_fence##SUFFIX(int, nvshmemx_qp_handle_t*, int) { \
    heddle::device::SCOPE().sync();                                               \
    heddle::device::fence_release();                                              \
  }                                                                               \
  HEDDLE_D_BODY void nvshmemx_qp_quiet##SUFFIX(int, nvshmemx_qp_handle_t*, int) { \
    heddle::device::SCOPE().sync();                                               \
    heddle::device::fence_system();                                               \
  }
HEDDLE_QUEUE_ORDER(, ThreadScope)
HEDDLE_QUEUE_ORDER(_warp, WarpScope)
HEDDLE_QUEUE_ORDER(_block, BlockScope)
#undef HEDDLE_QUEUE_ORDER

// A barrier is a sync here: puts are stores, and both complete them.
#define HEDDLE_MEET_ALL(SPACE, NAME, SCOPE) \
  SPACE void NAME(void) { heddle::device::meet_all<heddle::device::SCOPE>(#NAME); }
HEDDLE_MEET_ALL(HEDDLE_HD_BODY, nvshmem_barrier_all, ThreadScope)
HEDDLE_MEET_ALL(HEDDLE_HD_BODY, nvshmem_sync_all, ThreadScope)
HEDDLE_MEET_ALL(HEDDLE_D_BODY, nvshmemx_barrier_all_warp, WarpScope)
HEDDLE_MEET_ALL(HEDDLE_D_BODY, nvshmemx_sync_all_warp, WarpScope)
HEDDLE_MEET_ALL(HEDDLE_D_BODY, nvshmemx_barrier_all_block, BlockScope)
HEDDLE_MEET_ALL(HEDDLE_D_BODY, nvshmemx_sync_all_block, BlockScope)
#undef HEDDLE_MEET_ALL
#define HEDDLE_MEET_TEAM(SPACE, NAME, SCOPE) \
  SPACE int NAME(nvshmem_team_t team) { return heddle::device::meet_team<heddle::device::SCOPE>(#NAME, team); }
HEDDLE_MEET_TEAM(HEDDLE_HD_BODY, nvshmem_barrier, ThreadScope)
HEDDLE_MEET_TEAM(HEDDLE_HD_BODY, nvshmem_team_sync, ThreadScope)
HEDDLE_MEET_TEAM(HEDDLE_D_BODY, nvshmemx_barrier_warp, WarpScope)
HEDDLE_MEET_TEAM(HEDDLE_D_BODY, nvshmemx_team_sync_warp, WarpScope)
HEDDLE_MEET_TEAM(HEDDLE_D_BODY, nvshmemx_barrier_warpgroup, WarpgroupScope)
HEDDLE_MEET_TEAM(HEDDLE_D_BODY, nvshmemx_barrier_block, BlockScope)
HEDDLE_MEET_TEAM(HEDDLE_D_BODY, nvshmemx_team_sync_block, BlockScope)
#undef HEDDLE_MEET_TEAM

// ---- put and get

// Macros end in the last parameters of the names: `int pe`, and for names of a queue its handle. What is mapped is
// reached without a queue, so no handle is looked at.

// All forms of one name: blocking and nbi, by thread, warp and block. ELEMENT: bytes of an element.
#define HEDDLE_RMA_FORM(SPACE, PREFIX, PUT, GET, TYPE, ELEMENT, NBI, BLOCKING, SUFFIX, SCOPE, ...)                  \
  SPACE void PREFIX##PUT##NBI##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems, __VA_ARGS__) {                 \
    heddle::device::put<heddle::device::SCOPE, BLOCKING>(#PREFIX #PUT #NBI #SUFFIX, dest, source,                   \
                                                         heddle::device::bytes_of(nelems, ELEMENT), ELEMENT, pe);   \
  }                                                                                                                 \
  SPACE void PREFIX##GET##NBI##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems, __VA_ARGS__) {                 \
    heddle::device::get<heddle::device::SCOPE, BLOCKING>(#PREFIX #GET #NBI #SUFFIX, dest, source,                   \
                                                         heddle::device::bytes_of(nelems, ELEMENT), ELEMENT, pe);   \
  }                                                                                                                 \
  SPACE void PREFIX##PUT##_signal##NBI##SUFFIX(TYPE* dest, const TYPE* source, size_t nelems, uint64_t* sig_addr,   \
                                               uint64_t signal, int sig_op, __VA_ARGS__) {                          \
    heddle::device::put_signal<heddle::device::SCOPE, BLOCKING>(#PREFIX #PUT "_signal" #NBI #SUFFIX, dest, source,  \
                                                                heddle::device::bytes_of(nelems, ELEMENT), ELEMENT, \
                                                                sig_addr, signal, sig_op, pe);                      \
  }
#define HEDDLE_RMA_SCOPES(SPACE, PREFIX, GROUP, PUT, GET, TYPE, ELEMENT, NBI, BLOCKING, ...)                   \
  HEDDLE_RMA_FORM(SPACE, PREFIX, PUT, GET, TYPE, ELEMENT, NBI, BLOCKING, , ThreadScope, __VA_ARGS__)           \
  HEDDLE_RMA_FORM(HEDDLE_D_BODY, GROUP, PUT, GET, TYPE, ELEMENT, NBI, BLOCKING, _warp, WarpScope, __VA_ARGS__) \
  HEDDLE_RMA_FORM(HEDDLE_D_BODY, GROUP, PUT, GET, TYPE, ELEMENT, NBI, BLOCKING, _block, BlockScope, __VA_ARGS__)
#define HEDDLE_RMA_BODIES(SPACE, PREFIX, GROUP, PUT, GET, TYPE, ELEMENT, ...)           \
  HEDDLE_RMA_SCOPES(SPACE, PREFIX, GROUP, PUT, GET, TYPE, ELEMENT, , true, __VA_ARGS__) \
  HEDDLE_RMA_SCOPES(SPACE, PREFIX, GROUP, PUT, GET, TYPE, ELEMENT, _nbi, false, __VA_ARGS__)
#define HEDDLE_ELEMENT_BODIES(SPACE, PREFIX, NAME, TYPE, ...)                                   \
  SPACE void PREFIX##NAME##_p(TYPE* dest, const TYPE value, __VA_ARGS__) {                      \
    heddle::device::store_relaxed(heddle::device::at_pe(#PREFIX #NAME "_p", dest, pe), value);  \
  }                                                                                             \
  SPACE TYPE PREFIX##NAME##_g(const TYPE* source, __VA_ARGS__) {                                \
    return heddle::device::load_relaxed(heddle::device::at_pe(#PREFIX #NAME "_g", source, pe)); \
  }

#define HEDDLE_STRIDED_FORM(SPACE, PREFIX, IPUT, IGET, TYPE, ELEMENT, SUFFIX, SCOPE)                                 \
  SPACE void PREFIX##IPUT##SUFFIX(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,       \
                                  int pe) {                                                                          \
    heddle::device::iput<heddle::device::SCOPE, ELEMENT>(#PREFIX #IPUT #SUFFIX, dest, source, dst, sst, nelems, pe); \
  }                                                                                                                  \
  SPACE void PREFIX##IGET##SUFFIX(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,       \
                                  int pe) {                                                                          \
    heddle::device::iget<heddle::device::SCOPE, ELEMENT>(#PREFIX #IGET #SUFFIX, dest, source, dst, sst, nelems, pe); \
  }
#define HEDDLE_STRIDED_BODIES(IPUT, IGET, TYPE, ELEMENT)                                     \
  HEDDLE_STRIDED_FORM(HEDDLE_HD_BODY, nvshmem_, IPUT, IGET, TYPE, ELEMENT, , ThreadScope)    \
  HEDDLE_STRIDED_FORM(HEDDLE_D_BODY, nvshmemx_, IPUT, IGET, TYPE, ELEMENT, _warp, WarpScope) \
  HEDDLE_STRIDED_FORM(HEDDLE_D_BODY, nvshmemx_, IPUT, IGET, TYPE, ELEMENT, _block, BlockScope)

#define HEDDLE_TYPED_BODIES(NAME, TYPE)                                                                            \
  HEDDLE_RMA_BODIES(HEDDLE_HD_BODY, nvshmem_, nvshmemx_, NAME##_put, NAME##_get, TYPE, sizeof(TYPE), int pe)       \
  HEDDLE_RMA_BODIES(HEDDLE_D_BODY, nvshmemx_qp_, nvshmemx_qp_, NAME##_put, NAME##_get, TYPE, sizeof(TYPE), int pe, \
                    nvshmemx_qp_handle_t)                                                                          \
  HEDDLE_ELEMENT_BODIES(HEDDLE_HD_BODY, nvshmem_, NAME, TYPE, int pe)                                              \
  HEDDLE_ELEMENT_BODIES(HEDDLE_D_BODY, nvshmemx_qp_, NAME, TYPE, int pe, nvshmemx_qp_handle_t)                     \
  HEDDLE_STRIDED_BODIES(NAME##_iput, NAME##_iget, TYPE, sizeof(TYPE))
HEDDLE_RMA_TYPES(HEDDLE_TYPED_BODIES)
#undef HEDDLE_TYPED_BODIES
#undef HEDDLE_ELEMENT_BODIES

#define HEDDLE_SIZED_BODIES(BITS)                                                                        \
  HEDDLE_RMA_BODIES(HEDDLE_HD_BODY, nvshmem_, nvshmemx_, put##BITS, get##BITS, void, (BITS / 8), int pe) \
  HEDDLE_STRIDED_BODIES(iput##BITS, iget##BITS, void, (BITS / 8))
HEDDLE_SIZES(HEDDLE_SIZED_BODIES)
#undef HEDDLE_SIZED_BODIES
HEDDLE_RMA_BODIES(HEDDLE_HD_BODY, nvshmem_, nvshmemx_, putmem, getmem, void, 1, int pe)
#undef HEDDLE_RMA_BODIES
#undef HEDDLE_STRIDED_BODIES
#undef HEDDLE_RMA_SCOPES
#undef HEDDLE_RMA_FORM
#undef HEDDLE_STRIDED_FORM

// ---- signals

#define HEDDLE_SIGNAL_OP(SPACE, NAME, ...)                                                      \
  SPACE void NAME(uint64_t* sig_addr, uint64_t signal, int sig_op, __VA_ARGS__) {               \
    heddle::device::check_signal_op(#NAME, sig_op, pe, sig_addr);                               \
    heddle::device::signal_relaxed(heddle::device::at_pe(#NAME, sig_addr, pe), signal, sig_op); \
  }
HEDDLE_SIGNAL_OP(HEDDLE_HD_BODY, nvshmemx_signal_op, int pe)
HEDDLE_SIGNAL_OP(HEDDLE_D_BODY, nvshmemx_qp_signal_op, int pe, nvshmemx_qp_handle_t)
#undef HEDDLE_SIGNAL_OP
HEDDLE_HD_BODY uint64_t nvshmem_signal_fetch(uint64_t* sig_addr) {
  heddle::device::check_own("nvshmem_signal_fetch", sig_addr, sizeof *sig_addr, sizeof *sig_addr);
  return heddle::device::load_acquire(sig_addr);
}
HEDDLE_HD_BODY uint64_t nvshmem_signal_wait_until(uint64_t* sig_addr, int cmp, uint64_t cmp_val) {
  return heddle::device::wait_for_signal("nvshmem_signal_wait_until", sig_addr, cmp, cmp_val);
}
HEDDLE_D_BODY int nvshmemx_putmem_signal_counted_nbi_block(void* dest, const void* source, size_t bytes,
                                                           uint64_t* signal_addr, int pe) {
  return heddle::device::put_counted("nvshmemx_putmem_signal_counted_nbi_block", dest, source, bytes, signal_addr, pe);
}
HEDDLE_HD_BODY uint64_t nvshmemx_signal_counted_load(const uint64_t* signal_addr) {
  heddle::device::check_own("nvshmemx_signal_counted_load", signal_addr, sizeof *signal_addr, 256);
  return heddle::device::load_relaxed(signal_addr);
}
HEDDLE_HD_BODY void nvshmemx_signal_counted_wait_until(const uint64_t* signal_addr, uint64_t expected) {
  heddle::device::wait_for_counter("nvshmemx_signal_counted_wait_until", signal_addr, expected);
}
HEDDLE_HD_BODY void nvshmemx_signal_counted_reset(uint64_t* signal_addr) {
  heddle::device::check_own("nvshmemx_signal_counted_reset", signal_addr, sizeof *signal_addr, 256);
  heddle::device::store_relaxed(signal_addr, uint64_t{0});
}

// ---- atomics

#define HEDDLE_AT(NAME, OP) heddle::device::at_pe("nvshmem_" #NAME "_atomic_" #OP, dest, pe)
#define HEDDLE_EXTENDED_BODIES(NAME, TYPE)                                           \
  HEDDLE_HD_BODY TYPE nvshmem_##NAME##_atomic_fetch(const TYPE* dest, int pe) {      \
    return heddle::device::load_relaxed(HEDDLE_AT(NAME, fetch));                     \
  }                                                                                  \
  HEDDLE_HD_BODY void nvshmem_##NAME##_atomic_set(TYPE* dest, TYPE value, int pe) {  \
    heddle::device::store_relaxed(HEDDLE_AT(NAME, set), value);                      \
  }                                                                                  \
  HEDDLE_HD_BODY TYPE nvshmem_##NAME##_atomic_swap(TYPE* dest, TYPE value, int pe) { \
    return heddle::device::atomic_exchange(HEDDLE_AT(NAME, swap), value);            \
  }
HEDDLE_AMO_EXTENDED_TYPES(HEDDLE_EXTENDED_BODIES)
#undef HEDDLE_EXTENDED_BODIES

#define HEDDLE_STANDARD_BODIES(NAME, TYPE)                                                              \
  HEDDLE_HD_BODY void nvshmem_##NAME##_atomic_inc(TYPE* dest, int pe) {                                 \
    (void)heddle::device::fetch_add(HEDDLE_AT(NAME, inc), static_cast<TYPE>(1));                        \
  }                                                                                                     \
  HEDDLE_HD_BODY TYPE nvshmem_##NAME##_atomic_fetch_inc(TYPE* dest, int pe) {                           \
    return heddle::device::fetch_add(HEDDLE_AT(NAME, fetch_inc), static_cast<TYPE>(1));                 \
  }                                                                                                     \
  HEDDLE_HD_BODY void nvshmem_##NAME##_atomic_add(TYPE* dest, TYPE value, int pe) {                     \
    (void)heddle::device::fetch_add(HEDDLE_AT(NAME, add), value);                                       \
  }                                                                                                     \
  HEDDLE_HD_BODY TYPE nvshmem_##NAME##_atomic_fetch_add(TYPE* dest, TYPE value, int pe) {               \
    return heddle::device::fetch_add(HEDDLE_AT(NAME, fetch_add), value);                                \
  }                                                                                                     \
  HEDDLE_HD_BODY TYPE nvshmem_##NAME##_atomic_compare_swap(TYPE* dest, TYPE cond, TYPE value, int pe) { \
    return heddle::device::atomic_compare_exchange(HEDDLE_AT(NAME, compare_swap), cond, value);         \
  }
HEDDLE_AMO_STANDARD_TYPES(HEDDLE_STANDARD_BODIES)
#undef HEDDLE_STANDARD_BODIES

#define HEDDLE_BITWISE_BODY(NAME, TYPE, OP)                                                \
  HEDDLE_HD_BODY void nvshmem_##NAME##_atomic_##OP(TYPE* dest, TYPE value, int pe) {       \
    (void)heddle::device::atomic_fetch_##OP(HEDDLE_AT(NAME, OP), value);                   \
  }                                                                                        \
  HEDDLE_HD_BODY TYPE nvshmem_##NAME##_atomic_fetch_##OP(TYPE* dest, TYPE value, int pe) { \
    return heddle::device::atomic_fetch_##OP(HEDDLE_AT(NAME, fetch_##OP), value);          \
  }
#define HEDDLE_BITWISE_BODIES(NAME, TYPE) \
  HEDDLE_BITWISE_BODY(NAME, TYPE, and)    \
  HEDDLE_BITWISE_BODY(NAME, TYPE, or)     \
  HEDDLE_BITWISE_BODY(NAME, TYPE, xor)
HEDDLE_AMO_BITWISE_TYPES(HEDDLE_BITWISE_BODIES)
#undef HEDDLE_BITWISE_BODIES
#undef HEDDLE_BITWISE_BODY
#undef HEDDLE_AT

#define HEDDLE_FLOAT_BODIES(NAME, TYPE)                                                                              \
  HEDDLE_HD_BODY void nvshmemx_##NAME##_atomic_add(TYPE* dest, TYPE value, int pe) {                                 \
    (void)heddle::device::fetch_add(heddle::device::at_pe("nvshmemx_" #NAME "_atomic_add", dest, pe), value);        \
  }                                                                                                                  \
  HEDDLE_HD_BODY TYPE nvshmemx_##NAME##_atomic_fetch_add(TYPE* dest, TYPE value, int pe) {                           \
    return heddle::device::fetch_add(heddle::device::at_pe("nvshmemx_" #NAME "_atomic_fetch_add", dest, pe), value); \
  }
HEDDLE_AMO_FLOAT_TYPES(HEDDLE_FLOAT_BODIES)
#undef HEDDLE_FLOAT_BODIES

// ---- wait and test

#define HEDDLE_WAIT_BODIES(NAME, TYPE)                                                                                 \
  HEDDLE_HD_BODY void nvshmem_##NAME##_wait_until(TYPE* ivar, int cmp, TYPE cmp_value) {                               \
    heddle::device::wait_all("nvshmem_" #NAME "_wait_until", ivar, 1, nullptr, cmp,                                    \
                             heddle::device::OneValue<TYPE>{cmp_value});                                               \
  }                                                                                                                    \
  HEDDLE_HD_BODY void nvshmem_##NAME##_wait_until_all(TYPE* ivars, size_t nelems, const int* status, int cmp,          \
                                                      TYPE cmp_value) {                                                \
    heddle::device::wait_all("nvshmem_" #NAME "_wait_until_all", ivars, nelems, status, cmp,                           \
                             heddle::device::OneValue<TYPE>{cmp_value});                                               \
  }                                                                                                                    \
  HEDDLE_HD_BODY size_t nvshmem_##NAME##_wait_until_any(TYPE* ivars, size_t nelems, const int* status, int cmp,        \
                                                        TYPE cmp_value) {                                              \
    return heddle::device::wait_any("nvshmem_" #NAME "_wait_until_any", ivars, nelems, status, cmp,                    \
                                    heddle::device::OneValue<TYPE>{cmp_value});                                        \
  }                                                                                                                    \
  HEDDLE_HD_BODY size_t nvshmem_##NAME##_wait_until_some(TYPE* ivars, size_t nelems, size_t* indices,                  \
                                                         const int* status, int cmp, TYPE cmp_value) {                 \
    return heddle::device::wait_some("nvshmem_" #NAME "_wait_until_some", ivars, nelems, indices, status, cmp,         \
                                     heddle::device::OneValue<TYPE>{cmp_value});                                       \
  }                                                                                                                    \
  HEDDLE_HD_BODY void nvshmem_##NAME##_wait_until_all_vector(TYPE* ivars, size_t nelems, const int* status, int cmp,   \
                                                             TYPE* cmp_values) {                                       \
    heddle::device::wait_all("nvshmem_" #NAME "_wait_until_all_vector", ivars, nelems, status, cmp, cmp_values);       \
  }                                                                                                                    \
  HEDDLE_HD_BODY size_t nvshmem_##NAME##_wait_until_any_vector(TYPE* ivars, size_t nelems, const int* status, int cmp, \
                                                               TYPE* cmp_values) {                                     \
    return heddle::device::wait_any("nvshmem_" #NAME "_wait_until_any_vector", ivars, nelems, status, cmp,             \
                                    cmp_values);                                                                       \
  }                                                                                                                    \
  HEDDLE_HD_BODY size_t nvshmem_##NAME##_wait_until_some_vector(TYPE* ivars, size_t nelems, size_t* indices,           \
                                                                const int* status, int cmp, TYPE* cmp_values) {        \
    return heddle::device::wait_some("nvshmem_" #NAME "_wait_until_some_vector", ivars, nelems, indices, status, cmp,  \
                                     cmp_values);                                                                      \
  }                                                                                                                    \
  HEDDLE_HD_BODY int nvshmem_##NAME##_test(TYPE* ivar, int cmp, TYPE cmp_value) {                                      \
    heddle::device::check_compare("nvshmem_" #NAME "_test", ivar, 1, cmp);                                             \
    return heddle::device::test(ivar, cmp, cmp_value) ? 1 : 0;                                                         \
  }                                                                                                                    \
  HEDDLE_HD_BODY int nvshmem_##NAME##_test_all(TYPE* ivars, size_t nelems, const int* status, int cmp,                 \
                                               TYPE cmp_value) {                                                       \
    heddle::device::check_compare("nvshmem_" #NAME "_test_all", ivars, nelems, cmp);                                   \
    return heddle::device::test_all(ivars, nelems, status, cmp, heddle::device::OneValue<TYPE>{cmp_value}) ? 1 : 0;    \
  }                                                                                                                    \
  HEDDLE_HD_BODY size_t nvshmem_##NAME##_test_any(TYPE* ivars, size_t nelems, const int* status, int cmp,              \
                                                  TYPE cmp_value) {                                                    \
    heddle::device::check_compare("nvshmem_" #NAME "_test_any", ivars, nelems, cmp);                                   \
    return heddle::device::test_any(ivars, nelems, status, cmp, heddle::device::OneValue<TYPE>{cmp_value});            \
  }                                                                                                                    \
  HEDDLE_HD_BODY size_t nvshmem_##NAME##_test_some(TYPE* ivars, size_t nelems, size_t* indices, const int* status,     \
                                                   int cmp, TYPE cmp_value) {                                          \
    heddle::device::check_compare("nvshmem_" #NAME "_test_some", ivars, nelems, cmp);                                  \
    heddle::device::check_local("nvshmem_" #NAME "_test_some", indices,                                                \
                                heddle::device::bytes_of(nelems, sizeof(size_t)), sizeof(size_t));                     \
    return heddle::device::test_some(ivars, nelems, indices, status, cmp, heddle::device::OneValue<TYPE>{cmp_value});  \
  }                                                                                                                    \
  HEDDLE_HD_BODY int nvshmem_##NAME##_test_all_vector(TYPE* ivars, size_t nelems, const int* status, int cmp,          \
                                                      TYPE* cmp_values) {                                              \
    heddle::device::check_compare("nvshmem_" #NAME "_test_all_vector", ivars, nelems, cmp);                            \
    heddle::device::check_references("nvshmem_" #NAME "_test_all_vector", cmp_values, nelems);                         \
    return heddle::device::test_all(ivars, nelems, status, cmp, cmp_values) ? 1 : 0;                                   \
  }                                                                                                                    \
  HEDDLE_HD_BODY size_t nvshmem_##NAME##_test_any_vector(TYPE* ivars, size_t nelems, const int* status, int cmp,       \
                                                         TYPE* cmp_values) {                                           \
    heddle::device::check_compare("nvshmem_" #NAME "_test_any_vector", ivars, nelems, cmp);                            \
    heddle::device::check_references("nvshmem_" #NAME "_test_any_vector", cmp_values, nelems);                         \
    return heddle::device::test_any(ivars, nelems, status, cmp, cmp_values);                                           \
  }                                                                                                                    \
  HEDDLE_HD_BODY size_t nvshmem_##NAME##_test_some_vector(TYPE* ivars, size_t nelems, size_t* indices,                 \
                                                          const int* status, int cmp, TYPE* cmp_values) {              \
    heddle::device::check_compare("nvshmem_" #NAME "_test_some_vector", ivars, nelems, cmp);                           \
    heddle::device::check_local("nvshmem_" #NAME "_test_some_vector", indices,                                         \
                                heddle::device::bytes_of(nelems, sizeof(size_t)), sizeof(size_t));                     \
    heddle::device::check_references("nvshmem_" #NAME "_test_some_vector", cmp_values, nelems);                        \
    return heddle::device::test_some(ivars, nelems, indices, status, cmp, cmp_values);                                 \
  }
HEDDLE_WAIT_TYPES(HEDDLE_WAIT_BODIES)
#undef HEDDLE_WAIT_BODIES

}  // extern "C"

#undef HEDDLE_HD_BODY
#undef HEDDLE_D_BODY
