#include "runtime/world.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <thread>

#include "device/internal_area.h"
#include "runtime/log.h"

namespace heddle {
namespace {

constexpr uint32_t kRecordMagic = 0x48454431;  // "HED1"
constexpr uint32_t kRecordVersion = 1;
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
  uint64_t limit = 0;
  uint64_t chunk = 0;
  int32_t failed = 0;  // Code of what went wrong here before the exchange
  char text[180] = {};
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

Status World::join(const Settings& settings, std::unique_ptr<Bootstrap> bootstrap, std::unique_ptr<World>* world) {
  std::unique_ptr<World> fresh(new World(settings));
  fresh->bootstrap_ = std::move(bootstrap);
  HEDDLE_RETURN_IF_ERROR(fresh->join_steps());
  *world = std::move(fresh);
  return Status::ok();
}

Status World::check_memory_settings(uint64_t* limit, uint64_t* chunk, uint64_t* internal) const {
  const auto n_pes = static_cast<uint64_t>(bootstrap_->size());
  const auto memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
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
    return error(Code::kOutOfMemory, "NVSHMEM_SYMMETRIC_SIZE=%s is more than this machine's memory of %s; lower it",
                 size_text(asked).c_str(), size_text(memory).c_str());
  }
  *chunk = settings_.granularity;
  if (*chunk < (64U << 10) || (*chunk & (*chunk - 1)) != 0) {
    return error(Code::kInvalidValue, "NVSHMEM_CUMEM_GRANULARITY=%s is not a power of two of at least 64K",
                 size_text(*chunk).c_str());
  }
  // The user's bytes come on top of the library's own, so that all of what was asked can be allocated.
  *internal = round_up(device::InternalArea(n_pes).bytes(), 4096);
  *limit = round_up(std::min(asked, memory) + *internal, *chunk);
  return Status::ok();
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
    HEDDLE_RETURN_IF_ERROR(check_memory_settings(&mine.limit, &mine.chunk, &internal));
    HEDDLE_RETURN_IF_ERROR(read_boot_id(mine.identity.boot_id));
    mine.identity.pid = static_cast<int32_t>(getpid());
    mine.identity.uid = static_cast<uint32_t>(getuid());
    mine.identity.node = nodes_[static_cast<size_t>(me)];
    HEDDLE_RETURN_IF_ERROR(make_job_token(&mine.token));
    HEDDLE_RETURN_IF_ERROR(ControlChannel::open(settings_, me, n_pes, !one_node, &control_));
    mine.address = control_->address();
    HEDDLE_RETURN_IF_ERROR(make_fabric(settings_, control_->make_courier(), &fabric_));
    heap_ = std::make_unique<SymmetricHeap>(*fabric_);
    return heap_->open({me, n_pes, mine.limit, mine.chunk, internal, &control_->poison()}, deadline, &mine.endpoint);
  };
  const Status prepared = prepare();
  if (!prepared.is_ok()) {
    mine.failed = static_cast<int32_t>(prepared.code());
    std::strncpy(mine.text, prepared.text().c_str(), sizeof mine.text - 1);
  }
  std::vector<Record> records(static_cast<size_t>(n_pes));
  const Status exchanged = bootstrap_->allgather(&mine, sizeof mine, records.data(), deadline);
  if (!exchanged.is_ok()) return prepared.is_ok() ? exchanged.in("exchange of records") : prepared;
  HEDDLE_RETURN_IF_ERROR(judge_records(records));
  times_.exchange = watch.lap();

  std::vector<ControlPeer> peers;
  for (const Record& record : records) peers.push_back({record.identity, record.address});
  control_->on_loss([this](const PeerLoss& loss) {
    log(LogLevel::kError, "%s", loss.text.c_str());
    if (doorbell_ != nullptr) doorbell_->ring();
  });
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
  std::vector<EndpointHandle> handles;
  for (const Record& record : records) handles.push_back(record.endpoint);
  HEDDLE_RETURN_IF_ERROR(control_->agree("import of heaps", heap_->import_peers(handles, deadline), deadline));

  view_ = heap_->view();
  direct_ = view_.direct != 0;
  const device::InternalArea area(static_cast<uint64_t>(n_pes));
  doorbell_ = reinterpret_cast<Doorbell*>(heap_->base() + area.doorbell());
  slots_ = reinterpret_cast<uint64_t*>(heap_->base() + area.host_slot(0));
  const auto local = std::count(nodes_.begin(), nodes_.end(), nodes_[static_cast<size_t>(me)]);
  wait_context_.poison = &control_->poison();
  wait_context_.doorbell = doorbell_;
  wait_context_.timeout_seconds = settings_.wait_timeout;
  wait_context_.spins = local > sysconf(_SC_NPROCESSORS_ONLN) ? kCrowdedSpins : kSpins;
  times_.heap = watch.lap();
  log(LogLevel::kInfo,
      "joined as PE %d of %d by %s, fabric %s, heap limit %s; exchange %.1f ms, connect %.1f ms, heap %.1f ms", me,
      n_pes, bootstrap_->name(), fabric_->name(), size_text(mine.limit).c_str(), times_.exchange * 1e3,
      times_.connect * 1e3, times_.heap * 1e3);
  return Status::ok();
}

World::~World() {
  // The fabric's courier and the heap's endpoints end before the channel that carries their messages.
  heap_.reset();
  fabric_.reset();
  control_.reset();
}

Status World::finalize() {
  if (finalized_) return Status::ok();
  finalized_ = true;
  Status status = quiet();
  const Status together = control_->agree("nvshmem_finalize", status, Deadline::in(settings_.timeout));
  if (status.is_ok()) status = together;
  view_ = device::HeapView();
  doorbell_ = nullptr;
  heap_.reset();
  fabric_.reset();
  control_->leave();
  return status;
}

Status World::allocate(const char* call, uint64_t bytes, uint64_t alignment, bool zeroed, const Status& valid,
                       void** block) {
  const Status status =
      heap_->allocate(*control_, call, bytes, alignment, zeroed, valid, Deadline::in(settings_.wait_timeout), block);
  view_ = heap_->view();
  return status;
}

Status World::free(void* block) {
  // Puts into the block must have arrived before anyone uses its memory for something else.
  HEDDLE_RETURN_IF_ERROR(quiet());
  const Status status = heap_->free(*control_, block, Deadline::in(settings_.wait_timeout));
  view_ = heap_->view();
  return status;
}

Status World::sync_all() {
  const uint64_t epoch = ++epoch_;
  const int me = view_.my_pe;
  constexpr uint64_t kWordsPerSlot = device::kLine / sizeof(uint64_t);
  uint64_t* mine = slots_ + static_cast<uint64_t>(me) * kWordsPerSlot;
  for (int step = 1; step < view_.n_pes; ++step) {
    const int pe = me + step < view_.n_pes ? me + step : me + step - view_.n_pes;
    if (direct_) {
      device::store_release(device::translate(view_, mine, pe), epoch);
      ring(pe);
    } else {
      const device::Handle handle = device::make_handle(view_, mine, pe);
      HEDDLE_RETURN_IF_ERROR(fabric_->put(handle.id, handle.offset, &epoch, sizeof epoch));
    }
  }
  // An emulated or remote fabric may hold the arrivals back until it is asked to deliver.
  if (!direct_) HEDDLE_RETURN_IF_ERROR(fabric_->quiet());
  Waiter pause(wait_context_);
  for (int step = 1; step < view_.n_pes; ++step) {
    const int pe = me + step < view_.n_pes ? me + step : me + step - view_.n_pes;
    const uint64_t* slot = slots_ + static_cast<uint64_t>(pe) * kWordsPerSlot;
    while (device::load_acquire(slot) < epoch) {
      if (pause()) continue;
      std::vector<int> missing;
      for (int other = 0; other < view_.n_pes; ++other) {
        if (other != me && device::load_acquire(slots_ + static_cast<uint64_t>(other) * kWordsPerSlot) < epoch) {
          missing.push_back(other);
        }
      }
      return wait_failure(pause.verdict(), pe_list(missing));
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
