#include "runtime/world.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <thread>

#include "device/internal_area.h"
#include "runtime/log.h"

namespace heddle {
namespace {

constexpr uint32_t kRecordMagic = 0x48454431;  // "HED1"
constexpr uint32_t kRecordVersion = 4;
constexpr uint32_t kSpins = 4000;       // some 50 us; then other PEs may need the core
constexpr uint32_t kCrowdedSpins = 64;  // more PEs than cores: they surely do

// What every PE publishes: one per rank, in one exchange, checked by all.
struct Record {
  uint32_t magic = kRecordMagic;
  uint32_t version = kRecordVersion;
  PeerIdentity identity{};
  ControlAddress address{};
  JobToken token{};  // PE 0's is the job's
  EndpointHandle endpoint{};
  EndpointHandle control_endpoint{};  // of the host memory beside a device heap
  char fabric[16] = {};               // NUL-terminated
  uint64_t limit = 0;
  uint64_t chunk = 0;
  int32_t failed = 0;  // Code of what went wrong here before the exchange
  char text[500] = {};
};

Status read_boot_id(unsigned char (&id)[16]) {
  const OwnedFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[37] = {};
  if (!file.valid() || ::read(file.get(), text, 36) != 36) {
    return error_errno(Code::kInternal, errno,
                       "cannot read /proc/sys/kernel/random/boot_id, by which PEs know their host");
  }
  int digits = 0;
  for (const char c : text) {
    const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (value < 0 || digits >= 32) continue;
    id[digits / 2] = static_cast<unsigned char>(digits % 2 == 0 ? value << 4 : id[digits / 2] | value);
    ++digits;
  }
  return Status::ok();
}

class Stopwatch {
 public:
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - from_).count();
    from_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point from_ = std::chrono::steady_clock::now();
};

// The failure that every PE takes from all records alike, or ok.
Status judge_records(const std::vector<Record>& records) {
  for (size_t pe = 0; pe < records.size(); ++pe) {
    if (records[pe].magic != kRecordMagic || records[pe].version != kRecordVersion) {
      return error(
          Code::kInternal,
          "PE %zu publishes a record of another version (magic %08x, version %u; this is %08x, %u); all PEs must "
          "run the same Heddle",
          pe, records[pe].magic, records[pe].version, kRecordMagic, kRecordVersion);
    }
  }
  for (size_t pe = 0; pe < records.size(); ++pe) {
    if (records[pe].failed != 0) {
      return error(static_cast<Code>(records[pe].failed), "PE %zu: %s", pe,
                   std::string(records[pe].text, strnlen(records[pe].text, sizeof records[pe].text)).c_str());
    }
  }
  std::vector<std::string> names;
  std::vector<PeerIdentity> identities;
  for (const Record& record : records) {
    names.emplace_back(record.fabric, strnlen(record.fabric, sizeof record.fabric));
    identities.push_back(record.identity);
  }
  HEDDLE_RETURN_IF_ERROR(judge_choices(names, identities));
  for (size_t pe = 1; pe < records.size(); ++pe) {
    if (records[pe].limit != records[0].limit || records[pe].chunk != records[0].chunk) {
      return error(Code::kSymmetry,
                   "the heap is %s in chunks of %s on PE 0 but %s in chunks of %s on PE %zu; give every PE the same "
                   "NVSHMEM_SYMMETRIC_SIZE and NVSHMEM_CUMEM_GRANULARITY",
                   size_text(records[0].limit).c_str(), size_text(records[0].chunk).c_str(),
                   size_text(records[pe].limit).c_str(), size_text(records[pe].chunk).c_str(), pe);
    }
  }
  return Status::ok();
}

void note_failure(Record* record, const Status& status) {
  if (status.is_ok()) return;
  record->failed = static_cast<int32_t>(status.code());
  std::strncpy(record->text, status.text().c_str(), sizeof record->text - 1);
}

// relaxed: readers take it for a bound only (device::extent_of)
void set_extent(device::HeapView* view, uint64_t extent) { __atomic_store_n(&view->extent, extent, __ATOMIC_RELAXED); }

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

std::string pe_list(const std::vector<int>& pes) {
  std::string text;
  for (size_t i = 0; i < pes.size(); ++i) {
    if (i > 0) text += i + 1 == pes.size() ? " and " : ", ";
    text += format("PE %d", pes[i]);
  }
  return text;
}

Status World::join(const Settings& settings, std::unique_ptr<Bootstrap> bootstrap, std::unique_ptr<World>* world,
                   int cuda_device) {
  std::unique_ptr<World> fresh(new World(settings, cuda_device));
  fresh->bootstrap_ = std::move(bootstrap);
  Status joined = fresh->join_steps();
  if (joined.is_ok()) {
    *world = std::move(fresh);
  } else if (fresh->control_ != nullptr) {
    fresh->take_down();        // first: what was imported is given back by messages
    fresh->control_->leave();  // in order, so that nobody takes this end for a loss beside the cause that all know
  }
  return joined;
}

Status World::refuse(const Settings& settings, Bootstrap& bootstrap, const Status& why) {
  Record mine;
  note_failure(&mine, why);
  std::vector<Record> records(static_cast<size_t>(bootstrap.size()));
  const Status told = bootstrap.allgather(&mine, sizeof mine, records.data(), Deadline::in(settings.timeout));
  return told.is_ok() ? judge_records(records) : why;
}

Status World::check_memory_settings(uint64_t* limit, uint64_t* chunk, uint64_t* internal) const {
  const auto n_pes = static_cast<uint64_t>(bootstrap_->size());
  const FabricCapabilities capabilities = fabric_->capabilities();
  const auto machine = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t memory = capabilities.memory_bytes != 0 ? capabilities.memory_bytes : machine;
  const uint64_t asked = settings_.symmetric_size;
  const bool given = std::count(settings_.given.begin(), settings_.given.end(), "NVSHMEM_SYMMETRIC_SIZE") > 0;
  if (asked == 0) {
    return error(Code::kInvalidValue,
                 "NVSHMEM_SYMMETRIC_SIZE is 0; give the bytes that each PE may allocate, such as 1G");
  }
  if (asked > settings_.max_memory_per_gpu) {
    return error(Code::kInvalidValue,
                 "NVSHMEM_SYMMETRIC_SIZE=%s is over NVSHMEM_MAX_MEMORY_PER_GPU=%s; lower the one or raise the other",
                 size_text(asked).c_str(), size_text(settings_.max_memory_per_gpu).c_str());
  }
  if (given && asked > memory) {
    return error(Code::kOutOfMemory, "NVSHMEM_SYMMETRIC_SIZE=%s is more than this %s's memory of %s; lower it",
                 size_text(asked).c_str(), capabilities.device_memory ? "GPU" : "machine", size_text(memory).c_str());
  }
  *chunk = settings_.granularity;
  if (*chunk < (64U << 10) || (*chunk & (*chunk - 1)) != 0) {
    return error(Code::kInvalidValue, "NVSHMEM_CUMEM_GRANULARITY=%s is not a power of two of at least 64K",
                 size_text(*chunk).c_str());
  }
  // Programs for NVSHMEM expect such heaps to grow as far as there is memory. The same on all PEs, whatever their GPUs.
  const bool grows_freely = !given && capabilities.device_memory && !capabilities.whole_endpoints;
  // The user's bytes come on top of the library's own, so that all of what was asked can be allocated.
  *internal = round_up(device::InternalArea(n_pes).bytes(), 4096);
  *limit = round_up((grows_freely ? settings_.max_memory_per_gpu : std::min(asked, memory)) + *internal, *chunk);
  return Status::ok();
}

Status World::open_control_heap(Deadline deadline, EndpointHandle* handle) {
  const int n_pes = bootstrap_->size();
  constexpr uint64_t kChunk = 64U << 10;
  const uint64_t internal = device::InternalArea(static_cast<uint64_t>(n_pes)).bytes();
  control_fabric_ = make_host_fabric(control_->make_courier(1));
  control_heap_ = std::make_unique<SymmetricHeap>(*control_fabric_);
  return control_heap_->open(
      {bootstrap_->rank(), n_pes, round_up(internal, kChunk), kChunk, internal, &control_->poison()}, deadline, handle);
}

void World::refresh_views() {
  const device::HeapView now = heap_->view();
  if (view_.n_pes == 0) {
    view_ = mapped_view_ = now;
    if (device_ != nullptr) view_.direct = device::kNotMapped;
    if (device_ == nullptr) sync_view_ = now;
  } else {
    // Growth changes nothing else, and other threads may be in the middle of a put.
    for (device::HeapView* view : {&view_, &mapped_view_}) set_extent(view, now.extent);
    if (device_ == nullptr) set_extent(&sync_view_, now.extent);
  }
}

Status World::publish_view() {
  if (device_ == nullptr || published_extent_ == mapped_view_.extent) return Status::ok();
  DeviceSide::Place place;
  const auto me = static_cast<size_t>(mapped_view_.my_pe);
  place.node_n_pes = static_cast<uint32_t>(std::count(nodes_.begin(), nodes_.end(), nodes_[me]));
  place.node_my_pe = static_cast<uint32_t>(std::count(nodes_.begin(), nodes_.begin() + mapped_view_.my_pe, nodes_[me]));
  HEDDLE_RETURN_IF_ERROR(device_->publish(mapped_view_, place).in("giving kernels the heap"));
  published_extent_ = mapped_view_.extent;
  return Status::ok();
}

Status World::show_heap(const char* call) {
  refresh_views();
  if (device_ == nullptr) return Status::ok();
  // The extent is the same on all PEs, and so is this decision: a PE that has published already comes all the same.
  if (agreed_extent_ == mapped_view_.extent) return device_->renew(), Status::ok();
  HEDDLE_RETURN_IF_ERROR(control_->agree(call, publish_view(), Deadline::in(settings_.wait_timeout)));
  agreed_extent_ = mapped_view_.extent;
  return Status::ok();
}

void World::end_by_kernel(int exit_code) {
  log(LogLevel::kInfo, "a kernel called nvshmem_global_exit(%d)", exit_code);
  tell_exit(exit_code);
  if (exit_code != 0) {
    bootstrap_->abort(exit_code, format("a kernel of PE %d called nvshmem_global_exit(%d)", view_.my_pe, exit_code));
  }
  std::fflush(nullptr);
  ::_exit(exit_code);  // not exit(): the program's own threads are in the middle of something
}

Status World::join_steps() {
  Stopwatch watch;
  const int me = bootstrap_->rank();
  const int n_pes = bootstrap_->size();
  const Deadline deadline = Deadline::in(settings_.timeout);
  nodes_.resize(static_cast<size_t>(n_pes));
  bool one_node = true;
  for (int pe = 0; pe < n_pes; ++pe) {
    nodes_[static_cast<size_t>(pe)] = bootstrap_->node_of(pe);
    one_node = one_node && nodes_[static_cast<size_t>(pe)] == nodes_[0];
  }

  // What fails here is published, so that every PE fails with the same cause instead of waiting for this one.
  Record mine;
  uint64_t internal = 0;
  const auto prepare = [&]() -> Status {
    HEDDLE_RETURN_IF_ERROR(read_boot_id(mine.identity.boot_id));
    mine.identity.pid = static_cast<int32_t>(getpid());
    mine.identity.uid = static_cast<uint32_t>(getuid());
    mine.identity.node = nodes_[static_cast<size_t>(me)];
    HEDDLE_RETURN_IF_ERROR(make_job_token(&mine.token));
    HEDDLE_RETURN_IF_ERROR(ControlChannel::open(settings_, me, n_pes, !one_node, &control_));
    mine.address = control_->address();
    const auto local_rank = std::count(nodes_.begin(), nodes_.begin() + me, nodes_[static_cast<size_t>(me)]);
    HEDDLE_RETURN_IF_ERROR(
        make_fabric(settings_, {cuda_device_, static_cast<int>(local_rank)}, control_->make_courier(), &fabric_));
    std::strncpy(mine.fabric, fabric_->name(), sizeof mine.fabric - 1);
    fabric_->describe(&mine.identity);
    HEDDLE_RETURN_IF_ERROR(check_memory_settings(&mine.limit, &mine.chunk, &internal));
    heap_ = std::make_unique<SymmetricHeap>(*fabric_);
    HEDDLE_RETURN_IF_ERROR(
        heap_->open({me, n_pes, mine.limit, mine.chunk, internal, &control_->poison()}, deadline, &mine.endpoint));
    if (!fabric_->capabilities().device_memory) return Status::ok();
    HEDDLE_RETURN_IF_ERROR(open_control_heap(deadline, &mine.control_endpoint));
    return DeviceSide::make(
        *fabric_, settings_, [this](int exit_code) { end_by_kernel(exit_code); }, &device_);
  };
  const Status prepared = prepare();
  note_failure(&mine, prepared);
  std::vector<Record> records(static_cast<size_t>(n_pes));
  const Status exchanged = bootstrap_->allgather(&mine, sizeof mine, records.data(), deadline);
  if (!exchanged.is_ok()) return prepared.is_ok() ? exchanged.in("exchange of records") : prepared;
  HEDDLE_RETURN_IF_ERROR(judge_records(records));
  times_.exchange = watch.lap();

  std::vector<ControlPeer> peers;
  peers.reserve(records.size());
  for (const Record& record : records) peers.push_back({record.identity, record.address});
  HEDDLE_RETURN_IF_ERROR(control_->connect(peers, records[0].token, deadline));
  times_.connect = watch.lap();

  Status reached;
  for (int pe = 0; pe < n_pes && reached.is_ok(); ++pe) {
    const Reach reach = fabric_->reach(mine.identity, records[static_cast<size_t>(pe)].identity);
    if (reach.reached) continue;
    reached = error(Code::kNotSupported, "no fabric reaches PE %d from PE %d: %s: %s", pe, me, fabric_->name(),
                    reach.reason.c_str());
  }
  HEDDLE_RETURN_IF_ERROR(control_->agree("choice of fabrics", reached, deadline));
  const auto import_heaps = [&]() -> Status {
    std::vector<EndpointHandle> handles, control_handles;
    std::vector<PeerIdentity> identities;
    for (const Record& record : records) {
      handles.push_back(record.endpoint);
      control_handles.push_back(record.control_endpoint);
      identities.push_back(record.identity);
    }
    gpus_ = GpuSharing(identities);
    HEDDLE_RETURN_IF_ERROR(heap_->import_peers(handles, deadline));
    if (control_heap_ != nullptr) {
      HEDDLE_RETURN_IF_ERROR(control_heap_->import_peers(control_handles, deadline));
      sync_view_ = control_heap_->view();
      device_->warn_of(identities, gpus_, me);
      HEDDLE_RETURN_IF_ERROR(device_->learn_teams(gpus_, me));
    }
    refresh_views();
    return publish_view();
  };
  HEDDLE_RETURN_IF_ERROR(control_->agree("import of heaps", import_heaps(), deadline));
  agreed_extent_ = published_extent_;

  direct_ = view_.direct != 0;
  sync_direct_ = sync_view_.direct != 0;
  sync_fabric_ = control_heap_ != nullptr ? control_fabric_.get() : fabric_.get();
  std::byte* const sync_base = control_heap_ != nullptr ? control_heap_->base() : heap_->base();
  const device::InternalArea area(static_cast<uint64_t>(n_pes));
  doorbell_ = reinterpret_cast<Doorbell*>(sync_base + area.doorbell());
  // Not before what it uses is there: a loss until now is reported at once, and has failed a step above by itself.
  control_->on_loss([this](const PeerLoss& loss) {
    log(LogLevel::kError, "%s", loss.text.c_str());
    if (device_ != nullptr) device_->poison(static_cast<uint32_t>(loss.pe) + 1);
    doorbell_->ring();
  });
  slots_ = reinterpret_cast<uint64_t*>(sync_base + area.host_slot(0));
  const auto local = std::count(nodes_.begin(), nodes_.end(), nodes_[static_cast<size_t>(me)]);
  wait_context_.poison = &control_->poison();
  wait_context_.doorbell = doorbell_;
  wait_context_.timeout_seconds = settings_.wait_timeout;
  wait_context_.warn_seconds = settings_.warn_after;
  wait_context_.spins = local > sysconf(_SC_NPROCESSORS_ONLN) ? kCrowdedSpins : kSpins;
  times_.heap = watch.lap();
  log(LogLevel::kInfo,
      "joined as PE %d of %d by %s, fabric %s, heap limit %s; exchange %.1f ms, connect %.1f ms, heap %.1f ms", me,
      n_pes, bootstrap_->name(), fabric_->name(), size_text(mine.limit).c_str(), times_.exchange * 1e3,
      times_.connect * 1e3, times_.heap * 1e3);
  return Status::ok();
}

World::~World() {
  take_down();
  control_.reset();
}

void World::take_down() {
  // The former handler uses what goes now; returns when it is not running.
  if (control_ != nullptr)
    control_->on_loss([](const PeerLoss& loss) { log(LogLevel::kError, "%s", loss.text.c_str()); });
  // Kernels lose the heap before it is unmapped; the fabrics' couriers and the heaps' endpoints end before the channel
  // that carries their messages.
  device_.reset();
  heap_.reset();
  control_heap_.reset();
  fabric_.reset();
  control_fabric_.reset();
}

Status World::finalize() {
  if (finalized_) return Status::ok();
  finalized_ = true;
  Status status = quiet();
  const Status together = control_->agree("nvshmem_finalize", status, Deadline::in(settings_.timeout));
  if (status.is_ok()) status = together;
  if (device_ != nullptr) device_->look();
  if (const size_t left = heap_->registered(); left > 0) {
    log(LogLevel::kInfo, "lets go of %zu registered buffer%s that nobody unregistered", left, left == 1 ? "" : "s");
  }
  take_down();  // first: until then a loss may ring the doorbell
  view_ = mapped_view_ = sync_view_ = device::HeapView();
  doorbell_ = nullptr;
  control_->leave();
  return status;
}

Status World::show_new(const char* call, const Status& made, const std::function<Status()>& undo, void** memory) {
  if (!made.is_ok()) {
    refresh_views();
    return made;  // on all PEs; kernels get a new extent, if there is one, with the next call
  }
  const Status shown = show_heap(call);
  if (shown.is_ok() || *memory == nullptr) return shown;
  // Kernels of some PE do not know the memory, so no PE gets it. The next call tries again.
  const Status undone = undo();
  if (!undone.is_ok()) log(LogLevel::kError, "%s: %p stays in use: %s", call, *memory, undone.text().c_str());
  *memory = nullptr;
  refresh_views();
  return shown;
}

Status World::allocate(const char* call, uint64_t bytes, uint64_t alignment, bool zeroed, const Status& valid,
                       void** block) {
  const Deadline deadline = Deadline::in(settings_.wait_timeout);
  const Status made = heap_->allocate(*control_, call, bytes, alignment, zeroed, valid, deadline, block);
  return show_new(
      call, made, [&] { return heap_->free(*control_, *block, deadline); }, block);
}

Status World::free(void* block) {
  // Puts into the block must have arrived before anyone uses its memory for something else.
  HEDDLE_RETURN_IF_ERROR(quiet());
  const Status status = heap_->free(*control_, block, Deadline::in(settings_.wait_timeout));
  if (status.is_ok()) return show_heap("nvshmem_free");
  refresh_views();
  return status;
}

Status World::register_buffer(const char* call, const void* buffer, uint64_t bytes, const void* preferred,
                              const Status& valid, void** alias) {
  const Deadline deadline = Deadline::in(settings_.wait_timeout);
  const Status made = heap_->register_buffer(*control_, call, buffer, bytes, preferred, valid, deadline, alias);
  const auto undo = [&] { return heap_->unregister_buffer(*control_, call, *alias, bytes, Status::ok(), deadline); };
  return show_new(call, made, undo, alias);
}

Status World::unregister_buffer(const char* call, const void* alias, uint64_t bytes) {
  const Status delivered = quiet();  // what goes there must have arrived before it is unmapped
  const Status status =
      heap_->unregister_buffer(*control_, call, alias, bytes, delivered, Deadline::in(settings_.wait_timeout));
  if (status.is_ok()) return show_heap(call);
  refresh_views();
  return status;
}

Status World::sync_all() {
  const uint64_t epoch = ++epoch_;
  const int me = sync_view_.my_pe;
  constexpr uint64_t kWordsPerSlot = device::kLine / sizeof(uint64_t);
  uint64_t* mine = slots_ + static_cast<uint64_t>(me) * kWordsPerSlot;
  for (int step = 1; step < sync_view_.n_pes; ++step) {
    const int pe = me + step < sync_view_.n_pes ? me + step : me + step - sync_view_.n_pes;
    if (sync_direct_) {
      device::store_release(device::translate(sync_view_, mine, pe), epoch);
      ring(pe);
    } else {
      const device::Handle handle = device::make_handle(sync_view_, mine, pe);
      HEDDLE_RETURN_IF_ERROR(sync_fabric_->put(handle.id, handle.offset, &epoch, sizeof epoch));
    }
  }
  // An emulated or remote fabric may hold the arrivals back until it is asked to deliver.
  if (!sync_direct_) HEDDLE_RETURN_IF_ERROR(sync_fabric_->quiet());
  const auto missing = [&] {
    std::vector<int> pes;
    for (int pe = 0; pe < sync_view_.n_pes; ++pe) {
      if (pe != me && device::load_acquire(slots_ + static_cast<uint64_t>(pe) * kWordsPerSlot) < epoch)
        pes.push_back(pe);
    }
    return pe_list(pes);
  };
  Waiter pause(wait_context_);
  for (int step = 1; step < sync_view_.n_pes; ++step) {
    const int pe = me + step < sync_view_.n_pes ? me + step : me + step - sync_view_.n_pes;
    const uint64_t* slot = slots_ + static_cast<uint64_t>(pe) * kWordsPerSlot;
    while (device::load_acquire(slot) < epoch) {
      if (!pause()) return wait_failure(pause.verdict(), missing());
      if (pause.late()) {
        log(LogLevel::kWarn,
            "has waited %g s in a barrier for %s; see what they do, or set HEDDLE_WAIT_TIMEOUT to make it an error",
            settings_.warn_after, missing().c_str());
      }
    }
  }
  return Status::ok();
}

Status World::barrier_all() {
  HEDDLE_RETURN_IF_ERROR(quiet());
  return sync_all();
}

Status World::wait_failure(Code verdict, const std::string& what) const {
  if (verdict == Code::kPeerLost) return error(Code::kPeerLost, "%s", control_->loss().text.c_str());
  return error(Code::kTimeout, "waited %g s (HEDDLE_WAIT_TIMEOUT) for %s", settings_.wait_timeout, what.c_str());
}

void World::tell_exit(int exit_code) { control_->send_exit(exit_code); }

}  // namespace heddle
