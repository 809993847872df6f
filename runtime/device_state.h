// Giving kernels their state: the registry of translation units and modules that have a copy of DeviceState.
//
// There is one registry in a process, as there is one world: the state published last is what later registrations get.
#pragma once

#include <string>

#include "device/state.h"
#include "runtime/status.h"

namespace heddle {

class DeviceSide;
class Gpu;

/// Ok when the device headers that somebody was compiled with are those of this library; else kInvalidValue, whose text
/// names both versions. `who` for the text; `record_bytes` 0: it has no record.
Status check_state_version(const std::string& who, uint32_t version, uint64_t state_bytes, uint64_t record_bytes);

/// Gives `state` to everything that is registered and to all that registers until withdraw_state(). `gpu` and `side`,
/// whose state it is, must live till then. Failures are logged (warning) with the CUDA error; those units are tried
/// again later. Blocks for the copies. kInvalidValue, and nobody has got a state, when a unit of another version had
/// registered before the first call; where one comes later, that is reported then, and it is left out.
Status publish_state(Gpu& gpu, const device::DeviceState& state, DeviceSide* side);
/// Tries those again that did not take the state, if any. Silent: their failure was logged.
void renew_state();
/// Gives everybody a zeroed state: calls in kernels then fail as made outside init and finalize.
void withdraw_state();
/// Reports what kernels of translation units have recorded since withdraw_state(), or before the first publish_state(),
/// which reports it too. Does nothing while a state is published, and where no context is current.
void find_stray_failures();
/// No grid of this process counts as failed any more (DeviceSide::forget). Does nothing without a published state.
void forget_failed_grids();

/// Registers the module's or library's state, found by name (CUmodule and CUlibrary as pointers), and fills it; nothing
/// else changes when that fails. kNotInitialized without a published state, kInvalidValue when the module has none.
Status register_module(void* module);
Status register_library(void* library);
/// Zeroes and forgets it; kInvalidValue when it was not registered.
Status unregister_module(void* module_or_library);

}  // namespace heddle
