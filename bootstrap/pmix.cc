// The bootstrap over PMIx: one session per process, one record per rank and exchange, one collecting fence, every
// record checked afterwards. libpmix is opened at run time; only what versions 4.2 and 5 both export is used, so
// structures are filled by hand and no PMIx macro that expands to a call appears here.
#include "bootstrap/bootstrap.h"

#if HEDDLE_HAVE_PMIX
#include <dlfcn.h>
#include <pmix.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "bootstrap/rank_list.h"
#endif

namespace heddle {

#if HEDDLE_HAVE_PMIX
namespace {

struct Pmix {
  decltype(&PMIx_Init) init;
  decltype(&PMIx_Finalize) finalize;
  decltype(&PMIx_Abort) abort;
  decltype(&PMIx_Put) put;
  decltype(&PMIx_Commit) commit;
  decltype(&PMIx_Fence_nb) fence_nb;
  decltype(&PMIx_Get) get;
  decltype(&PMIx_Get_nb) get_nb;
  decltype(&PMIx_Value_destruct) value_destruct;
  decltype(&PMIx_Error_string) error_string;

  /// Opens libpmix and finds the functions; the library stays open for the life of the process.
  Status load() {
    // The second place is Debian's, where the plain name is a link that only some packages bring.
    const char* const names[] = {
      "libpmix.so.2",
#if defined(__x86_64__)
      "/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2"
#elif defined(__aarch64__)
      "/usr/lib/aarch64-linux-gnu/pmix2/lib/libpmix.so.2"
#endif
    };
    void* library = nullptr;
    std::string reason;
    for (const char* name : names) {
      library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library) break;
      if (reason.empty()) reason = dlerror();
    }
    if (!library) {
      return error(Code::kNotSupported,
                   "a PMIx launcher started this process, but libpmix.so.2 cannot be opened (%s): install libpmix2 or "
                   "add its folder to LD_LIBRARY_PATH",
                   reason.c_str());
    }
    std::string missing;
    const auto find = [&](const char* name, auto* function) {
      *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, name));
      if (!*function) missing = name;
    };
    find("PMIx_Init", &init);
    find("PMIx_Finalize", &finalize);
    find("PMIx_Abort", &abort);
    find("PMIx_Put", &put);
    find("PMIx_Commit", &commit);
    find("PMIx_Fence_nb", &fence_nb);
    find("PMIx_Get", &get);
    find("PMIx_Get_nb", &get_nb);
    find("PMIx_Value_destruct", &value_destruct);
    find("PMIx_Error_string", &error_string);
    if (missing.empty()) return Status::ok();
    return error(Code::kNotSupported, "libpmix.so.2 lacks %s: PMIx 4.2 or later is needed", missing.c_str());
  }
};

pmix_proc_t process(const pmix_proc_t& self, pmix_rank_t rank) {
  pmix_proc_t proc = self;
  proc.rank = rank;
  return proc;
}

/// A true flag for PMIx calls.
pmix_info_t flag(const char* key) {
  pmix_info_t info = {};
  std::strncpy(info.key, key, PMIX_MAX_KEYLEN);
  info.value.type = PMIX_BOOL;
  info.value.data.flag = true;
  return info;
}

/// What waits for callbacks. A callback may come after our deadline, so it and the caller share the state.
struct Waiter {
  std::mutex mutex;
  std::condition_variable changed;
  size_t pending = 0;  // guarded by mutex, as are the results of the derived types

  void finish_one() {
    --pending;
    changed.notify_all();
  }
  /// Waits with `lock` held until nothing is pending; false when the deadline passed first.
  bool wait(std::unique_lock<std::mutex>& lock, Deadline deadline) {
    const auto idle = [this] { return pending == 0; };
    if (!deadline.is_none()) return changed.wait_until(lock, deadline.at(), idle);
    changed.wait(lock, idle);
    return true;
  }
};

struct FenceWaiter : Waiter {
  pmix_proc_t everybody = {};
  pmix_info_t collect = {};
  pmix_status_t status = PMIX_SUCCESS;
};

/// Records as they were found, by position in the list of ranks asked for.
struct GetWaiter : Waiter {
  explicit GetWaiter(size_t count) : records(count), directive(flag(PMIX_IMMEDIATE)) {}
  std::vector<std::string> records;
  pmix_info_t directive;
};

struct GetTicket {
  std::shared_ptr<GetWaiter> waiter;
  size_t index;
};

void on_fence(pmix_status_t status, void* data) {
  const std::unique_ptr<std::shared_ptr<FenceWaiter>> waiter(static_cast<std::shared_ptr<FenceWaiter>*>(data));
  std::lock_guard<std::mutex> lock((*waiter)->mutex);
  (*waiter)->status = status;
  (*waiter)->finish_one();
}

void on_value(pmix_status_t status, pmix_value_t* value, void* data) {
  const std::unique_ptr<GetTicket> ticket(static_cast<GetTicket*>(data));
  GetWaiter& waiter = *ticket->waiter;
  std::lock_guard<std::mutex> lock(waiter.mutex);
  if (status == PMIX_SUCCESS && value && value->type == PMIX_BYTE_OBJECT && value->data.bo.bytes) {
    waiter.records[ticket->index].assign(value->data.bo.bytes, value->data.bo.size);
  }
  waiter.finish_one();
}

/// What precedes the bytes of a record.
struct RecordHeader {
  static constexpr uint32_t kMagic = 0x31524448;  // "HDR1"
  uint32_t magic = kMagic;
  uint32_t reserved = 0;
  uint64_t generation = 0;
  uint64_t bytes = 0;
};

/// The one PMIx session of the process. It outlives bootstraps, so that init after finalize costs no new connection.
class Session {
 public:
  /// Opens the session at the first call that succeeds; later calls give the same one.
  static Status open(Session** session) {
    static std::mutex mutex;
    static Session* the_session = nullptr;  // never destroyed: callbacks of libpmix's thread may still come
    std::lock_guard<std::mutex> lock(mutex);
    if (!the_session) {
      auto fresh = std::make_unique<Session>();
      HEDDLE_RETURN_IF_ERROR(fresh->start());
      the_session = fresh.release();
      owner_ = getpid();
      finalize_.store(the_session->pmix_.finalize, std::memory_order_release);  // release: after owner_
      std::atexit(end_launcher_session);
    }
    *session = the_session;
    return Status::ok();
  }

  /// Finalizes the session of the process, the first time. Not in a fork's child: the connection is the parent's.
  static void end() {
    const auto finalize = finalize_.exchange(nullptr, std::memory_order_acq_rel);  // once, and after open()
    if (finalize != nullptr && getpid() == owner_) finalize(nullptr, 0);
  }

  int rank() const { return static_cast<int>(self_.rank); }
  int size() const { return size_; }
  int node_of(int rank) const { return rank >= 0 && rank < size_ ? nodes_[static_cast<size_t>(rank)] : -1; }

  Status exchange(const void* mine, size_t bytes, void* all, Deadline deadline) {
    if (size_ == 1) {
      if (bytes > 0) std::memmove(all, mine, bytes);
      return Status::ok();
    }
    if (broken_) {
      return error(
          Code::kInternal,
          "an earlier exchange over PMIx timed out in this process, so the ranks are out of step; start the job "
          "again");
    }
    RecordHeader header;
    header.generation = ++generation_;
    header.bytes = bytes;
    HEDDLE_RETURN_IF_ERROR(publish(header, mine));

    auto waiter = std::make_shared<FenceWaiter>();
    waiter->everybody = process(self_, PMIX_RANK_WILDCARD);
    waiter->collect = flag(PMIX_COLLECT_DATA);
    waiter->pending = 1;
    auto ticket = std::make_unique<std::shared_ptr<FenceWaiter>>(waiter);
    const pmix_status_t started = pmix_.fence_nb(&waiter->everybody, 1, &waiter->collect, 1, on_fence, ticket.get());
    pmix_status_t fence = PMIX_SUCCESS;
    bool in_time = true;
    if (started == PMIX_SUCCESS) {
      (void)ticket.release();  // the callback's now
      std::unique_lock<std::mutex> lock(waiter->mutex);
      in_time = waiter->wait(lock, deadline);
      fence = waiter->status;
    } else if (started != PMIX_OPERATION_SUCCEEDED) {  // that one means done, and no callback comes
      return error(Code::kInternal, "PMIx_Fence_nb failed with %s (%d); the launcher's PMIx server refused it",
                   pmix_.error_string(started), started);
    }
    broken_ = !in_time;

    // Even a fence that failed or never ended leaves records to read: they say who is missing.
    const Deadline grace = Deadline::in(2);
    std::vector<int> missing;
    HEDDLE_RETURN_IF_ERROR(read_records(header, static_cast<char*>(all), in_time ? deadline : grace, &missing));
    if (!in_time) {
      return error(Code::kTimeout,
                   missing.empty()
                       ? "timed out in an exchange among %d ranks, though every rank has published its record"
                       : "timed out in an exchange among %d ranks: no record from %s; look whether they run, "
                         "call nvshmem_init too, and raise HEDDLE_TIMEOUT if they are only late",
                   size_, describe(missing).c_str());
    }
    if (!missing.empty()) {
      return error(Code::kPeerLost,
                   "no record from %s in an exchange among %d ranks (PMIx says %s): ended before or while taking part",
                   describe(missing).c_str(), size_, pmix_.error_string(fence));
    }
    if (fence != PMIX_SUCCESS) {
      return error(
          Code::kPeerLost,
          "the PMIx fence ended with %s (%d) though every rank of %d has published: a rank ended in the exchange",
          pmix_.error_string(fence), fence, size_);
    }
    return Status::ok();
  }

  void abort(int exit_code, const std::string& reason) { pmix_.abort(exit_code, reason.c_str(), nullptr, 0); }

 private:
  inline static pid_t owner_ = 0;
  inline static std::atomic<decltype(&PMIx_Finalize)> finalize_{nullptr};
  Status start() {
    HEDDLE_RETURN_IF_ERROR(pmix_.load());
    if (const pmix_status_t rc = pmix_.init(&self_, nullptr, 0); rc != PMIX_SUCCESS) {
      return error(
          Code::kInternal,
          "PMIx_Init failed with %s (%d): the launcher's PMIx server (PMIX_NAMESPACE=%s, PMIX_RANK=%s) cannot be "
          "reached; has the launcher ended, or were its variables inherited from another job?",
          pmix_.error_string(rc), rc, getenv("PMIX_NAMESPACE"), getenv("PMIX_RANK"));
    }
    uint32_t size = 0;
    if (!get_u32(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, &size) || size == 0 || size > INT32_MAX || self_.rank >= size) {
      return error(Code::kInternal, "PMIx gives a job size of %u to rank %u; the launcher does not publish %s", size,
                   self_.rank, PMIX_JOB_SIZE);
    }
    size_ = static_cast<int>(size);
    find_nodes();
    const char* store = getenv("PMIX_GDS_MODULE");
    shared_store_ = store && std::strncmp(store, "ds", 2) == 0;
    return Status::ok();
  }

  bool get_value(pmix_rank_t rank, const char* key, pmix_data_type_t type, void (*use)(const pmix_value_t&, void*),
                 void* result) {
    const pmix_proc_t proc = process(self_, rank);
    const pmix_info_t local = flag(PMIX_OPTIONAL);  // what the launcher says is in this process already
    pmix_value_t* value = nullptr;
    if (pmix_.get(&proc, key, &local, 1, &value) != PMIX_SUCCESS || !value) return false;
    const bool right = value->type == type;
    if (right) use(*value, result);
    pmix_.value_destruct(value);
    std::free(value);
    return right;
  }

  bool get_u32(pmix_rank_t rank, const char* key, uint32_t* number) {
    const auto use = [](const pmix_value_t& value, void* to) { *static_cast<uint32_t*>(to) = value.data.uint32; };
    return get_value(rank, key, PMIX_UINT32, use, number);
  }

  bool get_text(pmix_rank_t rank, const char* key, std::string* text) {
    const auto use = [](const pmix_value_t& value, void* to) {
      if (value.data.string) *static_cast<std::string*>(to) = value.data.string;
    };
    return get_value(rank, key, PMIX_STRING, use, text) && !text->empty();
  }

  /// Ranks of this node by the launcher's word; empty when it does not say.
  std::vector<int> local_peers() {
    std::string text;
    std::vector<int> ranks;
    if (!get_text(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS, &text)) return ranks;
    for (const char* at = text.c_str(); *at;) {
      char* end = nullptr;
      const long rank = std::strtol(at, &end, 10);
      if (end == at || rank < 0 || rank >= size_) return {};
      ranks.push_back(static_cast<int>(rank));
      at = *end == ',' ? end + 1 : end;
      if (*end != ',' && *end != '\0') return {};
    }
    return ranks;
  }

  /// One call when all ranks are on this node, else one per rank. The names are the launcher's for its nodes, which it
  /// compares itself; PMIX_NODEID would say the same, but PMIx 4.2 knows it only for ranks of the asker's node.
  void find_nodes() {
    nodes_.assign(static_cast<size_t>(size_), 0);
    const std::vector<int> peers = local_peers();
    if (static_cast<int>(peers.size()) == size_) return;
    std::map<std::string, int> index;
    for (int rank = 0; rank < size_; ++rank) {
      std::string node;
      if (!get_text(static_cast<pmix_rank_t>(rank), PMIX_HOSTNAME, &node)) {
        nodes_.assign(static_cast<size_t>(size_), -1);
        for (int peer : peers) nodes_[static_cast<size_t>(peer)] = 0;
        return;
      }
      nodes_[static_cast<size_t>(rank)] = index.emplace(node, static_cast<int>(index.size())).first->second;
    }
  }

  /// Names ranks that left no record. Records of other nodes come only with the end of the fence, so when one of this
  /// node is missing too, that one is to blame and nothing is known of the others.
  std::string describe(const std::vector<int>& missing) const {
    std::vector<int> here, elsewhere;
    for (int each : missing) (node_of(each) == node_of(rank()) ? here : elsewhere).push_back(each);
    if (here.empty())
      return rank_list(missing) + " (of another node, where any of them may be the one that is missing)";
    if (elsewhere.empty()) return rank_list(missing);
    return rank_list(here) + " (nothing is known of " + rank_list(elsewhere) + " of other nodes)";
  }

  /// The name of the present generation's note. The shared-memory stores of PMIx replace a record when its name comes
  /// again, so two names in turn keep the launcher from growing: no rank is ever more than one exchange ahead. Other
  /// stores cache what was read once, so there every generation needs a name of its own.
  std::string note_key() const {
    return format("heddle.%llu", static_cast<unsigned long long>(shared_store_ ? generation_ % 2 : generation_));
  }
  /// The name of the record itself. It carries the size, because those stores lose a record that is replaced by a
  /// longer one (PMIx 4.2).
  std::string record_key(uint64_t bytes) const {
    return note_key() + "." + std::to_string(static_cast<unsigned long long>(bytes));
  }

  /// Publishes a record and a note, which tells those who look for a record of another size what this one is.
  Status publish(const RecordHeader& header, const void* bytes) {
    std::string note(reinterpret_cast<const char*>(&header), sizeof header);
    std::string record = note;
    if (bytes && header.bytes > 0) record.append(static_cast<const char*>(bytes), header.bytes);
    pmix_status_t rc = put(note_key(), &note);
    if (rc == PMIX_SUCCESS) rc = put(record_key(header.bytes), &record);
    if (rc == PMIX_SUCCESS) rc = pmix_.commit();
    if (rc == PMIX_SUCCESS || rc == PMIX_OPERATION_SUCCEEDED) return Status::ok();
    return error(Code::kInternal, "publishing %zu bytes over PMIx failed with %s (%d)", record.size(),
                 pmix_.error_string(rc), rc);
  }

  pmix_status_t put(const std::string& key, std::string* bytes) {
    pmix_value_t value = {};
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = bytes->data();
    value.data.bo.size = bytes->size();
    return pmix_.put(PMIX_GLOBAL, key.c_str(), &value);
  }

  /// What the collecting fence left in this process of the records of `ranks`; "" where there is none. Not by
  /// PMIx_Get_nb: PMIx 4.2 loses the memory of a value that it finds at once.
  std::vector<std::string> get_local(const std::string& key, const std::vector<int>& ranks) {
    const auto use = [](const pmix_value_t& value, void* to) {
      if (value.data.bo.bytes) static_cast<std::string*>(to)->assign(value.data.bo.bytes, value.data.bo.size);
    };
    std::vector<std::string> records(ranks.size());
    for (size_t i = 0; i < ranks.size(); ++i) {
      get_value(static_cast<pmix_rank_t>(ranks[i]), key.c_str(), PMIX_BYTE_OBJECT, use, &records[i]);
    }
    return records;
  }

  /// What the node's server has of them by `deadline`. All are asked for at once, and a server that hangs cannot hold
  /// us.
  std::vector<std::string> get_from_server(const std::string& key, const std::vector<int>& ranks, Deadline deadline) {
    auto waiter = std::make_shared<GetWaiter>(ranks.size());
    waiter->pending = ranks.size();
    for (size_t i = 0; i < ranks.size(); ++i) {
      const pmix_proc_t proc = process(self_, static_cast<pmix_rank_t>(ranks[i]));
      auto ticket = std::make_unique<GetTicket>(GetTicket{waiter, i});
      if (pmix_.get_nb(&proc, key.c_str(), &waiter->directive, 1, on_value, ticket.get()) == PMIX_SUCCESS) {
        (void)ticket.release();  // the callback's now
      } else {
        std::lock_guard<std::mutex> lock(waiter->mutex);
        waiter->finish_one();
      }
    }
    std::unique_lock<std::mutex> lock(waiter->mutex);
    waiter->wait(lock, deadline);
    return waiter->records;
  }

  /// Calls use(rank, header, record) for each of `wanted` whose record of the present generation is named `key`, and
  /// leaves in `wanted` those that have none.
  template <class Use>
  void visit_records(const std::string& key, std::vector<int>* wanted, Deadline deadline, const Use& use) {
    const auto take = [&](const std::vector<std::string>& records) {
      std::vector<int> missing;
      for (size_t i = 0; i < records.size(); ++i) {
        RecordHeader header;
        const bool whole = records[i].size() >= sizeof header;
        if (whole) std::memcpy(&header, records[i].data(), sizeof header);
        if (whole && header.magic == RecordHeader::kMagic && header.generation == generation_) {
          use((*wanted)[i], header, records[i]);
        } else {
          missing.push_back((*wanted)[i]);  // nothing, or the record of a former exchange
        }
      }
      *wanted = std::move(missing);
    };
    take(get_local(key, *wanted));
    if (!wanted->empty()) take(get_from_server(key, *wanted, deadline));  // some stores keep all there
  }

  /// Reads every rank's record of this exchange into `all`, and lists the ranks that have none.
  Status read_records(const RecordHeader& mine, char* all, Deadline deadline, std::vector<int>* missing) {
    missing->resize(static_cast<size_t>(size_));
    for (int rank = 0; rank < size_; ++rank) (*missing)[static_cast<size_t>(rank)] = rank;
    visit_records(record_key(mine.bytes), missing, deadline,
                  [&](int rank, const RecordHeader& header, const std::string& record) {
                    const size_t bytes = std::min<size_t>(mine.bytes, record.size() - sizeof header);
                    if (bytes > 0) std::memcpy(all + rank * mine.bytes, record.data() + sizeof header, bytes);
                  });
    if (missing->empty()) return Status::ok();
    Status status;
    std::vector<int> wanted = *missing;
    visit_records(note_key(), &wanted, deadline, [&](int rank, const RecordHeader& header, const std::string&) {
      if (header.bytes == mine.bytes || !status.is_ok()) return;
      status = error(Code::kSymmetry,
                     "rank %d gathers %llu bytes where rank %d gathers %llu: do all ranks run the same version of this "
                     "library and make the same calls?",
                     rank, static_cast<unsigned long long>(header.bytes), this->rank(),
                     static_cast<unsigned long long>(mine.bytes));
    });
    return status;
  }

  Pmix pmix_ = {};
  pmix_proc_t self_ = {};
  int size_ = 0;
  std::vector<int> nodes_;
  bool shared_store_ = false;
  bool broken_ = false;
  uint64_t generation_ = 0;
};

class PmixBootstrap : public Bootstrap {
 public:
  explicit PmixBootstrap(Session* session) : session_(session) {}
  const char* name() const override { return "pmix"; }
  int rank() const override { return session_->rank(); }
  int size() const override { return session_->size(); }
  int node_of(int rank) const override { return session_->node_of(rank); }
  Status allgather(const void* mine, size_t bytes, void* all, Deadline deadline) override {
    return session_->exchange(mine, bytes, all, deadline);
  }
  // An exchange of nothing, because a fence alone succeeds without the dead.
  Status barrier(Deadline deadline) override { return session_->exchange(nullptr, 0, nullptr, deadline); }
  void abort(int exit_code, const std::string& reason) override { session_->abort(exit_code, reason); }

 private:
  Session* session_;
};

}  // namespace

Status make_pmix_bootstrap(const Settings&, std::unique_ptr<Bootstrap>* bootstrap) {
  Session* session = nullptr;
  HEDDLE_RETURN_IF_ERROR(Session::open(&session));
  *bootstrap = std::make_unique<PmixBootstrap>(session);
  return Status::ok();
}

void end_launcher_session() { Session::end(); }

#else

void end_launcher_session() {}

Status make_pmix_bootstrap(const Settings&, std::unique_ptr<Bootstrap>*) {
  return error(Code::kNotSupported,
               "a PMIx launcher started this process, but this library was built without PMIx headers: install "
               "libpmix-dev and build again, or pass a communicator or a unique id to nvshmemx_init_attr");
}

#endif

}  // namespace heddle
