// Stream sockets of the control channel: abstract Unix names, TCP on one interface, dials that do not block.
// Every descriptor is close-on-exec and non-blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/control.h"
#include "runtime/owned.h"
#include "runtime/settings.h"
#include "runtime/status.h"

namespace heddle {

/// Fills `bytes` bytes (at most 256) from the kernel's random source.
Status random_bytes(void* out, size_t bytes);

/// Listens on an abstract Unix socket with a random name, which it writes to `address`.
Status listen_unix(ControlAddress* address, OwnedFd* listener);

/// Listens on a free TCP port of one interface: NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME, else the first that is up and not
/// loopback, else loopback; addresses of NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY, IPv4 before IPv6. Never the any-address.
/// Writes family, port, scope and ip to `address`. An interface that does not exist is kInvalidValue and lists those
/// that do.
Status listen_tcp(const Settings& settings, ControlAddress* address, OwnedFd* listener);

/// Starts to connect to `address`. Returns 0 when connected, EINPROGRESS when poll(POLLOUT) and dial_outcome() will
/// tell, EAGAIN when the listener's queue is full and another try is due, or the errno of the failure (no socket then).
int dial_unix(const ControlAddress& address, OwnedFd* socket);
/// The same over TCP. `local_scope` is the scope id of our own interface, used for link-local addresses; 0 takes the
/// peer's.
int dial_tcp(const ControlAddress& address, uint32_t local_scope, OwnedFd* socket);
/// What became of a dial that was in progress: 0 or an errno.
int dial_outcome(int socket);

/// The uid of the process at the other end of a Unix socket, as the kernel recorded it; -1 when it does not say.
int64_t peer_uid(int socket);

/// No delay for small frames, and an error within about half a minute of silence from a host that went down.
void tune_tcp(int socket);

/// "10.0.0.1:4711" or "[fe80::1]:4711", or "a Unix socket" when there is no TCP address.
std::string address_text(const ControlAddress& address);

}  // namespace heddle
