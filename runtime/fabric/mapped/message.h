// What the mapping fabrics of two PEs say to each other, and the handle by which an importer finds the owner.
//
//   importer                       owner
//   kAttach(serial, nonce)   ->
//                            <-    kAttached(size), kBound(ticket) for each bind, kReady   or   kRefused(text)
//   kAck(change)             ->    for every kBound
//                            <-    kBound, kUnbound whenever the owner binds or unbinds; kGone when it destroys
//   kAck(change)             ->    for each
//   kDetach                  ->    when the importer destroys its alias
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "runtime/fabric/fabric.h"
#include "runtime/fabric/mapped/memory_provider.h"

namespace heddle::mapped {

/// 128 random bits per endpoint: only who was given the handle can attach.
struct Nonce {
  unsigned char bytes[16] = {};
  bool operator==(const Nonce& other) const { return std::memcmp(bytes, other.bytes, sizeof bytes) == 0; }
};

constexpr uint32_t kHandleMagic = 0x45484448;   // "HDHE"
constexpr uint32_t kMessageMagic = 0x4d484448;  // "HDHM"
constexpr uint16_t kVersion = 2;

/// The contents of an EndpointHandle.
struct HandleBody {
  uint32_t magic = kHandleMagic;
  uint16_t version = kVersion;
  uint16_t reserved = 0;
  int32_t owner_pe = 0;
  uint32_t reserved2 = 0;
  uint64_t serial = 0;  ///< the owner's number of the endpoint, never used twice
  Nonce nonce;
  uint64_t size = 0;  ///< of the endpoint, in bytes
};
static_assert(sizeof(HandleBody) <= sizeof(EndpointHandle) && std::is_trivially_copyable_v<HandleBody>);

enum class MessageKind : uint16_t { kAttach = 1, kAttached, kBound, kReady, kRefused, kUnbound, kAck, kDetach, kGone };

/// Every message has this one layout; members that its kind does not need are zero.
struct Message {
  uint32_t magic = kMessageMagic;
  uint16_t version = kVersion;
  MessageKind kind = MessageKind::kAttach;
  uint32_t request = 0;        ///< the importer's number of the import
  uint32_t code = 0;           ///< heddle::Code of kRefused and kAck
  uint64_t serial = 0;         ///< the owner's number of the endpoint
  Nonce nonce;                 ///< kAttach
  uint64_t change = 0;         ///< kBound, kUnbound and their kAck: counted from 1 per importer
  uint64_t offset = 0;         ///< kBound, kUnbound: in the endpoint
  uint64_t size = 0;           ///< kAttached: of the endpoint; kBound, kUnbound: of the range
  uint64_t memory_offset = 0;  ///< kBound: in the allocation
  uint64_t has_ticket = 0;  ///< kBound: 1 when `ticket` says where the memory is, 0 when a descriptor comes beside it
  unsigned char ticket[Ticket::kBytes] = {};
  char text[440] = {};  ///< why, NUL-terminated, of kRefused and of a failed kAck

  void set_status(const Status& status) {
    code = static_cast<uint32_t>(status.code());
    std::strncpy(text, status.text().c_str(), sizeof text - 1);
  }
  Status status() const {
    if (code == 0) return Status::ok();
    const bool known = code <= 7 || (code >= 100 && code <= 103);
    return {known ? static_cast<Code>(code) : Code::kInternal, std::string(text, strnlen(text, sizeof text))};
  }
};
static_assert(sizeof(Message) <= 4096 && std::is_trivially_copyable_v<Message>);

}  // namespace heddle::mapped
