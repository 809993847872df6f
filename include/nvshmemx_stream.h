/* The calls that take their turn in a CUDA stream, and modules that are loaded by hand. Included by nvshmem_host.h.
 *
 * Source: NVSHMEM guide, on-stream calls. What holds for all of them:
 * - The call enqueues and returns; the work is done when the stream comes to it, as by the host call of the same name.
 *   Later work of the stream finds it done: puts delivered, gets arrived. Streams are those of the GPU that holds this
 *   PE's heap; 0 is the legacy default stream.
 * - Arguments are read when the call is made: values travel with it. Local addresses of puts and gets may be any
 * memory; pageable sources are read in the call, others when the stream comes to it. Arrays that a kernel has to read
 * (status, cmp_values) must be GPU or pinned memory, and stay.
 * - All may be captured into a CUDA graph, but for T_g, which returns a value: it reports the error, returns zero, and
 *   the capture goes on. A graph keeps values (T_p, signals, cmp_value), and reads and writes the local memory of puts
 *   and gets anew at each launch: that of any kind, pageable too, must stay while graphs use it.
 * - Errors of arguments are reported at once, like those of host calls. What fails later shows as an error of the
 * stream, or is reported from the kernel (a lost PE, HEDDLE_WAIT_TIMEOUT).
 * - With a heap in host memory on a machine without a CUDA driver the calls do their work at once. With one they are
 *   NVSHMEMX_ERROR_NOT_SUPPORTED, reported. */
#ifndef NVSHMEMX_STREAM_H
#define NVSHMEMX_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "nvshmem_cuda_types.h"
#include "nvshmem_names.h"
#include "nvshmem_types.h"

/* CUDA's own names, which may be declared twice. */
typedef struct CUmod_st* CUmodule;
typedef struct CUlib_st* CUlibrary;

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- put and get. nbi forms are the same: the stream keeps the order. T_g waits for the stream and returns the value.
 */
#define HEDDLE_DECLARE_STREAM_RMA(NAME, TYPE)                                                                          \
  void nvshmemx_##NAME##_put_on_stream(TYPE* dest, const TYPE* source, size_t nelems, int pe, cudaStream_t cstrm);     \
  void nvshmemx_##NAME##_put_nbi_on_stream(TYPE* dest, const TYPE* source, size_t nelems, int pe, cudaStream_t cstrm); \
  void nvshmemx_##NAME##_get_on_stream(TYPE* dest, const TYPE* source, size_t nelems, int pe, cudaStream_t cstrm);     \
  void nvshmemx_##NAME##_get_nbi_on_stream(TYPE* dest, const TYPE* source, size_t nelems, int pe, cudaStream_t cstrm); \
  void nvshmemx_##NAME##_iput_on_stream(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,   \
                                        int pe, cudaStream_t cstrm);                                                   \
  void nvshmemx_##NAME##_iget_on_stream(TYPE* dest, const TYPE* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,   \
                                        int pe, cudaStream_t cstrm);                                                   \
  void nvshmemx_##NAME##_p_on_stream(TYPE* dest, const TYPE value, int pe, cudaStream_t cstrm);                        \
  TYPE nvshmemx_##NAME##_g_on_stream(const TYPE* src, int pe, cudaStream_t cstrm);                                     \
  void nvshmemx_##NAME##_put_signal_on_stream(TYPE* dest, const TYPE* source, size_t nelems, uint64_t* sig_addr,       \
                                              uint64_t signal, int sig_op, int pe, cudaStream_t cstrm);                \
  void nvshmemx_##NAME##_put_signal_nbi_on_stream(TYPE* dest, const TYPE* source, size_t nelems, uint64_t* sig_addr,   \
                                                  uint64_t signal, int sig_op, int pe, cudaStream_t cstrm);
HEDDLE_RMA_TYPES(HEDDLE_DECLARE_STREAM_RMA)
#undef HEDDLE_DECLARE_STREAM_RMA

#define HEDDLE_DECLARE_STREAM_SIZED(BITS)                                                                             \
  void nvshmemx_put##BITS##_on_stream(void* dest, const void* source, size_t nelems, int pe, cudaStream_t cstrm);     \
  void nvshmemx_put##BITS##_nbi_on_stream(void* dest, const void* source, size_t nelems, int pe, cudaStream_t cstrm); \
  void nvshmemx_get##BITS##_on_stream(void* dest, const void* source, size_t nelems, int pe, cudaStream_t cstrm);     \
  void nvshmemx_get##BITS##_nbi_on_stream(void* dest, const void* source, size_t nelems, int pe, cudaStream_t cstrm); \
  void nvshmemx_iput##BITS##_on_stream(void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,   \
                                       int pe, cudaStream_t cstrm);                                                   \
  void nvshmemx_iget##BITS##_on_stream(void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t nelems,   \
                                       int pe, cudaStream_t cstrm);                                                   \
  void nvshmemx_put##BITS##_signal_on_stream(void* dest, const void* source, size_t nelems, uint64_t* sig_addr,       \
                                             uint64_t signal, int sig_op, int pe, cudaStream_t cstrm);                \
  void nvshmemx_put##BITS##_signal_nbi_on_stream(void* dest, const void* source, size_t nelems, uint64_t* sig_addr,   \
                                                 uint64_t signal, int sig_op, int pe, cudaStream_t cstrm);
HEDDLE_SIZES(HEDDLE_DECLARE_STREAM_SIZED)
#undef HEDDLE_DECLARE_STREAM_SIZED

void nvshmemx_putmem_on_stream(void* dest, const void* source, size_t bytes, int pe, cudaStream_t cstrm);
void nvshmemx_putmem_nbi_on_stream(void* dest, const void* source, size_t bytes, int pe, cudaStream_t cstrm);
void nvshmemx_getmem_on_stream(void* dest, const void* source, size_t bytes, int pe, cudaStream_t cstrm);
void nvshmemx_getmem_nbi_on_stream(void* dest, const void* source, size_t bytes, int pe, cudaStream_t cstrm);
void nvshmemx_putmem_signal_on_stream(void* dest, const void* source, size_t bytes, uint64_t* sig_addr, uint64_t signal,
                                      int sig_op, int pe, cudaStream_t cstrm);
void nvshmemx_putmem_signal_nbi_on_stream(void* dest, const void* source, size_t bytes, uint64_t* sig_addr,
                                          uint64_t signal, int sig_op, int pe, cudaStream_t cstrm);

/* ---- signals and waits: later work of the stream sees what was put before the signal or value */

/// Updates a signal after all earlier work of the stream.
void nvshmemx_signal_op_on_stream(uint64_t* sig_addr, uint64_t signal, int sig_op, int pe, cudaStream_t cstrm);
/// The stream waits until this PE's signal compares as `cmp` with `cmp_value`. It occupies one thread of the GPU.
void nvshmemx_signal_wait_until_on_stream(uint64_t* sig_addr, int cmp, uint64_t cmp_value, cudaStream_t cstream);

#define HEDDLE_DECLARE_STREAM_WAIT(NAME, TYPE)                                                                   \
  void nvshmemx_##NAME##_wait_until_on_stream(TYPE* ivar, int cmp, TYPE cmp_value, cudaStream_t cstream);        \
  void nvshmemx_##NAME##_wait_until_all_on_stream(TYPE* ivars, size_t nelems, const int* status, int cmp,        \
                                                  TYPE cmp_value, cudaStream_t cstream);                         \
  void nvshmemx_##NAME##_wait_until_all_vector_on_stream(TYPE* ivars, size_t nelems, const int* status, int cmp, \
                                                         TYPE* cmp_value, cudaStream_t cstream);
HEDDLE_WAIT_TYPES(HEDDLE_DECLARE_STREAM_WAIT)
#undef HEDDLE_DECLARE_STREAM_WAIT

/* ---- order and synchronisation */

/// Later work of the stream comes after all of this PE's earlier host calls and work of the stream.
void nvshmemx_quiet_on_stream(cudaStream_t cstrm);
/// Sources of earlier nbi calls may be overwritten by later work of the stream.
void nvshmemx_flush_on_stream(cudaStream_t cstrm);
/// Collective: the stream waits until the streams of all PEs have come here; earlier work of each is then complete and
/// visible to the later work of all. Barriers of one PE, on streams and in kernels, must not run at the same time.
void nvshmemx_barrier_all_on_stream(cudaStream_t stream);
void nvshmemx_sync_all_on_stream(cudaStream_t stream);
/// The same over a team that is all PEs or this PE alone; NVSHMEMX_ERROR_NOT_SUPPORTED for others so far.
int nvshmemx_barrier_on_stream(nvshmem_team_t team, cudaStream_t stream);
int nvshmemx_team_sync_on_stream(nvshmem_team_t team, cudaStream_t stream);

/* ---- modules loaded by hand (cuModuleLoad, cuLibraryLoad, NVRTC)
 *
 * Code that was loaded with the driver's calls has a state of its own, which init fills after the load and before the
 * first launch; the heap's growth is told to it until finalize. Compile it with HEDDLE_MODULE defined (NVRTC: without).
 * 0, NVSHMEMX_ERROR_INVALID_VALUE when the module includes no NVSHMEM header or was not registered,
 * NVSHMEMX_ERROR_INTERNAL without a heap in GPU memory. A module's context must be that of the heap's GPU. */
int nvshmemx_cumodule_init(CUmodule module);
int nvshmemx_cumodule_finalize(CUmodule module);
int nvshmemx_culibrary_init(CUlibrary library);
int nvshmemx_culibrary_finalize(CUlibrary library);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
