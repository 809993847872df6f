// Giving kernels their state: the registry of translation units and modules that have a copy of DeviceState.
//
// There is one registry in a process, as there is one world: the state published last is what later registrations get.
#pragma once

#include "device/state.h"
#include "runtime/status.h"

namespace heddle {

class Gpu;

/// Gives `state` to everything that is registered and to all that registers until withdraw_state(). `gpu` must live
/// till then. Failures are logged (warning) with the CUDA error; those units are tried again later. Blocks for the
/// copies.
void publish_state(Gpu& gpu, const device::DeviceState& state);
/// Tries those again that did not take the state, if any. Silent: their failure was logged.
void renew_state();
/// Gives everybody a zeroed state: calls in kernels then fail as made outside init and finalize.
void withdraw_state();
/// Reports what kernels of translation units have recorded since withdraw_state(), or before the first publish_state(),
/// which reports it too. Does nothing while a state is published, and where no context is current.
void find_stray_failures();

/// Registers the module's or library's state, found by name (CUmodule and CUlibrary as pointers), and fills it; nothing
/// else changes when that fails. kNotInitialized without a published state, kInvalidValue when the module has none.
Status register_module(void* module);
Status register_library(void* library);
/// Zeroes and forgets it; kInvalidValue when it was not registered.
Status unregister_module(void* module_or_library);

}  // namespace heddle
