// The rendezvous of a unique id: a star over TCP whose middle is a thread of the process that made the id.
#pragma once

#include <cstddef>
#include <cstdint>

#include "include/nvshmem_types.h"
#include "runtime/control.h"
#include "runtime/owned.h"
#include "runtime/settings.h"
#include "runtime/status.h"

namespace heddle {

// ---- the id

/// What the 124 inner bytes of a unique id hold.
struct UniqueIdContent {
  static constexpr uint32_t kMagic = 0x31444948;  // "HID1"
  uint32_t magic = kMagic;
  uint16_t family = 0;  ///< AF_INET or AF_INET6
  uint16_t port = 0;    ///< host byte order
  uint32_t scope = 0;   ///< IPv6 scope id on the serving host
  unsigned char ip[16] = {};
  unsigned char secret[16] = {};
};
static_assert(sizeof(UniqueIdContent) <= sizeof(nvshmemx_uniqueid_t::internal));

// ---- the wire. A connection first shows the 16 bytes of the secret; until then nothing else is read from it.

enum class RendezvousOp : uint16_t {
  kJoin = 1,  ///< rank -> server: JoinMessage
  kWelcome,   ///< server -> rank: int32_t node index of every rank
  kGather,    ///< rank -> server: GatherMessage and the bytes
  kGathered,  ///< server -> rank: the bytes of every rank, in rank order
  kFailed,    ///< server -> rank: int32_t code and text; ends every present and later step
  kAbort,     ///< rank -> server: text; the server passes it to all as kFailed
  kBye,       ///< rank -> server: orderly end; server -> rank: nothing is left unsent to anybody
};

struct RendezvousHeader {
  static constexpr uint32_t kMagic = 0x31525648;  // "HVR1"
  uint32_t magic = kMagic;
  uint16_t op = 0;
  uint16_t reserved = 0;
  uint32_t length = 0;    ///< bytes that follow
  uint32_t sequence = 0;  ///< of the gather
};

struct JoinMessage {
  int32_t rank = -1;
  int32_t size = 0;
  int64_t wait_ms = -1;  ///< time that the rank waits for the others; -1: for ever
  unsigned char boot_id[16] = {};
};

struct GatherMessage {
  int64_t wait_ms = -1;
  uint64_t bytes = 0;
};

constexpr int kMaxRendezvousRanks = 65536;
constexpr size_t kMaxRendezvousRecord = 1 << 20;  ///< bytes that one rank may gather
constexpr size_t kMaxRendezvousText = 2000;       ///< bytes of a kFailed or kAbort text

/// Listens where `settings` say (session_id, else socket_ifname and socket_family) and writes the address.
Status listen_for_rendezvous(const Settings& settings, ControlAddress* address, OwnedFd* listener);

/// Serves one job on `listener`, whose address is `content`'s, from a thread of its own. It ends when the job's ranks
/// have all left, and with the process.
Status serve_rendezvous(OwnedFd listener, const UniqueIdContent& content);

}  // namespace heddle
