#include "runtime/fabric/mapped/mapped_fabric.h"

#include <sys/random.h>

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <iterator>
#include <vector>

#include "runtime/fabric/host/host_memory.h"
#include "runtime/log.h"

namespace heddle::mapped {
namespace {

constexpr uint64_t kMaxEndpointBytes = uint64_t{1} << 46;
constexpr std::chrono::seconds kLongestDetach{2};  // of peers that are taking down too

bool fill_random(Nonce* nonce) {
  size_t have = 0;
  while (have < sizeof nonce->bytes) {
    const ssize_t got = getrandom(nonce->bytes + have, sizeof nonce->bytes - have, 0);
    if (got < 0 && errno != EINTR) return false;
    if (got > 0) have += static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

// ---- set-up

MappedFabric::MappedFabric(const char* name, std::unique_ptr<Courier> courier, std::unique_ptr<MemoryProvider> provider)
    : name_(name),
      courier_(std::move(courier)),
      provider_(std::move(provider)),
      unit_(provider_->granularity()),
      whole_(provider_->is_whole()),
      my_pe_(courier_ ? courier_->my_pe() : 0) {
  if (!courier_) return;
  courier_->receive([this](int pe, const unsigned char* message, size_t bytes, OwnedFd fd) {
    deliver(pe, message, bytes, std::move(fd));
  });
}

MappedFabric::~MappedFabric() {
  // Without the mutex: a delivery that is running needs it to end.
  if (courier_) courier_->receive({});
  for (auto& [id, endpoint] : endpoints_) {
    Message message;
    if (endpoint.own) {
      message.kind = MessageKind::kGone;
      for (const auto& [key, importer] : endpoint.importers) {
        message.request = key.second;
        if (key.first != my_pe_) (void)send(key.first, message);  // who has left needs no news
      }
    } else if (!endpoint.gone && endpoint.owner != my_pe_) {
      message.kind = MessageKind::kDetach;
      message.serial = endpoint.owner_serial;
      message.request = endpoint.request;
      (void)send(endpoint.owner, message);
    }
  }
  for (const auto& [id, memory] : memory_) provider_->release(memory.handle);
}

Status MappedFabric::no_window(EndpointId id, const char* call) {
  return error(Code::kNotReady, "%s: endpoint %u is not ready or does not exist; query it until it is ready", call, id);
}

Status MappedFabric::reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) {
  return provider_->reserve_addresses(bytes, alignment, base);
}

void MappedFabric::release_addresses(std::byte* base, uint64_t bytes) { provider_->release_addresses(base, bytes); }

Status MappedFabric::reserve_ids(uint32_t count, EndpointIds* ids) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (count == 0) return error(Code::kInvalidValue, "reserve_ids: count is 0; ask for at least one id");
  // The first base depends on the PE, so that code which takes ids for equal on all PEs fails early.
  EndpointId base = 1 + static_cast<EndpointId>(my_pe_) % 61;
  for (const auto& [other, other_count] : reserved_) {
    if (other >= base && other - base >= count) break;
    base = other + other_count;
  }
  if (count > WindowTable::kMaxIds || base > WindowTable::kMaxIds - count) {
    return error(Code::kOutOfMemory, "reserve_ids: no %u consecutive endpoint ids are free of the %u of a process",
                 count, WindowTable::kMaxIds);
  }
  table_.make_room(base, count);
  reserved_.emplace(base, count);
  *ids = {base, count};
  return Status::ok();
}

Status MappedFabric::release_ids(EndpointIds ids) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto range = reserved_.find(ids.base);
  if (range == reserved_.end() || range->second != ids.count) {
    return error(Code::kInvalidValue,
                 "release_ids: base %u and count %u are no reserved range; pass what reserve_ids returned", ids.base,
                 ids.count);
  }
  const auto live = endpoints_.lower_bound(ids.base);
  if (live != endpoints_.end() && live->first - ids.base < ids.count) {
    return error(Code::kInvalidValue, "release_ids: endpoint %u of the range [%u, %u) still exists; destroy it first",
                 live->first, ids.base, ids.base + ids.count);
  }
  windows_.erase(windows_.lower_bound(ids.base), windows_.lower_bound(ids.base + ids.count));
  reserved_.erase(range);
  return Status::ok();
}

Status MappedFabric::limits(const EndpointProperties& properties, EndpointLimits* limits) const {
  if (properties.type == EndpointType::kMulticast) {
    return error(Code::kNotSupported, "the %s fabric has no multicast endpoints; use unicast ones", name_);
  }
  if (properties.type != EndpointType::kUnicast) {
    return error(Code::kInvalidValue, "endpoint type %u is none that exists; use unicast (1)",
                 static_cast<unsigned>(properties.type));
  }
  if (properties.device != 0) {
    return error(Code::kInvalidValue, "device %d: the %s fabric has device 0 only", properties.device, name_);
  }
  if ((properties.flags & ~static_cast<uint32_t>(kEndpointFlagCountedOps)) != 0) {
    return error(Code::kInvalidValue, "endpoint flags 0x%x have unknown bits; known is 0x%x (counted operations)",
                 properties.flags, static_cast<unsigned>(kEndpointFlagCountedOps));
  }
  limits->bind_alignment = unit_;
  limits->max_size = kMaxEndpointBytes;
  return Status::ok();
}

Status MappedFabric::check_reserved(EndpointId id, const char* call) const {
  auto range = reserved_.upper_bound(id);
  if (range != reserved_.begin() && id - std::prev(range)->first < std::prev(range)->second) return Status::ok();
  return error(Code::kInvalidValue, "%s: endpoint id %u is not reserved; take one of a range that reserve_ids returned",
               call, id);
}

Status MappedFabric::find_live(EndpointId id, const char* call, Endpoint** endpoint) {
  const auto found = endpoints_.find(id);
  if (found != endpoints_.end()) {
    *endpoint = &found->second;
    return Status::ok();
  }
  HEDDLE_RETURN_IF_ERROR(check_reserved(id, call));
  return error(Code::kInvalidValue, "%s: id %u has no endpoint; create or import it first", call, id);
}

Status MappedFabric::check_free_id(EndpointId id, const char* call, uint64_t size) const {
  HEDDLE_RETURN_IF_ERROR(check_reserved(id, call));
  if (endpoints_.count(id) > 0) {
    return error(Code::kInvalidValue, "%s: id %u has an endpoint already; destroy it first or take another id", call,
                 id);
  }
  if (whole_) return Status::ok();
  const auto window = windows_.find(id);
  if (window == windows_.end()) {
    return error(Code::kInvalidValue, "%s: endpoint %u has no addresses to appear at; call set_window first", call, id);
  }
  if (window->second.size < size) {
    return error(Code::kInvalidValue,
                 "%s: endpoint %u has %" PRIu64 " bytes, its window only %" PRIu64 "; reserve a larger one", call, id,
                 size, window->second.size);
  }
  return Status::ok();
}

Status MappedFabric::set_window(EndpointId id, std::byte* window, uint64_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (whole_) {
    return error(Code::kNotSupported, "set_window: endpoint %u appears where its memory is; ask window()", id);
  }
  HEDDLE_RETURN_IF_ERROR(check_reserved(id, "set_window"));
  if (endpoints_.count(id) > 0) {
    return error(Code::kInvalidValue, "set_window: endpoint %u exists; its window is set before create or import", id);
  }
  const auto address = reinterpret_cast<uintptr_t>(window);
  if (window == nullptr || size == 0 || address % unit_ != 0 || size % unit_ != 0) {
    return error(Code::kInvalidValue,
                 "set_window: %" PRIu64 " bytes at %p for endpoint %u; both must be multiples of the %s %" PRIu64
                 " and not zero",
                 size, static_cast<void*>(window), id, provider_->granularity_name(), unit_);
  }
  for (const auto& [other, taken] : windows_) {
    const auto other_address = reinterpret_cast<uintptr_t>(taken.base);
    if (other != id && address < other_address + taken.size && other_address < address + size) {
      return error(Code::kInvalidValue,
                   "set_window: %" PRIu64 " bytes at %p for endpoint %u overlap the %" PRIu64 " at %p of endpoint %u",
                   size, static_cast<void*>(window), id, taken.size, static_cast<void*>(taken.base), other);
    }
  }
  windows_[id] = {window, size};
  return Status::ok();
}

std::byte* MappedFabric::window(EndpointId id) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto window = windows_.find(id);
  return window == windows_.end() ? nullptr : window->second.base;
}

// ---- endpoints

Status MappedFabric::create(EndpointId id, const EndpointProperties& properties) {
  std::lock_guard<std::mutex> lock(mutex_);
  EndpointLimits allowed;
  HEDDLE_RETURN_IF_ERROR(limits(properties, &allowed).in("create"));
  if (properties.size == 0 || properties.size % allowed.bind_alignment != 0 || properties.size > allowed.max_size) {
    return error(Code::kInvalidValue,
                 "create: endpoint %u of %" PRIu64 " bytes; the size must be a multiple of %" PRIu64
                 ", not zero, and at most %" PRIu64,
                 id, properties.size, allowed.bind_alignment, allowed.max_size);
  }
  HEDDLE_RETURN_IF_ERROR(check_free_id(id, "create", properties.size));
  Endpoint endpoint;
  endpoint.own = true;
  endpoint.size = properties.size;
  endpoint.exportable = properties.exportable;
  endpoint.serial = next_serial_++;
  if (!fill_random(&endpoint.nonce)) {
    return error_errno(Code::kInternal, errno, "create: getrandom for the secret of endpoint %u", id);
  }
  if (whole_) windows_[id] = {};
  endpoints_.emplace(id, std::move(endpoint));
  return Status::ok();
}

Status MappedFabric::export_handle(EndpointId id, EndpointHandle* handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  Endpoint* endpoint = nullptr;
  HEDDLE_RETURN_IF_ERROR(find_live(id, "export_handle", &endpoint));
  if (!endpoint->own) {
    return error(Code::kNotSupported, "export_handle: endpoint %u is imported from PE %d; export it there", id,
                 endpoint->owner);
  }
  if (!endpoint->exportable) {
    return error(Code::kInvalidValue, "export_handle: endpoint %u was created with exportable = false", id);
  }
  HandleBody body;
  body.owner_pe = my_pe_;
  body.serial = endpoint->serial;
  body.nonce = endpoint->nonce;
  body.size = endpoint->size;
  *handle = {};
  std::memcpy(handle->data, &body, sizeof body);
  return Status::ok();
}

Status MappedFabric::import_handle(EndpointId id, const EndpointHandle& handle) {
  std::lock_guard<std::mutex> lock(mutex_);
  HandleBody body;
  std::memcpy(&body, handle.data, sizeof body);
  if (body.magic != kHandleMagic || body.version != kVersion) {
    return error(Code::kInvalidValue,
                 "import_handle: the 64 bytes for endpoint %u are no handle of this version of the %s fabric (magic "
                 "0x%08x, version %u); pass what export_handle wrote, and run one version of the library on all PEs",
                 id, name_, body.magic, body.version);
  }
  if (body.owner_pe != my_pe_ && !courier_) {
    return error(
        Code::kNotSupported,
        "import_handle: endpoint %u belongs to PE %d, and this process runs alone: it has no channel to others", id,
        body.owner_pe);
  }
  if (body.size == 0 || body.size % unit_ != 0 || body.size > kMaxEndpointBytes) {
    return error(Code::kInvalidValue,
                 "import_handle: the handle for endpoint %u names %" PRIu64 " bytes; it is damaged", id, body.size);
  }
  HEDDLE_RETURN_IF_ERROR(check_free_id(id, "import_handle", body.size));
  Endpoint endpoint;
  endpoint.size = body.size;
  endpoint.owner = body.owner_pe;
  endpoint.owner_serial = body.serial;
  endpoint.request = next_request_++;
  Message message;
  message.kind = MessageKind::kAttach;
  message.request = endpoint.request;
  message.serial = body.serial;
  message.nonce = body.nonce;
  if (whole_) windows_[id] = {};
  endpoints_.emplace(id, std::move(endpoint));
  Status sent = send(body.owner_pe, message);
  if (sent.is_ok()) return sent;
  endpoints_.erase(id);
  return sent.in(format("import_handle: asking PE %d for its endpoint", body.owner_pe));
}

bool MappedFabric::evaluate(EndpointId id, Endpoint& endpoint, Status* status) {
  if (endpoint.own) {
    // Making one needs no time here, but using one before a query is an error on every fabric.
    endpoint.ready = true;
    table_.set(id, windows_.at(id).base);
    if (!endpoint.failure.is_ok()) {
      *status = std::exchange(endpoint.failure, Status::ok());
      return false;
    }
    for (const auto& [key, importer] : endpoint.importers) {
      if (importer.acked != importer.sent) return false;
    }
    return true;
  }
  if (!endpoint.failure.is_ok()) *status = endpoint.failure;
  for (const auto& [offset, bind] : endpoint.binds) {
    if (status->is_ok()) *status = bind.mapping;
  }
  if (!status->is_ok() || !endpoint.told) return false;
  endpoint.ready = true;
  table_.set(id, windows_.at(id).base);
  return true;
}

Status MappedFabric::query(EndpointId id, uint32_t count, bool* ready) {
  std::lock_guard<std::mutex> lock(mutex_);
  *ready = false;
  if (count == 0 || count > WindowTable::kMaxIds) {
    return error(Code::kInvalidValue, "query: count %u; pass 1 to %u", count, WindowTable::kMaxIds);
  }
  for (uint32_t i = 0; i < count; ++i) {
    Endpoint* endpoint = nullptr;
    HEDDLE_RETURN_IF_ERROR(find_live(id + i, "query", &endpoint));
  }
  bool all = true;
  for (uint32_t i = 0; i < count; ++i) {
    Status status;
    all &= evaluate(id + i, endpoints_.at(id + i), &status);
    if (!status.is_ok()) return status.in(format("endpoint %u", id + i));
  }
  *ready = all;
  return Status::ok();
}

std::string MappedFabric::pending(EndpointId id) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = endpoints_.find(id);
  if (found == endpoints_.end()) return {};
  const Endpoint& endpoint = found->second;
  if (!endpoint.own) return endpoint.told ? "" : format("PE %d has not yet given its endpoint", endpoint.owner);
  std::string missing;
  for (const auto& [key, importer] : endpoint.importers) {
    if (importer.acked == importer.sent) continue;
    missing += format("%sPE %d", missing.empty() ? "" : ", ", key.first);
  }
  return missing.empty() ? "" : missing + " did not confirm the latest bind or unbind";
}

void MappedFabric::unmap_all(EndpointId id, Endpoint& endpoint) {
  table_.set(id, nullptr);
  std::byte* base = windows_.at(id).base;
  for (const auto& [offset, bind] : endpoint.binds) {
    (void)provider_->unmap(base + offset, bind.size);  // fails only out of map entries; the old mapping is harmless
    if (bind.memory != 0) --memory_.at(bind.memory).binds;
  }
  endpoint.binds.clear();
  if (whole_) windows_[id] = {};
}

/// Drops the importers who cannot be told: they have left, and their mappings with them.
void MappedFabric::say_gone(Endpoint& endpoint) {
  Message message;
  message.kind = MessageKind::kGone;
  for (auto entry = endpoint.importers.begin(); entry != endpoint.importers.end();) {
    message.request = entry->first.second;
    entry = send(entry->first.first, message).is_ok() ? std::next(entry) : endpoint.importers.erase(entry);
  }
}

/// Whole memory may be freed only when no peer has it mapped. They take down at the same time as this process, so the
/// wait is short; it ends in any case.
bool MappedFabric::await_detached(std::unique_lock<std::mutex>& lock, const Endpoint& endpoint) {
  const auto others_gone = [&] {
    for (const auto& [key, importer] : endpoint.importers) {
      if (key.first != my_pe_) return false;
    }
    return true;
  };
  return detached_.wait_for(lock, kLongestDetach, others_gone);
}

Status MappedFabric::destroy(EndpointId id) {
  std::unique_lock<std::mutex> lock(mutex_);
  Endpoint* endpoint = nullptr;
  HEDDLE_RETURN_IF_ERROR(find_live(id, "destroy", &endpoint));
  if (endpoint->own && whole_) {
    endpoint->exportable = false;  // nobody attaches any more
    say_gone(*endpoint);
    if (!await_detached(lock, *endpoint)) {
      for (const auto& [offset, bind] : endpoint->binds) memory_.at(bind.memory).abandoned = true;
    }
  }
  unmap_all(id, *endpoint);
  Message message;
  if (endpoint->own) {
    if (!whole_) say_gone(*endpoint);
  } else if (!endpoint->gone || whole_) {
    message.kind = MessageKind::kDetach;
    message.serial = endpoint->owner_serial;
    message.request = endpoint->request;
    (void)send(endpoint->owner, message);
  }
  endpoints_.erase(id);
  return Status::ok();
}

// ---- memory

Status MappedFabric::allocate(uint64_t bytes, MemoryId* memory) {
  if (bytes == 0 || bytes % unit_ != 0) {
    return error(Code::kInvalidValue, "allocate: %" PRIu64 " bytes are no multiple of the granularity %" PRIu64, bytes,
                 unit_);
  }
  Memory made;
  made.bytes = bytes;
  HEDDLE_RETURN_IF_ERROR(provider_->allocate(bytes, &made.handle));
  std::lock_guard<std::mutex> lock(mutex_);
  *memory = next_memory_++;
  memory_.emplace(*memory, made);
  return Status::ok();
}

Status MappedFabric::adopt(const void* address, uint64_t bytes, MemoryId* memory, uint64_t* taken) {
  if (bytes == 0 || bytes % unit_ != 0) {
    return error(Code::kInvalidValue, "adopt: %" PRIu64 " bytes are no multiple of the granularity %" PRIu64, bytes,
                 unit_);
  }
  Memory made;
  HEDDLE_RETURN_IF_ERROR(provider_->adopt(address, bytes, &made.handle, &made.bytes));
  std::lock_guard<std::mutex> lock(mutex_);
  *memory = next_memory_++;
  *taken = made.bytes;
  memory_.emplace(*memory, made);
  return Status::ok();
}

Status MappedFabric::release(MemoryId memory) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = memory_.find(memory);
  if (found == memory_.end()) {
    return error(Code::kInvalidValue, "release: memory %" PRIu64 " does not exist; it was released or never allocated",
                 memory);
  }
  if (found->second.binds > 0) {
    return error(Code::kInvalidValue,
                 "release: memory %" PRIu64 " of %" PRIu64 " bytes is bound %u times; unbind it first", memory,
                 found->second.bytes, found->second.binds);
  }
  if (found->second.abandoned) {
    log(LogLevel::kInfo, "leaves %" PRIu64 " bytes to the end of the process: a PE may still have them mapped",
        found->second.bytes);
  } else {
    provider_->release(found->second.handle);
  }
  memory_.erase(found);
  return Status::ok();
}

std::byte* MappedFabric::address(MemoryId memory) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = memory_.find(memory);
  return found == memory_.end() ? nullptr : provider_->address(found->second.handle);
}

Status MappedFabric::check_whole(uint64_t endpoint_bytes, uint64_t memory_bytes, uint64_t offset, uint64_t size) const {
  if (!whole_ || (offset == 0 && size == endpoint_bytes && size == memory_bytes)) return Status::ok();
  return error(Code::kInvalidValue,
               "bind: %" PRIu64 " bytes at offset %" PRIu64 " of %" PRIu64
               " bytes of memory; here an endpoint of %" PRIu64 " bytes has one bind, of memory of just that size",
               size, offset, memory_bytes, endpoint_bytes);
}

Status MappedFabric::bind(EndpointId id, uint64_t offset, MemoryId memory, uint64_t memory_offset, uint64_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  Endpoint* endpoint = nullptr;
  HEDDLE_RETURN_IF_ERROR(find_live(id, "bind", &endpoint));
  if (!endpoint->own) {
    return error(Code::kNotSupported, "bind: endpoint %u is imported from PE %d; only its owner binds memory", id,
                 endpoint->owner);
  }
  if (!endpoint->ready) {
    return error(Code::kNotReady, "bind: endpoint %u is not ready; query it until it is", id);
  }
  if (size == 0 || (offset | memory_offset | size) % unit_ != 0) {
    return error(Code::kInvalidValue,
                 "bind: endpoint offset %" PRIu64 ", memory offset %" PRIu64 " and size %" PRIu64
                 " must be multiples of %" PRIu64 ", the size not zero",
                 offset, memory_offset, size, unit_);
  }
  if (size > endpoint->size || offset > endpoint->size - size) {
    return error(Code::kInvalidValue,
                 "bind: %" PRIu64 " bytes at offset %" PRIu64 " end beyond endpoint %u, which has %" PRIu64 " bytes",
                 size, offset, id, endpoint->size);
  }
  const auto found = memory_.find(memory);
  if (found == memory_.end()) {
    return error(Code::kInvalidValue, "bind: memory %" PRIu64 " does not exist; allocate it first", memory);
  }
  if (size > found->second.bytes || memory_offset > found->second.bytes - size) {
    return error(Code::kInvalidValue,
                 "bind: %" PRIu64 " bytes at memory offset %" PRIu64 " end beyond memory %" PRIu64
                 ", which has %" PRIu64 " bytes",
                 size, memory_offset, memory, found->second.bytes);
  }
  HEDDLE_RETURN_IF_ERROR(check_whole(endpoint->size, found->second.bytes, offset, size));
  const auto after = endpoint->binds.lower_bound(offset);
  auto overlapped = endpoint->binds.end();
  if (after != endpoint->binds.end() && after->first - offset < size) overlapped = after;
  if (after != endpoint->binds.begin() && offset - std::prev(after)->first < std::prev(after)->second.size) {
    overlapped = std::prev(after);
  }
  if (overlapped != endpoint->binds.end()) {
    return error(Code::kInvalidValue,
                 "bind: %" PRIu64 " bytes at offset %" PRIu64 " of endpoint %u overlap the %" PRIu64
                 " bound at offset %" PRIu64 "; unbind those first",
                 size, offset, id, overlapped->second.size, overlapped->first);
  }
  std::byte* at = whole_ ? nullptr : windows_.at(id).base + offset;
  HEDDLE_RETURN_IF_ERROR(provider_->map(&at, size, found->second.handle, memory_offset)
                             .in(format("bind: endpoint %u at offset %" PRIu64, id, offset)));
  if (whole_) {
    windows_[id] = {at, size};
    table_.set(id, at);
  }
  ++found->second.binds;
  const Bind& bind = endpoint->binds[offset] = Bind{size, memory, memory_offset, Status::ok()};
  tell_importers(*endpoint, "bind", [&](ImporterKey key, Importer& importer) {
    return tell_bound(key.first, key.second, importer, offset, bind);
  });
  return Status::ok();
}

Status MappedFabric::unbind(EndpointId id, uint64_t offset, uint64_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  Endpoint* endpoint = nullptr;
  HEDDLE_RETURN_IF_ERROR(find_live(id, "unbind", &endpoint));
  if (!endpoint->own) {
    return error(Code::kNotSupported, "unbind: endpoint %u is imported from PE %d; only its owner unbinds memory", id,
                 endpoint->owner);
  }
  const auto first = endpoint->binds.find(offset);
  uint64_t sum = 0;
  auto last = first;
  while (last != endpoint->binds.end() && last->first == offset + sum && sum < size) sum += (last++)->second.size;
  if (first == endpoint->binds.end() || sum != size || size == 0) {
    return error(Code::kInvalidValue,
                 "unbind: no bind or run of consecutive binds of endpoint %u starts at offset %" PRIu64
                 " and is %" PRIu64 " bytes long (what starts there and is bound without a gap adds up to %" PRIu64 ")",
                 id, offset, size, sum);
  }
  HEDDLE_RETURN_IF_ERROR(provider_->unmap(windows_.at(id).base + offset, size).in(format("unbind: endpoint %u", id)));
  for (auto bind = first; bind != last; ++bind) --memory_.at(bind->second.memory).binds;
  endpoint->binds.erase(first, last);
  if (whole_) {
    windows_[id] = {};
    table_.set(id, nullptr);
  }
  tell_importers(*endpoint, "unbind", [&](ImporterKey key, Importer& importer) {
    Message message;
    message.kind = MessageKind::kUnbound;
    message.request = key.second;
    message.change = ++importer.sent;
    message.offset = offset;
    message.size = size;
    return send(key.first, message);
  });
  return Status::ok();
}

}  // namespace heddle::mapped
