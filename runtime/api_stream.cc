// The on_stream names of the C API and the modules that are loaded by hand, generated from include/nvshmem_names.h.
#include <cstdint>
#include <type_traits>

#include "device/half_convert.h"
#include "include/nvshmem_host.h"
#include "include/nvshmemx_stream.h"
#include "runtime/device_state.h"
#include "runtime/global.h"
#include "runtime/host_rma.h"
#include "runtime/stream_ops.h"

namespace heddle {
namespace {

using stream::Way;

/// `count` elements in bytes; a product that overflows becomes a size that no heap holds.
size_t bytes_of(size_t count, size_t element) { return count <= SIZE_MAX / element ? count * element : SIZE_MAX; }

/// The world when on_stream calls can be made on `to`, and how; else nullptr, and the reason is reported.
World* enter(const char* call, cudaStream_t to, Way* way) {
  World* const w = world();
  if (w == nullptr) return report_no_world(call), nullptr;
  *way = stream::way_of(*w);
  if (*way == Way::kAtOnce) return w;
  const Status refused = *way == Way::kRefuse ? stream::refusal(*w) : stream::check(*w, to);
  return report(call, refused).is_ok() ? w : nullptr;
}

/// What a call reads or writes on this PE's side.
struct Local {
  const char* name = "";  ///< the argument's
  const void* at = nullptr;
  uint64_t bytes = 0;
};

/// What the calls share: `range` of symmetric memory at `pe` and the local side are checked, then one of the two bodies
/// is run. Calls at once check their local side themselves.
template <class AtOnce, class Enqueue>
void make_call(const char* call, cudaStream_t to, const void* range, uint64_t bytes, int pe, const Local& local,
               AtOnce&& at_once, Enqueue&& enqueue) {
  Way way{};
  World* const w = enter(call, to, &way);
  if (w == nullptr) return;
  if (way == Way::kAtOnce) return at_once(*w);
  if (host::reported_bad(*w, call, range, bytes, pe)) return;
  if (host::reported_bad_local(*w, call, local.name, local.at, local.bytes)) return;
  (void)report(call, guarded([&] { return enqueue(*w); }));
}

// ---- put and get

void put(const char* call, void* dest, const void* source, size_t bytes, int pe, cudaStream_t to) {
  make_call(
      call, to, dest, bytes, pe, {"source", source, bytes},
      [&](World& w) { host::put(w, call, dest, source, bytes, pe); },
      [&](World& w) { return stream::put(w, dest, source, bytes, pe, to); });
}

void get(const char* call, void* dest, const void* source, size_t bytes, int pe, cudaStream_t to) {
  make_call(
      call, to, source, bytes, pe, {"destination", dest, bytes},
      [&](World& w) { host::get(w, call, dest, source, bytes, pe); },
      [&](World& w) { return stream::get(w, dest, source, bytes, pe, to); });
}

template <class T>
void p(const char* call, T* dest, T value, int pe, cudaStream_t to) {
  make_call(
      call, to, dest, sizeof(T), pe, {}, [&](World& w) { host::p(w, call, dest, value, pe); },
      [&](World& w) { return stream::store(w, dest, &value, sizeof(T), pe, to); });
}

template <class T>
T g(const char* call, const T* source, int pe, cudaStream_t to) {
  T value{};
  make_call(
      call, to, source, sizeof(T), pe, {}, [&](World& w) { value = host::g(w, call, source, pe); },
      [&](World& w) { return stream::load(w, &value, source, sizeof(T), pe, to); });
  return value;
}

/// What strided calls move at once.
template <size_t kBytes>
struct [[gnu::packed]] Element {
  unsigned char bytes[kBytes];
};

/// True, and reported, when strides are below 1 or `count` elements at them do not fit into an address space.
bool reported_bad_strides(const char* call, ptrdiff_t dst, ptrdiff_t sst, size_t count, size_t element) {
  if (host::reported_bad_stride(call, dst, sst)) return true;
  const auto larger = static_cast<uint64_t>(dst > sst ? dst : sst);
  if (count == 0 || larger <= (UINT64_MAX >> 1) / element / count) return false;
  (void)report(call, error(Code::kInvalidValue, "%zu elements of %zu bytes at stride %llu span more than all addresses",
                           count, element, static_cast<unsigned long long>(larger)));
  return true;
}

template <size_t kBytes>
void strided(const char* call, bool is_get, void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t count,
             int pe, cudaStream_t to) {
  using T = Element<kBytes>;
  if (world() != nullptr && reported_bad_strides(call, dst, sst, count, kBytes)) return;
  const StridedTask task{dest, source, dst, sst, count, static_cast<uint32_t>(kBytes), is_get ? 1U : 0U};
  const auto at_once = [&](World& w) {
    if (is_get) {
      host::iget(w, call, static_cast<T*>(dest), static_cast<const T*>(source), dst, sst, count, pe);
    } else {
      host::iput(w, call, static_cast<T*>(dest), static_cast<const T*>(source), dst, sst, count, pe);
    }
  };
  // Strides below 1 come here only without a world.
  const auto span = [&](ptrdiff_t stride) { return stride < 1 ? 0 : host::strided_bytes(stride, count, kBytes); };
  const Local local = is_get ? Local{"destination", dest, span(dst)} : Local{"source", source, span(sst)};
  make_call(call, to, is_get ? source : dest, span(is_get ? sst : dst), pe, local, at_once,
            [&](World& w) { return stream::strided(w, task, pe, to); });
}

// ---- signals and waits

void put_signal(const char* call, void* dest, const void* source, size_t bytes, uint64_t* sig_addr, uint64_t signal,
                int sig_op, int pe, cudaStream_t to) {
  if (world() != nullptr && host::reported_bad_signal_op(call, sig_op)) return;
  make_call(
      call, to, dest, bytes, pe, {"source", source, bytes},
      [&](World& w) { host::put_signal(w, call, dest, source, bytes, sig_addr, signal, sig_op, pe); },
      [&](World& w) -> Status {
        HEDDLE_RETURN_IF_ERROR(host::check_range(w, sig_addr, sizeof *sig_addr, pe));
        return stream::put_signal(w, dest, source, bytes, sig_addr, signal, sig_op, pe, to);
      });
}

void signal_op(const char* call, uint64_t* sig_addr, uint64_t signal, int sig_op, int pe, cudaStream_t to) {
  if (world() != nullptr && host::reported_bad_signal_op(call, sig_op)) return;
  make_call(
      call, to, sig_addr, sizeof *sig_addr, pe, {},
      [&](World& w) { host::signal_op(w, call, sig_addr, signal, sig_op, pe); },
      [&](World& w) { return stream::signal(w, sig_addr, signal, sig_op, pe, to); });
}

bool reported_bad_cmp(const char* call, int cmp) {
  if (world() == nullptr || (cmp >= NVSHMEM_CMP_EQ && cmp <= NVSHMEM_CMP_GE)) return false;
  (void)report(call,
               error(Code::kInvalidValue, "comparison %d is none of NVSHMEM_CMP_EQ (0) to NVSHMEM_CMP_GE (5)", cmp));
  return true;
}

/// All forms: `references` is nullptr, and `reference` for all, or one value each.
template <class T>
void wait(const char* call, const T* ivars, size_t count, const int* status, int cmp, T reference, const T* references,
          bool has_references, cudaStream_t to) {
  if (reported_bad_cmp(call, cmp)) return;
  World* const present = world();
  if (present != nullptr && has_references && references == nullptr && count > 0) {
    (void)report(call, error(Code::kInvalidValue, "cmp_value is NULL for %zu variables", count));
    return;
  }
  const int me = present == nullptr ? 0 : present->my_pe();
  const auto at_once = [&](World& w) {
    if (host::reported_bad(w, call, ivars, bytes_of(count, sizeof(T)), me)) return;
    Waiter pause(w.wait_context());
    const bool seen = has_references
                          ? device::wait_until_all(ivars, count, status, cmp, references, pause)
                          : device::wait_until_all(ivars, count, status, cmp, device::OneValue<T>{reference}, pause);
    if (seen) return;
    if (has_references) return host::report_wait(w, call, pause, ivars, ivars, count, status, cmp, references);
    host::report_wait(w, call, pause, ivars, ivars, count, status, cmp, device::OneValue<T>{reference});
  };
  WaitTask task{};
  task.variables = ivars;
  task.count = count;
  task.status = status;
  task.references = has_references ? references : nullptr;
  task.reference = device::to_word(reference);
  task.cmp = cmp;
  task.element = sizeof(T);
  task.is_signed = std::is_signed_v<T> ? 1 : 0;
  make_call(call, to, ivars, bytes_of(count, sizeof(T)), me, {}, at_once, [&](World& w) -> Status {
    if (status != nullptr) {
      HEDDLE_RETURN_IF_ERROR(host::check_local(w, "status", status, bytes_of(count, sizeof *status)));
    }
    if (has_references) {
      HEDDLE_RETURN_IF_ERROR(host::check_local(w, "cmp_value", references, bytes_of(count, sizeof(T))));
    }
    return stream::wait(w, task, to);
  });
}

// ---- order and synchronisation

void quiet(const char* call, cudaStream_t to) {
  Way way{};
  World* const w = enter(call, to, &way);
  if (w == nullptr) return;
  (void)report(call, guarded([&] { return way == Way::kAtOnce ? w->quiet() : stream::quiet(*w, to); }));
}

int barrier(const char* call, nvshmem_team_t team, bool complete, cudaStream_t to) {
  World* const present = world();
  if (present == nullptr) return report_no_world(call), kNoWorldCode;
  Way way{};
  World* const w = enter(call, to, &way);
  if (w == nullptr) return way == Way::kRefuse ? NVSHMEMX_ERROR_NOT_SUPPORTED : NVSHMEMX_ERROR_INVALID_VALUE;
  const int members = nvshmem_team_n_pes(team);  // reports a team that does not exist
  if (members < 0) {
    if (team < 0 || team >= NVSHMEM_TEAMS_MIN) return NVSHMEMX_ERROR_INVALID_VALUE;
    return report(call, error(Code::kInvalidValue, "PE %d is not in team %d", w->my_pe(), team)).nvshmem_code();
  }
  const auto body = [&]() -> Status {
    if (members == 1) {
      if (!complete) return Status::ok();
      return way == Way::kAtOnce ? w->quiet() : stream::quiet(*w, to);
    }
    if (members != w->n_pes()) {
      return error(Code::kNotSupported,
                   "team %d has %d of %d PEs; teams other than all PEs or this PE alone cannot synchronise on a stream "
                   "yet: use NVSHMEM_TEAM_WORLD",
                   team, members, w->n_pes());
    }
    const std::lock_guard<std::mutex> lock(collective_mutex());
    if (way == Way::kAtOnce) return complete ? w->barrier_all() : w->sync_all();
    return stream::barrier(*w, complete, to);
  };
  return report(call, guarded(body)).nvshmem_code();
}

/// cumodule and culibrary calls.
template <class Body>
int on_module(const char* call, Body&& body) {
  if (world() == nullptr) return report_no_world(call), kNoWorldCode;
  return report(call, guarded(body)).nvshmem_code();
}

}  // namespace
}  // namespace heddle

using heddle::bytes_of;

#define HEDDLE_DEFINE_STREAM_RMA(NAME, TYPE)                                                                         \
  void nvshmemx_##NAME##_put_on_stream(TYPE* dest, const TYPE* source, size_t nelems, int pe, cudaStream_t cstrm) {  \
    heddle::put(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), pe, cstrm);                                  \
  }                                                                                                                  \
  void nvshmemx_##NAME##_put_nbi_on_stream(TYPE* dest, const TYPE* source, size_t nelems, int pe,                    \
                                           cudaStream_t cstrm) {                                                     \
    heddle::put(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), pe, cstrm);                                  \
  }                                                                                                                  \
  void nvshmemx_##NAME##_get_on_stream(TYPE* dest, const TYPE* source, size_t nelems, int pe, cudaStream_t cstrm) {  \
    heddle::get(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), pe, cstrm);                                  \
  }                                                                                                                  \
  void nvshmemx_##NAME##_get_nbi_on_stream(TYPE* dest, const TYPE* source, size_t nelems, int pe,                    \
                                           cudaStream_t cstrm) {                                                     \
    heddle::get(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), pe, cstrm);                                  \
  }                                                                                                                  \
  void nvshmemx_##NAME##_iput_on_stream(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, \
                                        int pe, cudaStream_t cstrm) {                                                \
    heddle::strided<sizeof(TYPE)>(__func__, false, dest, source, dst, sst, nelems, pe, cstrm);                       \
  }                                                                                                                  \
  void nvshmemx_##NAME##_iget_on_stream(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems, \
                                        int pe, cudaStream_t cstrm) {                                                \
    heddle::strided<sizeof(TYPE)>(__func__, true, dest, source, dst, sst, nelems, pe, cstrm);                        \
  }                                                                                                                  \
  void nvshmemx_##NAME##_p_on_stream(TYPE* dest, const TYPE value, int pe, cudaStream_t cstrm) {                     \
    heddle::p<TYPE>(__func__, dest, value, pe, cstrm);                                                               \
  }                                                                                                                  \
  TYPE nvshmemx_##NAME##_g_on_stream(const TYPE* src, int pe, cudaStream_t cstrm) {                                  \
    return heddle::g(__func__, src, pe, cstrm);                                                                      \
  }                                                                                                                  \
  void nvshmemx_##NAME##_put_signal_on_stream(TYPE* dest, const TYPE* source, size_t nelems, uint64_t* sig_addr,     \
                                              uint64_t signal, int sig_op, int pe, cudaStream_t cstrm) {             \
    heddle::put_signal(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), sig_addr, signal, sig_op, pe, cstrm); \
  }                                                                                                                  \
  void nvshmemx_##NAME##_put_signal_nbi_on_stream(TYPE* dest, const TYPE* source, size_t nelems, uint64_t* sig_addr, \
                                                  uint64_t signal, int sig_op, int pe, cudaStream_t cstrm) {         \
    heddle::put_signal(__func__, dest, source, bytes_of(nelems, sizeof(TYPE)), sig_addr, signal, sig_op, pe, cstrm); \
  }
HEDDLE_RMA_TYPES(HEDDLE_DEFINE_STREAM_RMA)

#define HEDDLE_DEFINE_STREAM_SIZED(BITS)                                                                               \
  void nvshmemx_put##BITS##_on_stream(void* dest, const void* source, size_t nelems, int pe, cudaStream_t cstrm) {     \
    heddle::put(__func__, dest, source, bytes_of(nelems, (BITS) / 8), pe, cstrm);                                      \
  }                                                                                                                    \
  void nvshmemx_put##BITS##_nbi_on_stream(void* dest, const void* source, size_t nelems, int pe, cudaStream_t cstrm) { \
    heddle::put(__func__, dest, source, bytes_of(nelems, (BITS) / 8), pe, cstrm);                                      \
  }                                                                                                                    \
  void nvshmemx_get##BITS##_on_stream(void* dest, const void* source, size_t nelems, int pe, cudaStream_t cstrm) {     \
    heddle::get(__func__, dest, source, bytes_of(nelems, (BITS) / 8), pe, cstrm);                                      \
  }                                                                                                                    \
  void nvshmemx_get##BITS##_nbi_on_stream(void* dest, const void* source, size_t nelems, int pe, cudaStream_t cstrm) { \
    heddle::get(__func__, dest, source, bytes_of(nelems, (BITS) / 8), pe, cstrm);                                      \
  }                                                                                                                    \
  void nvshmemx_iput##BITS##_on_stream(void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,    \
                                       int pe, cudaStream_t cstrm) {                                                   \
    heddle::strided<(BITS) / 8>(__func__, false, dest, source, dst, sst, nelems, pe, cstrm);                           \
  }                                                                                                                    \
  void nvshmemx_iget##BITS##_on_stream(void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,    \
                                       int pe, cudaStream_t cstrm) {                                                   \
    heddle::strided<(BITS) / 8>(__func__, true, dest, source, dst, sst, nelems, pe, cstrm);                            \
  }                                                                                                                    \
  void nvshmemx_put##BITS##_signal_on_stream(void* dest, const void* source, size_t nelems, uint64_t* sig_addr,        \
                                             uint64_t signal, int sig_op, int pe, cudaStream_t cstrm) {                \
    heddle::put_signal(__func__, dest, source, bytes_of(nelems, (BITS) / 8), sig_addr, signal, sig_op, pe, cstrm);     \
  }                                                                                                                    \
  void nvshmemx_put##BITS##_signal_nbi_on_stream(void* dest, const void* source, size_t nelems, uint64_t* sig_addr,    \
                                                 uint64_t signal, int sig_op, int pe, cudaStream_t cstrm) {            \
    heddle::put_signal(__func__, dest, source, bytes_of(nelems, (BITS) / 8), sig_addr, signal, sig_op, pe, cstrm);     \
  }
HEDDLE_SIZES(HEDDLE_DEFINE_STREAM_SIZED)

void nvshmemx_putmem_on_stream(void* dest, const void* source, size_t bytes, int pe, cudaStream_t cstrm) {
  heddle::put(__func__, dest, source, bytes, pe, cstrm);
}
void nvshmemx_putmem_nbi_on_stream(void* dest, const void* source, size_t bytes, int pe, cudaStream_t cstrm) {
  heddle::put(__func__, dest, source, bytes, pe, cstrm);
}
void nvshmemx_getmem_on_stream(void* dest, const void* source, size_t bytes, int pe, cudaStream_t cstrm) {
  heddle::get(__func__, dest, source, bytes, pe, cstrm);
}
void nvshmemx_getmem_nbi_on_stream(void* dest, const void* source, size_t bytes, int pe, cudaStream_t cstrm) {
  heddle::get(__func__, dest, source, bytes, pe, cstrm);
}
void nvshmemx_putmem_signal_on_stream(void* dest, const void* source, size_t bytes, uint64_t* sig_addr, uint64_t signal,
                                      int sig_op, int pe, cudaStream_t cstrm) {
  heddle::put_signal(__func__, dest, source, bytes, sig_addr, signal, sig_op, pe, cstrm);
}
void nvshmemx_putmem_signal_nbi_on_stream(void* dest, const void* source, size_t bytes, uint64_t* sig_addr,
                                          uint64_t signal, int sig_op, int pe, cudaStream_t cstrm) {
  heddle::put_signal(__func__, dest, source, bytes, sig_addr, signal, sig_op, pe, cstrm);
}

// ---- signals and waits

void nvshmemx_signal_op_on_stream(uint64_t* sig_addr, uint64_t signal, int sig_op, int pe, cudaStream_t cstrm) {
  heddle::signal_op(__func__, sig_addr, signal, sig_op, pe, cstrm);
}
void nvshmemx_signal_wait_until_on_stream(uint64_t* sig_addr, int cmp, uint64_t cmp_value, cudaStream_t cstream) {
  heddle::wait<uint64_t>(__func__, sig_addr, 1, nullptr, cmp, cmp_value, nullptr, false, cstream);
}

#define HEDDLE_DEFINE_STREAM_WAIT(NAME, TYPE)                                                                    \
  void nvshmemx_##NAME##_wait_until_on_stream(TYPE* ivar, int cmp, TYPE cmp_value, cudaStream_t cstream) {       \
    heddle::wait<TYPE>(__func__, ivar, 1, nullptr, cmp, cmp_value, nullptr, false, cstream);                     \
  }                                                                                                              \
  void nvshmemx_##NAME##_wait_until_all_on_stream(TYPE* ivars, size_t nelems, const int* status, int cmp,        \
                                                  TYPE cmp_value, cudaStream_t cstream) {                        \
    heddle::wait<TYPE>(__func__, ivars, nelems, status, cmp, cmp_value, nullptr, false, cstream);                \
  }                                                                                                              \
  void nvshmemx_##NAME##_wait_until_all_vector_on_stream(TYPE* ivars, size_t nelems, const int* status, int cmp, \
                                                         TYPE* cmp_value, cudaStream_t cstream) {                \
    heddle::wait<TYPE>(__func__, ivars, nelems, status, cmp, static_cast<TYPE>(0), cmp_value, true, cstream);    \
  }
HEDDLE_WAIT_TYPES(HEDDLE_DEFINE_STREAM_WAIT)

// ---- order and synchronisation

void nvshmemx_quiet_on_stream(cudaStream_t cstrm) { heddle::quiet(__func__, cstrm); }
void nvshmemx_flush_on_stream(cudaStream_t cstrm) { heddle::quiet(__func__, cstrm); }
void nvshmemx_barrier_all_on_stream(cudaStream_t stream) {
  (void)heddle::barrier(__func__, NVSHMEM_TEAM_WORLD, true, stream);
}
void nvshmemx_sync_all_on_stream(cudaStream_t stream) {
  (void)heddle::barrier(__func__, NVSHMEM_TEAM_WORLD, false, stream);
}
int nvshmemx_barrier_on_stream(nvshmem_team_t team, cudaStream_t stream) {
  return heddle::barrier(__func__, team, true, stream);
}
int nvshmemx_team_sync_on_stream(nvshmem_team_t team, cudaStream_t stream) {
  return heddle::barrier(__func__, team, false, stream);
}

// ---- modules

int nvshmemx_cumodule_init(CUmodule module) {
  return heddle::on_module(__func__, [&] { return heddle::register_module(module); });
}
int nvshmemx_cumodule_finalize(CUmodule module) {
  return heddle::on_module(__func__, [&] { return heddle::unregister_module(module); });
}
int nvshmemx_culibrary_init(CUlibrary library) {
  return heddle::on_module(__func__, [&] { return heddle::register_library(library); });
}
int nvshmemx_culibrary_finalize(CUlibrary library) {
  return heddle::on_module(__func__, [&] { return heddle::unregister_module(library); });
}
