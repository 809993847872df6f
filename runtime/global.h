// The one world of this process, as the C API holds it, and what its calls share.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <new>

#include "device/config.h"
#include "runtime/log.h"
#include "runtime/world.h"

namespace heddle {

/// The world between init and finalize, else nullptr. Hidden, so that reading it takes one instruction.
[[gnu::visibility("hidden")]] extern std::atomic<World*> current_world;

/// acquire: whoever sees the pointer sees the world that init has built. One plain load on common processors.
HEDDLE_INLINE World* world() { return current_world.load(std::memory_order_acquire); }

/// Reports `call` as made outside init and finalize, with the cause of an earlier init that failed. Logged once for
/// each call until the next init or finalize: a loop of puts must not flood the log.
[[gnu::cold, gnu::noinline]] void report_no_world(const char* call);

/// The status that report_no_world reports, as the int of the C API.
constexpr int kNoWorldCode = static_cast<int>(Code::kInternal);

/// Held by collective calls: PEs pair them by order, so two threads of one PE must not mix theirs.
std::mutex& collective_mutex();

/// Forgets registered buffers and an open region, at finalize.
void forget_registrations();

/// Runs `body`, which returns a Status, and turns exceptions of the standard library into one: nothing is thrown across
/// the C API.
template <class Body>
Status guarded(Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return error(Code::kOutOfMemory, "this process cannot get more memory for the library's own records");
  } catch (const std::exception& caught) {
    return error(Code::kInternal, "unexpected: %s", caught.what());
  }
}

/// What nvshmemx_init_status says while `world` is the current one: NVSHMEM_STATUS_IS_INITIALIZED or how PEs share
/// GPUs.
int init_status_of(const World& world);

}  // namespace heddle
