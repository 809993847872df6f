#include "runtime/fabric/fault/fault_fabric.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <csignal>
#include <cstring>
#include <utility>

namespace heddle {
namespace {

constexpr size_t kMostHeld = 64;
constexpr std::chrono::milliseconds kLongestHeld{1};

constexpr const char* kMethodNames[] = {
    "reserve_ids", "release_ids", "limits", "set_window",  "create", "export_handle", "import_handle", "query",
    "destroy",     "allocate",    "adopt",  "release",     "bind",   "unbind",        "put",           "get",
    "atomic",      "put_signal",  "signal", "put_counted", "fence",  "quiet",         "any",
};
static_assert(std::size(kMethodNames) == static_cast<size_t>(FabricMethod::kAny) + 1);

const char* method_name(FabricMethod method) { return kMethodNames[static_cast<int>(method)]; }

bool parse_method(const std::string& text, FabricMethod* method) {
  const auto* found = std::find(std::begin(kMethodNames), std::end(kMethodNames), text);
  if (found == std::end(kMethodNames)) return false;
  *method = static_cast<FabricMethod>(found - kMethodNames);
  return true;
}

bool parse_number(const std::string& text, uint64_t* number) {
  const char* end = text.data() + text.size();
  const auto [stop, err] = std::from_chars(text.data(), end, *number);
  return err == std::errc() && stop == end && !text.empty();
}

bool parse_time(const std::string& text, std::chrono::microseconds* time) {
  uint64_t number = 0;
  if (text.size() < 3 || !parse_number(text.substr(0, text.size() - 2), &number) || number > 1'000'000'000)
    return false;
  const std::string unit = text.substr(text.size() - 2);
  if (unit != "us" && unit != "ms") return false;
  *time = std::chrono::microseconds(unit == "ms" ? number * 1000 : number);
  return true;
}

bool can_be_dropped(FabricMethod method) {
  switch (method) {
    case FabricMethod::kPut:
    case FabricMethod::kPutSignal:
    case FabricMethod::kSignal:
    case FabricMethod::kPutCounted:
    case FabricMethod::kAtomic:
    case FabricMethod::kFence:
    case FabricMethod::kQuiet:
      return true;
    default:
      return false;
  }
}

/// Parts of text before and after the first `separator`; the second is empty without one.
std::pair<std::string, std::string> split(const std::string& text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

Status malformed(const std::string& item, const std::string& plan, const char* why) {
  return error(Code::kInvalidValue,
               "HEDDLE_FAULT=\"%s\": item \"%s\" %s; items are fail=N, fail=METHOD:N, "
               "delay=METHOD:100us, reorder, drop=METHOD:N, kill=N and kill=METHOD:N, each with @pe=K or without",
               plan.c_str(), item.c_str(), why);
}

/// One item without its "@pe=K"; adds it to `plan` when `applies`.
const char* parse_item(const std::string& item, bool applies, FaultPlan* plan) {
  const auto [verb, value] = split(item, '=');
  if (verb == "reorder") {
    uint64_t seed = 1;
    if (item != "reorder" && !parse_number(value, &seed)) return "has a seed that is no number";
    if (applies) {
      plan->reorder = true;
      plan->seed = seed;
    }
    return nullptr;
  }
  Fault fault;
  const auto [method, detail] = split(value, ':');
  const bool has_method = value.find(':') != std::string::npos;
  if (has_method && !parse_method(method, &fault.method)) return "names no method of the fabric interface";
  const std::string& number = has_method ? detail : value;
  if (verb == "delay") {
    fault.kind = Fault::Kind::kDelay;
    if (!has_method || !parse_time(detail, &fault.delay))
      return "needs a method and a time such as put:100us or any:5ms";
  } else if (verb == "fail" || verb == "kill" || verb == "drop") {
    fault.kind = verb == "fail" ? Fault::Kind::kFail : verb == "kill" ? Fault::Kind::kKill : Fault::Kind::kDrop;
    if (!parse_number(number, &fault.call) || fault.call == 0) return "needs the number of a call, from 1";
    if (verb == "drop" && !can_be_dropped(fault.method)) {
      return "can drop put, put_signal, signal, put_counted, atomic, fence and quiet only";
    }
  } else {
    return "is none that exists";
  }
  if (applies) plan->faults.push_back(fault);
  return nullptr;
}

}  // namespace

Status FaultPlan::parse(const std::string& text, int pe, FaultPlan* plan) {
  FaultPlan parsed;
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string whole = text.substr(begin, end - begin);
    begin = end + 1;
    const auto [item, filter] = split(whole, '@');
    bool applies = true;
    if (item.size() != whole.size()) {
      uint64_t only = 0;
      if (filter.rfind("pe=", 0) != 0 || !parse_number(filter.substr(3), &only)) {
        return malformed(whole, text, "has something else than @pe=K behind the @");
      }
      applies = pe >= 0 && only == static_cast<uint64_t>(pe);
    }
    const char* why = parse_item(item, applies, &parsed);
    if (why != nullptr) return malformed(whole, text, why);
  }
  *plan = std::move(parsed);
  return Status::ok();
}

FaultFabric::FaultFabric(std::unique_ptr<Fabric> inner, FaultPlan plan)
    : inner_(std::move(inner)),
      plan_(std::move(plan)),
      name_(std::string(inner_->name()) + "+fault"),
      random_(plan_.seed) {
  if (plan_.reorder) maker_ = std::jthread([this](const std::stop_token& stop) { make_held_in_time(stop); });
}

FaultFabric::~FaultFabric() =
    default;  // maker_ is the last member: it is asked to stop and joined before the rest goes

uint64_t FaultFabric::calls(FabricMethod method) const {
  return calls_[static_cast<size_t>(method)].load(std::memory_order_relaxed);  // relaxed: a number, nothing behind it
}

FabricCapabilities FaultFabric::capabilities() const {
  FabricCapabilities capabilities = inner_->capabilities();
  capabilities.mapped = false;
  return capabilities;
}

Status FaultFabric::enter(FabricMethod method, bool* drop) const {
  // Relaxed: the increments alone must be atomic, so that every call has its number.
  const uint64_t all = 1 + calls_[static_cast<size_t>(FabricMethod::kAny)].fetch_add(1, std::memory_order_relaxed);
  const uint64_t own = 1 + calls_[static_cast<size_t>(method)].fetch_add(1, std::memory_order_relaxed);
  for (const Fault& fault : plan_.faults) {
    const bool any = fault.method == FabricMethod::kAny;
    if (!any && fault.method != method) continue;
    if (fault.call != 0 && fault.call != (any ? all : own)) continue;
    switch (fault.kind) {
      case Fault::Kind::kDelay:
        std::this_thread::sleep_for(fault.delay);
        break;
      case Fault::Kind::kKill:
        raise(SIGKILL);
        break;
      case Fault::Kind::kDrop:
        if (drop != nullptr) *drop = true;
        break;
      case Fault::Kind::kFail:
        return error(Code::kInternal, "fault injected in call %" PRIu64 " (%s)", fault.call, method_name(method));
    }
  }
  return Status::ok();
}

// ---- operations held back

Status FaultFabric::hold(Steps steps) {
  std::unique_lock<std::mutex> lock(mutex_);
  held_.push_back(std::move(steps));
  if (held_.size() >= kMostHeld) return make_held(lock);
  if (held_.size() == 1) more_.notify_one();
  return Status::ok();
}

Status FaultFabric::make_held(std::unique_lock<std::mutex>&) {
  std::vector<size_t> next(held_.size(), 0), open(held_.size());
  for (size_t i = 0; i < open.size(); ++i) open[i] = i;
  while (!open.empty()) {
    const size_t pick = random_() % open.size();
    Steps& steps = held_[open[pick]];
    size_t& step = next[open[pick]];
    Status status = steps[step++]();
    if (deferred_.is_ok()) deferred_ = std::move(status);
    if (step < steps.size()) continue;
    open[pick] = open.back();
    open.pop_back();
  }
  held_.clear();
  return std::exchange(deferred_, Status::ok());
}

Status FaultFabric::make_held() {
  if (!plan_.reorder) return Status::ok();
  std::unique_lock<std::mutex> lock(mutex_);
  return make_held(lock);
}

void FaultFabric::make_held_in_time(const std::stop_token& stop) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (more_.wait(lock, stop, [this] { return !held_.empty(); })) {
    if (stop.stop_requested()) return;
    // Unlocked meanwhile, so that more operations come together.
    more_.wait_for(lock, stop, kLongestHeld, [] { return false; });
    if (stop.stop_requested()) return;
    deferred_ = make_held(lock);
  }
}

// ---- the calls of the interface

Status FaultFabric::reserve_ids(uint32_t count, EndpointIds* ids) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kReserveIds));
  return inner_->reserve_ids(count, ids);
}

Status FaultFabric::release_ids(EndpointIds ids) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kReleaseIds));
  return inner_->release_ids(ids);
}

Status FaultFabric::limits(const EndpointProperties& properties, EndpointLimits* limits) const {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kLimits));
  return inner_->limits(properties, limits);
}

Status FaultFabric::set_window(EndpointId id, std::byte* window, uint64_t size) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kSetWindow));
  return inner_->set_window(id, window, size);
}

Status FaultFabric::create(EndpointId id, const EndpointProperties& properties) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kCreate));
  return inner_->create(id, properties);
}

Status FaultFabric::export_handle(EndpointId id, EndpointHandle* handle) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kExportHandle));
  return inner_->export_handle(id, handle);
}

Status FaultFabric::import_handle(EndpointId id, const EndpointHandle& handle) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kImportHandle));
  return inner_->import_handle(id, handle);
}

Status FaultFabric::query(EndpointId id, uint32_t count, bool* ready) {
  *ready = false;
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kQuery));
  return inner_->query(id, count, ready);
}

Status FaultFabric::destroy(EndpointId id) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kDestroy));
  return inner_->destroy(id);
}

Status FaultFabric::allocate(uint64_t bytes, MemoryId* memory) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kAllocate));
  return inner_->allocate(bytes, memory);
}

Status FaultFabric::adopt(const void* address, uint64_t bytes, MemoryId* memory, uint64_t* taken) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kAdopt));
  return inner_->adopt(address, bytes, memory, taken);
}

Status FaultFabric::release(MemoryId memory) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kRelease));
  return inner_->release(memory);
}

Status FaultFabric::bind(EndpointId id, uint64_t offset, MemoryId memory, uint64_t memory_offset, uint64_t size) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kBind));
  return inner_->bind(id, offset, memory, memory_offset, size);
}

Status FaultFabric::unbind(EndpointId id, uint64_t offset, uint64_t size) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kUnbind));
  return inner_->unbind(id, offset, size);
}

Status FaultFabric::put(EndpointId id, uint64_t offset, const void* source, size_t bytes) {
  bool drop = false;
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kPut, &drop));
  if (drop) return Status::ok();
  if (!plan_.reorder) return inner_->put(id, offset, source, bytes);
  const auto* from = static_cast<const std::byte*>(source);
  return hold({[this, id, offset, data = std::vector<std::byte>(from, from + bytes)] {
    return inner_->put(id, offset, data.data(), data.size());
  }});
}

Status FaultFabric::get(EndpointId id, uint64_t offset, void* destination, size_t bytes) {
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kGet));
  HEDDLE_RETURN_IF_ERROR(make_held());
  return inner_->get(id, offset, destination, bytes);
}

Status FaultFabric::atomic(AtomicOp op, AtomicType type, EndpointId id, uint64_t offset, uint64_t operand,
                           uint64_t compare, uint64_t* result) {
  bool drop = false;
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kAtomic, &drop));
  if (drop) return Status::ok();
  if (plan_.reorder && result == nullptr) {
    return hold({[=, this] { return inner_->atomic(op, type, id, offset, operand, compare, nullptr); }});
  }
  HEDDLE_RETURN_IF_ERROR(make_held());
  return inner_->atomic(op, type, id, offset, operand, compare, result);
}

Status FaultFabric::put_signal(EndpointId id, uint64_t offset, const void* source, size_t bytes, uint64_t signal_offset,
                               uint64_t value, SignalOp op) {
  bool drop = false;
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kPutSignal, &drop));
  if (drop) return Status::ok();
  if (!plan_.reorder) return inner_->put_signal(id, offset, source, bytes, signal_offset, value, op);
  const auto* from = static_cast<const std::byte*>(source);
  return hold({[this, id, offset, data = std::vector<std::byte>(from, from + bytes)] {
                 return inner_->put(id, offset, data.data(), data.size());
               },
               [=, this] {
                 // The data went as a put of its own, so a fence must keep it before the signal.
                 HEDDLE_RETURN_IF_ERROR(inner_->fence());
                 return inner_->put_signal(id, offset, nullptr, 0, signal_offset, value, op);
               }});
}

Status FaultFabric::signal(EndpointId id, uint64_t offset, uint64_t value, SignalOp op) {
  bool drop = false;
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kSignal, &drop));
  if (drop) return Status::ok();
  if (!plan_.reorder) return inner_->signal(id, offset, value, op);
  return hold({[=, this] { return inner_->signal(id, offset, value, op); }});
}

Status FaultFabric::put_counted(EndpointId id, uint64_t offset, const void* source, size_t bytes,
                                uint64_t counter_offset) {
  bool drop = false;
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kPutCounted, &drop));
  if (drop) return Status::ok();
  if (!plan_.reorder) return inner_->put_counted(id, offset, source, bytes, counter_offset);
  // In two parts, the second first: the counter may be moved in several steps, and only the sum says anything.
  const auto* from = static_cast<const std::byte*>(source);
  auto part = [=, this](size_t begin, size_t end) {
    return [this, id, counter_offset, at = offset + begin, data = std::vector<std::byte>(from + begin, from + end)] {
      return inner_->put_counted(id, at, data.data(), data.size(), counter_offset);
    };
  };
  return hold({part(bytes / 2, bytes), part(0, bytes / 2)});
}

Status FaultFabric::fence() {
  bool drop = false;
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kFence, &drop));
  if (drop) return Status::ok();
  HEDDLE_RETURN_IF_ERROR(make_held());
  return inner_->fence();
}

Status FaultFabric::quiet() {
  bool drop = false;
  HEDDLE_RETURN_IF_ERROR(enter(FabricMethod::kQuiet, &drop));
  if (drop) return Status::ok();
  HEDDLE_RETURN_IF_ERROR(make_held());
  return inner_->quiet();
}

}  // namespace heddle
