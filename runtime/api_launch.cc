// What collective launches ask the library: the rest is inline in include/nvshmemx_launch.h, as only the program's own
// CUDA runtime knows its kernels.
#include <cstdio>
#include <cstring>
#include <string>

#include "include/nvshmem_types.h"
#include "runtime/global.h"
#include "runtime/stream_ops.h"

#define HEDDLE_EXPORT extern "C" __attribute__((visibility("default")))

HEDDLE_EXPORT int heddle_report_launch(const char* call, int code, const char* text) {
  return heddle::report(call, heddle::Status(static_cast<heddle::Code>(code), text)).nvshmem_code();
}

HEDDLE_EXPORT int heddle_admit_launch(const char* call, CUstream_st* stream, int needs_world, int* blocks,
                                      char* sharing, unsigned long size) {
  *sharing = '\0';
  heddle::World* const w = heddle::world();
  if (w == nullptr) {
    if (needs_world == 0) return NVSHMEMX_SUCCESS;
    return heddle::report_no_world(call), heddle::kNoWorldCode;
  }
  // The kernel runs on the current device, and a stream of another one is an error of its own.
  heddle::Status status = heddle::stream::check(*w, nullptr);
  if (status.is_ok()) status = heddle::stream::check(*w, stream);
  if (!status.is_ok()) return heddle::report(call, std::move(status)).nvshmem_code();
  status = heddle::guarded([&] {
    *blocks = w->gpus().resident_blocks(w->my_pe(), *blocks);
    std::snprintf(sharing, size, "%s", w->gpus().text(w->my_pe()).c_str());
    return heddle::Status::ok();
  });
  return heddle::report(call, std::move(status)).nvshmem_code();
}
