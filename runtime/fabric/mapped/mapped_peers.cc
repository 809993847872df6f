// The conversation between an endpoint's owner and its importers; see message.h.
#include <cinttypes>
#include <cstring>
#include <iterator>

#include "runtime/fabric/mapped/mapped_fabric.h"
#include "runtime/log.h"

namespace heddle::mapped {

Status MappedFabric::send(int pe, const Message& message, OwnedFd fd) {
  if (pe != my_pe_) return courier_->post(pe, &message, sizeof message, fd.get());
  handle(pe, message, std::move(fd));
  return Status::ok();
}

void MappedFabric::deliver(int pe, const unsigned char* bytes, size_t size, OwnedFd fd) {
  Message message;
  if (size == sizeof message) std::memcpy(static_cast<void*>(&message), bytes, sizeof message);
  if (size != sizeof message || message.magic != kMessageMagic || message.version != kVersion) {
    log(LogLevel::kWarn,
        "the %s fabric dropped a message of %zu bytes from PE %d that this version does not know; run one version of "
        "the library on all PEs",
        name_, size, pe);
    return;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  handle(pe, message, std::move(fd));
}

void MappedFabric::handle(int pe, const Message& message, OwnedFd fd) {
  switch (message.kind) {
    case MessageKind::kAttach:
      return on_attach(pe, message);
    case MessageKind::kAck:
      return on_ack(pe, message);
    case MessageKind::kDetach:
      return on_detach(pe, message);
    default:
      break;
  }
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint.own || endpoint.gone || endpoint.owner != pe || endpoint.request != message.request) continue;
    switch (message.kind) {
      case MessageKind::kAttached:
        if (message.size != endpoint.size) {
          endpoint.failure =
              error(Code::kInvalidValue,
                    "PE %d's endpoint has %" PRIu64 " bytes, its handle said %" PRIu64 "; exchange the handle again",
                    pe, message.size, endpoint.size);
        }
        return;
      case MessageKind::kBound:
        return on_bound(id, endpoint, message, std::move(fd));
      case MessageKind::kUnbound:
        return on_unbound(id, endpoint, message);
      case MessageKind::kReady:
        endpoint.told = true;
        return;
      case MessageKind::kRefused:
        endpoint.failure = message.status().in(format("PE %d refused the import", pe));
        endpoint.gone = true;
        return;
      case MessageKind::kGone:
        // What is mapped stays until the import is destroyed: a PE that goes early, after another was lost, must not
        // take the addresses away under a put of those that do not know yet.
        endpoint.failure =
            error(Code::kInvalidValue, "PE %d has destroyed its endpoint; destroy this import of it too", pe);
        endpoint.gone = true;
        return;
      default:
        log(LogLevel::kWarn, "the %s fabric dropped a message of unknown kind %u from PE %d", name_,
            static_cast<unsigned>(message.kind), pe);
        return;
    }
  }
  // The import was destroyed while the message travelled: nothing to do.
}

// ---- owner

void MappedFabric::on_attach(int pe, const Message& message) {
  Message reply;
  reply.request = message.request;
  for (auto& [id, endpoint] : endpoints_) {
    if (!endpoint.own || !endpoint.exportable || endpoint.serial != message.serial) continue;
    if (!(endpoint.nonce == message.nonce)) break;
    const auto [entry, is_new] = endpoint.importers.emplace(ImporterKey(pe, message.request), Importer{});
    if (!is_new) break;
    reply.kind = MessageKind::kAttached;
    reply.size = endpoint.size;
    Status sent = send(pe, reply);
    for (auto bind = endpoint.binds.begin(); sent.is_ok() && bind != endpoint.binds.end(); ++bind) {
      sent = tell_bound(pe, message.request, entry->second, bind->first, bind->second);
    }
    reply.kind = MessageKind::kReady;
    if (sent.is_ok()) sent = send(pe, reply);
    if (!sent.is_ok()) {
      endpoint.importers.erase(entry);
      if (endpoint.failure.is_ok()) endpoint.failure = sent.in(format("answering the import by PE %d", pe));
    }
    return;
  }
  reply.kind = MessageKind::kRefused;
  reply.set_status(error(Code::kInvalidValue,
                         "PE %d has no endpoint of this handle; it was destroyed, or export_handle never wrote it",
                         my_pe_));
  const Status sent = send(pe, reply);
  if (!sent.is_ok()) log(LogLevel::kWarn, "could not refuse an import by PE %d: %s", pe, sent.text().c_str());
}

Status MappedFabric::tell_bound(int pe, uint32_t request, Importer& importer, uint64_t offset, const Bind& bind) {
  Message message;
  message.kind = MessageKind::kBound;
  message.request = request;
  message.change = ++importer.sent;
  message.offset = offset;
  message.size = bind.size;
  message.memory_offset = bind.memory_offset;
  Ticket ticket;
  HEDDLE_RETURN_IF_ERROR(provider_->export_memory(memory_.at(bind.memory).handle, &ticket));
  message.has_ticket = ticket.has_bytes ? 1 : 0;
  std::memcpy(message.ticket, ticket.bytes, sizeof message.ticket);
  return send(pe, message, std::move(ticket.fd));
}

void MappedFabric::tell_importers(Endpoint& endpoint, const char* what,
                                  const std::function<Status(ImporterKey, Importer&)>& tell) {
  for (auto entry = endpoint.importers.begin(); entry != endpoint.importers.end();) {
    const Status sent = tell(entry->first, entry->second);
    if (sent.is_ok()) {
      ++entry;
      continue;
    }
    // It has missed a change, so nothing later may reach it either.
    if (endpoint.failure.is_ok()) endpoint.failure = sent.in(format("telling PE %d of a %s", entry->first.first, what));
    entry = endpoint.importers.erase(entry);
  }
}

void MappedFabric::on_ack(int pe, const Message& message) {
  for (auto& [id, endpoint] : endpoints_) {
    if (!endpoint.own || endpoint.serial != message.serial) continue;
    const auto entry = endpoint.importers.find(ImporterKey(pe, message.request));
    if (entry == endpoint.importers.end()) return;
    Importer& importer = entry->second;
    if (message.change != importer.acked + 1 || message.change > importer.sent) {
      log(LogLevel::kWarn, "PE %d confirmed change %" PRIu64 " of endpoint %u, expected was %" PRIu64, pe,
          message.change, id, importer.acked + 1);
      return;
    }
    importer.acked = message.change;
    const Status status = message.status();
    if (!status.is_ok() && endpoint.failure.is_ok()) endpoint.failure = status.in(format("on PE %d", pe));
    return;
  }
  // The endpoint was destroyed while the message travelled.
}

void MappedFabric::on_detach(int pe, const Message& message) {
  for (auto& [id, endpoint] : endpoints_) {
    if (endpoint.own && endpoint.serial == message.serial) endpoint.importers.erase(ImporterKey(pe, message.request));
  }
  detached_.notify_all();
}

// ---- importer

void MappedFabric::on_bound(EndpointId id, Endpoint& import, const Message& message, OwnedFd fd) {
  const uint64_t offset = message.offset, size = message.size;
  const bool inside = size > 0 && size <= import.size && offset <= import.size - size;
  const bool aligned = (offset | size | message.memory_offset) % unit_ == 0;
  const auto after = import.binds.lower_bound(offset);
  const bool overlaps =
      (after != import.binds.end() && after->first - offset < size) ||
      (after != import.binds.begin() && offset - std::prev(after)->first < std::prev(after)->second.size);
  const bool has_ticket = fd.valid() || message.has_ticket != 0;
  const bool whole = !whole_ || (offset == 0 && size == import.size && message.memory_offset == 0);
  if (!inside || !aligned || overlaps || !has_ticket || !whole) {
    import.failure = error(Code::kInternal,
                           "PE %d told of a bind of %" PRIu64 " bytes at offset %" PRIu64
                           " that cannot be (%s); run one version of the library on all PEs",
                           import.owner, size, offset,
                           !inside    ? "beyond the endpoint"
                           : !aligned ? "not aligned"
                           : overlaps ? "overlaps another"
                           : !whole   ? "not the whole endpoint"
                                      : "no descriptor came with it");
    return answer(import, message, import.failure);
  }
  Bind& bind = import.binds[offset];
  bind.size = size;
  Ticket ticket;
  ticket.fd = std::move(fd);
  ticket.has_bytes = message.has_ticket != 0;
  std::memcpy(ticket.bytes, message.ticket, sizeof ticket.bytes);
  std::byte* at = whole_ ? nullptr : windows_.at(id).base + offset;
  bind.mapping = provider_->map_imported(&at, size, ticket, message.memory_offset)
                     .in(format("mapping PE %d's memory at offset %" PRIu64, import.owner, offset));
  if (whole_) windows_[id] = {at, size};
  answer(import, message, bind.mapping);
}

void MappedFabric::on_unbound(EndpointId id, Endpoint& import, const Message& message) {
  uint64_t sum = 0;
  const auto first = import.binds.find(message.offset);
  auto last = first;
  while (last != import.binds.end() && last->first == message.offset + sum && sum < message.size) {
    sum += (last++)->second.size;
  }
  if (first == import.binds.end() || sum != message.size) {
    import.failure = error(Code::kInternal,
                           "PE %d told of an unbind of %" PRIu64 " bytes at offset %" PRIu64 " that were never bound",
                           import.owner, message.size, message.offset);
    return answer(import, message, import.failure);
  }
  Status unmapped;
  for (auto bind = first; bind != last; ++bind) {
    if (!bind->second.mapping.is_ok()) continue;  // there is nothing, and the owner knows
    const Status status = provider_->unmap(windows_.at(id).base + bind->first, bind->second.size);
    if (unmapped.is_ok()) unmapped = status;
  }
  import.binds.erase(first, last);
  if (whole_) {
    windows_[id] = {};
    table_.set(id, nullptr);
  }
  answer(import, message, unmapped);
}

void MappedFabric::answer(Endpoint& import, const Message& message, const Status& status) {
  Message ack;
  ack.kind = MessageKind::kAck;
  ack.serial = import.owner_serial;
  ack.request = import.request;
  ack.change = message.change;
  ack.set_status(status);
  const Status sent = send(import.owner, ack);
  if (!sent.is_ok() && import.failure.is_ok()) import.failure = sent.in(format("answering PE %d", import.owner));
}

}  // namespace heddle::mapped
