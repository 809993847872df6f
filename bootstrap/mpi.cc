// The bootstrap over a user's MPI communicator. MPI is found among the libraries that the process has loaded, and
// spoken to in whichever of the two binary interfaces it has: Open MPI's (handles are pointers) or MPICH's (handles are
// ints).
//
// An exchange is a message from everybody to everybody rather than MPI_Iallgather: only so can a deadline name who is
// missing. Everything that waits for others polls; the one blocking collective comes when all are known to be there.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

#include "bootstrap/bootstrap.h"
#include "bootstrap/rank_list.h"

namespace heddle {
namespace {

/// MPI's functions and constants, with `Handle` for its opaque types.
template <class Handle>
struct Mpi {
  int (*finalized)(int*);
  int (*comm_idup)(Handle, Handle*, Handle*);
  int (*comm_free)(Handle*);
  int (*comm_rank)(Handle, int*);
  int (*comm_size)(Handle, int*);
  int (*comm_split_type)(Handle, int, int, Handle, Handle*);
  int (*comm_set_errhandler)(Handle, Handle);
  int (*bcast)(void*, int, Handle, int, Handle);
  int (*isend)(const void*, int, Handle, int, int, Handle, Handle*);
  int (*irecv)(void*, int, Handle, int, int, Handle, Handle*);
  int (*test)(Handle*, int*, void*);
  int (*abort)(Handle, int);
  int (*error_string)(int, char*, int*);
  Handle byte, info_null, comm_null, errors_return;
  int split_shared;
  void* status_ignore;

  /// Finds the functions; `missing` names one that is not there.
  void find(void* library, std::string* missing) {
    const auto get = [&](const char* name, auto* function) {
      *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, name));
      if (!*function) *missing = name;
    };
    get("MPI_Finalized", &finalized);
    get("MPI_Comm_idup", &comm_idup);
    get("MPI_Comm_free", &comm_free);
    get("MPI_Comm_rank", &comm_rank);
    get("MPI_Comm_size", &comm_size);
    get("MPI_Comm_split_type", &comm_split_type);
    get("MPI_Comm_set_errhandler", &comm_set_errhandler);
    get("MPI_Bcast", &bcast);
    get("MPI_Isend", &isend);
    get("MPI_Irecv", &irecv);
    get("MPI_Test", &test);
    get("MPI_Abort", &abort);
    get("MPI_Error_string", &error_string);
    find_constants(library, missing);
  }

  void find_constants(void* library, std::string* missing);

  std::string text(int code) const {
    char text[8192] = "";
    int length = 0;
    error_string(code, text, &length);
    return format("%s (%d)", text, code);
  }
};

template <>
void Mpi<void*>::find_constants(void* library, std::string* missing) {
  const auto get = [&](const char* name) {
    void* object = dlsym(library, name);
    if (!object) *missing = name;
    return object;
  };
  byte = get("ompi_mpi_byte");
  info_null = get("ompi_mpi_info_null");
  comm_null = get("ompi_mpi_comm_null");
  errors_return = get("ompi_mpi_errors_return");
  split_shared = 0;
  status_ignore = nullptr;
}

// The MPICH ABI, which Intel MPI, MVAPICH and Cray MPICH share.
template <>
void Mpi<int>::find_constants(void*, std::string*) {
  byte = 0x4c00010d;
  info_null = 0x1c000000;
  comm_null = 0x04000000;
  errors_return = 0x54000001;
  split_shared = 1;
  status_ignore = reinterpret_cast<void*>(1);
}

/// The requests and buffers of one round of messages. MPI may still write to them when a deadline has passed.
template <class Handle>
struct Exchange {
  std::string out;
  std::vector<std::string> in;
  std::vector<Handle> sends, receives;
  std::vector<bool> sent, received;
};

/// What precedes the bytes of a message.
struct MessageHeader {
  static constexpr uint32_t kMagic = 0x314d4448;  // "HDM1"
  uint32_t magic = kMagic;
  uint32_t sequence = 0;
  uint64_t bytes = 0;
};

constexpr size_t kFirstMessage = 512;  // bytes of the first message between two ranks in an exchange

/// Sleeps a little longer each time, up to a millisecond.
class Pause {
 public:
  void operator()() {
    if (microseconds_ > 0) std::this_thread::sleep_for(std::chrono::microseconds(microseconds_));
    microseconds_ = std::min(microseconds_ * 2 + 1, 1000);
    std::this_thread::yield();
  }

 private:
  int microseconds_ = 0;
};

template <class Handle>
class MpiBootstrap : public Bootstrap {
 public:
  explicit MpiBootstrap(const Mpi<Handle>& mpi) : mpi_(mpi), comm_(mpi.comm_null) {}
  ~MpiBootstrap() override {
    int finalized = 0;
    // A communicator with messages under way stays: freeing it might wait for them.
    if (comm_ != mpi_.comm_null && broken_.is_ok() && mpi_.finalized(&finalized) == 0 && !finalized) {
      mpi_.comm_free(&comm_);
    }
  }

  Status join(Handle users, Deadline deadline) {
    HEDDLE_RETURN_IF_ERROR(duplicate(users, deadline));
    HEDDLE_RETURN_IF_ERROR(check("MPI_Comm_set_errhandler", mpi_.comm_set_errhandler(comm_, mpi_.errors_return)));
    HEDDLE_RETURN_IF_ERROR(check("MPI_Comm_rank", mpi_.comm_rank(comm_, &rank_)));
    HEDDLE_RETURN_IF_ERROR(check("MPI_Comm_size", mpi_.comm_size(comm_, &size_)));
    HEDDLE_RETURN_IF_ERROR(barrier(deadline));
    return find_nodes(deadline);
  }

  const char* name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int node_of(int rank) const override { return rank >= 0 && rank < size_ ? nodes_[static_cast<size_t>(rank)] : -1; }

  Status allgather(const void* mine, size_t bytes, void* all, Deadline deadline) override {
    HEDDLE_RETURN_IF_ERROR(broken_);
    if (bytes > INT32_MAX) return error(Code::kInvalidValue, "cannot gather %zu bytes from each rank at once", bytes);
    broken_ = gather(static_cast<const char*>(mine), bytes, static_cast<char*>(all), deadline);
    return broken_;
  }

  Status barrier(Deadline deadline) override { return allgather(nullptr, 0, nullptr, deadline); }

  void abort(int exit_code, const std::string&) override { mpi_.abort(comm_, exit_code); }

 private:
  Status check(const char* call, int rc) const {
    return rc == 0 ? Status::ok() : error(Code::kInternal, "%s failed: %s", call, mpi_.text(rc).c_str());
  }

  Status duplicate(Handle users, Deadline deadline) {
    Handle request{};
    auto copy = std::make_unique<Handle>(mpi_.comm_null);  // MPI writes to it when the duplicate is made
    HEDDLE_RETURN_IF_ERROR(check("MPI_Comm_idup", mpi_.comm_idup(users, copy.get(), &request)));
    Pause pause;
    for (int done = 0;;) {
      HEDDLE_RETURN_IF_ERROR(check("MPI_Test", mpi_.test(&request, &done, mpi_.status_ignore)));
      if (done) break;
      if (deadline.passed()) {
        // MPI may still write there; kept reachable, since it is no mistake.
        static auto* given_up = new std::vector<std::unique_ptr<Handle>>;
        given_up->push_back(std::move(copy));
        return error(
            Code::kTimeout,
            "timed out in MPI_Comm_idup: some rank of the communicator passed to nvshmemx_init_attr has not called "
            "it (MPI does not say which); every rank of it must, or raise HEDDLE_TIMEOUT if they are only late");
      }
      pause();
    }
    comm_ = *copy;
    return Status::ok();
  }

  /// Everybody is here, so the blocking collectives below end.
  Status find_nodes(Deadline deadline) {
    Handle node{};
    HEDDLE_RETURN_IF_ERROR(
        check("MPI_Comm_split_type", mpi_.comm_split_type(comm_, mpi_.split_shared, rank_, mpi_.info_null, &node)));
    int32_t leader = rank_;
    HEDDLE_RETURN_IF_ERROR(check("MPI_Bcast", mpi_.bcast(&leader, sizeof leader, mpi_.byte, 0, node)));
    HEDDLE_RETURN_IF_ERROR(check("MPI_Comm_free", mpi_.comm_free(&node)));
    std::vector<int32_t> leaders(static_cast<size_t>(size_));
    HEDDLE_RETURN_IF_ERROR(allgather(&leader, sizeof leader, leaders.data(), deadline));
    std::map<int32_t, int> index;
    for (int32_t each : leaders) nodes_.push_back(index.emplace(each, static_cast<int>(index.size())).first->second);
    return Status::ok();
  }

  /// Messages of one fixed size carry the header and as much of the bytes as fits, the rest follows once all headers
  /// agree: a message longer than its receiver's buffer would be an error that MPI need not survive.
  Status gather(const char* mine, size_t bytes, char* all, Deadline deadline) {
    constexpr size_t kFirst = kFirstMessage - sizeof(MessageHeader);
    MessageHeader header;
    header.sequence = ++sequence_;
    header.bytes = bytes;
    const size_t first = std::min(bytes, kFirst);
    std::string out(reinterpret_cast<const char*>(&header), sizeof header);
    if (mine && first > 0) out.append(mine, first);
    out.resize(kFirstMessage);
    std::vector<std::string> in;
    HEDDLE_RETURN_IF_ERROR(round(out, &in, deadline));
    for (int peer = 0; peer < size_; ++peer) {
      const std::string& message = in[static_cast<size_t>(peer)];
      MessageHeader theirs;
      std::memcpy(&theirs, message.data(), sizeof theirs);
      if (std::memcmp(&theirs, &header, sizeof header) != 0) {
        return error(
            Code::kSymmetry,
            "rank %d gathers %llu bytes in exchange %u where rank %d gathers %zu in exchange %u: do all ranks run "
            "the same version of this library and make the same calls?",
            peer, static_cast<unsigned long long>(theirs.bytes), theirs.sequence, rank_, bytes, header.sequence);
      }
      if (first > 0) std::memcpy(all + static_cast<size_t>(peer) * bytes, message.data() + sizeof theirs, first);
    }
    if (bytes == first) return Status::ok();
    HEDDLE_RETURN_IF_ERROR(round(std::string(mine + first, bytes - first), &in, deadline));
    for (size_t peer = 0; peer < in.size(); ++peer) {
      std::memcpy(all + peer * bytes + first, in[peer].data(), bytes - first);
    }
    return Status::ok();
  }

  /// Sends `out` to everybody and receives as many bytes from each.
  Status round(const std::string& out, std::vector<std::string>* in, Deadline deadline) {
    auto exchange = std::make_unique<Exchange<Handle>>();
    exchange->in.assign(static_cast<size_t>(size_), std::string(out.size(), '\0'));
    exchange->in[static_cast<size_t>(rank_)] = out;
    exchange->out = out;
    Status status = start(*exchange);
    if (status.is_ok()) status = finish(*exchange, deadline);
    if (status.is_ok()) {
      *in = std::move(exchange->in);
    } else {
      abandon(std::move(exchange));
    }
    return status;
  }

  Status start(Exchange<Handle>& exchange) {
    const size_t count = static_cast<size_t>(size_);
    exchange.sends.resize(count);
    exchange.receives.resize(count);
    exchange.sent.assign(count, true);
    exchange.received.assign(count, true);
    const int length = static_cast<int>(exchange.out.size());
    // Messages of one pair keep their order, so one tag would do; the number only makes a fault show.
    const int tag = static_cast<int>(++rounds_ % 16384);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const size_t k = static_cast<size_t>(peer);
      HEDDLE_RETURN_IF_ERROR(check(
          "MPI_Irecv", mpi_.irecv(exchange.in[k].data(), length, mpi_.byte, peer, tag, comm_, &exchange.receives[k])));
      exchange.received[k] = false;
    }
    for (int step = 1; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;  // not all to the same one at once
      const size_t k = static_cast<size_t>(peer);
      HEDDLE_RETURN_IF_ERROR(
          check("MPI_Isend", mpi_.isend(exchange.out.data(), length, mpi_.byte, peer, tag, comm_, &exchange.sends[k])));
      exchange.sent[k] = false;
    }
    return Status::ok();
  }

  Status finish(Exchange<Handle>& exchange, Deadline deadline) {
    Pause pause;
    for (;;) {
      std::vector<int> missing;
      bool sending = false;
      for (int peer = 0; peer < size_; ++peer) {
        const size_t k = static_cast<size_t>(peer);
        int done = exchange.received[k];
        if (!done) {
          HEDDLE_RETURN_IF_ERROR(check("MPI_Test", mpi_.test(&exchange.receives[k], &done, mpi_.status_ignore)));
          exchange.received[k] = done != 0;
          if (!done) missing.push_back(peer);
        }
        if (!exchange.sent[k]) {
          HEDDLE_RETURN_IF_ERROR(check("MPI_Test", mpi_.test(&exchange.sends[k], &done, mpi_.status_ignore)));
          exchange.sent[k] = done != 0;
          sending |= !done;
        }
      }
      if (missing.empty() && !sending) return Status::ok();
      if (deadline.passed()) {
        return error(Code::kTimeout,
                     missing.empty()
                         ? "timed out in an exchange among %d ranks over MPI: not every rank took what was sent"
                         : "timed out in an exchange among %d ranks over MPI: nothing from %s; look whether they "
                           "run and make the same call, and raise HEDDLE_TIMEOUT if they are only late",
                     size_, rank_list(missing).c_str());
      }
      pause();
    }
  }

  /// Keeps an exchange that did not end for as long as MPI may write to it: for ever.
  static void abandon(std::unique_ptr<Exchange<Handle>> exchange) {
    static auto* abandoned = new std::vector<std::unique_ptr<Exchange<Handle>>>;
    abandoned->push_back(std::move(exchange));
  }

  Mpi<Handle> mpi_;
  Handle comm_;
  int rank_ = 0, size_ = 1;
  std::vector<int> nodes_;
  uint32_t sequence_ = 0;  // of exchanges
  uint32_t rounds_ = 0;    // of messages
  Status broken_;          // the first failure; the ranks are out of step after it
};

/// A handle to the MPI library of this process, nullptr when none is loaded. It may be loaded privately, as Python
/// does.
void* find_mpi() {
  if (dlsym(RTLD_DEFAULT, "MPI_Initialized")) return RTLD_DEFAULT;
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const char* name = std::strrchr(info->dlpi_name, '/');
        name = name ? name + 1 : info->dlpi_name;
        if (std::strncmp(name, "libmpi", 6) == 0)
          static_cast<std::vector<std::string>*>(found)->push_back(info->dlpi_name);
        return 0;
      },
      &paths);
  for (const std::string& path : paths) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);  // stays: the process has it anyway
    if (library && dlsym(library, "MPI_Initialized")) return library;
  }
  return nullptr;
}

template <class Handle>
Status make(void* library, void* users, Deadline deadline, std::unique_ptr<Bootstrap>* bootstrap) {
  Mpi<Handle> mpi = {};
  std::string missing;
  mpi.find(library, &missing);
  if (!missing.empty()) {
    return error(Code::kNotSupported, "the MPI library of this process lacks %s: MPI 3.0 or later is needed",
                 missing.c_str());
  }
  Handle comm;
  std::memcpy(&comm, users, sizeof comm);
  if (comm == mpi.comm_null || comm == Handle{}) {
    return error(Code::kInvalidValue, "mpi_comm points to MPI_COMM_NULL; pass the address of a communicator");
  }
  auto fresh = std::make_unique<MpiBootstrap<Handle>>(mpi);
  HEDDLE_RETURN_IF_ERROR(fresh->join(comm, deadline));
  *bootstrap = std::move(fresh);
  return Status::ok();
}

}  // namespace

Status make_mpi_bootstrap(const Settings& settings, void* mpi_comm, std::unique_ptr<Bootstrap>* bootstrap) {
  if (!mpi_comm) {
    return error(Code::kInvalidValue, "mpi_comm is a null pointer; pass the address of an MPI communicator");
  }
  void* const library = find_mpi();
  // RTLD_DEFAULT is a null pointer, so only the symbol tells.
  const auto initialized = reinterpret_cast<int (*)(int*)>(dlsym(library, "MPI_Initialized"));
  const auto finalized = reinterpret_cast<int (*)(int*)>(dlsym(library, "MPI_Finalized"));
  const auto version = reinterpret_cast<int (*)(char*, int*)>(dlsym(library, "MPI_Get_library_version"));
  if (!initialized || !finalized || !version) {
    return error(Code::kNotSupported,
                 "no MPI library is loaded in this process; link the program to MPI and call MPI_Init before "
                 "nvshmemx_init_attr with NVSHMEMX_INIT_WITH_MPI_COMM");
  }
  int flag = 0;
  if (initialized(&flag) != 0 || !flag) {
    return error(Code::kInvalidValue, "MPI is not initialised; call MPI_Init before nvshmemx_init_attr");
  }
  if (finalized(&flag) != 0 || flag) {
    return error(Code::kInvalidValue, "MPI is finalised already; call nvshmemx_init_attr before MPI_Finalize");
  }
  const Deadline deadline = Deadline::in(settings.timeout);
  if (dlsym(library, "ompi_mpi_byte")) return make<void*>(library, mpi_comm, deadline, bootstrap);
  std::vector<char> text(16384);  // MPICH's limit is 8192
  int length = 0;
  version(text.data(), &length);
  const std::string name(text.data());
  Dl_info origin = {};
  const bool standard_abi = dladdr(reinterpret_cast<void*>(initialized), &origin) != 0 && origin.dli_fname &&
                            std::strstr(origin.dli_fname, "mpi_abi");
  if (!standard_abi) {
    for (const char* family : {"MPICH", "Intel(R) MPI", "MVAPICH"}) {
      if (name.find(family) != std::string::npos) return make<int>(library, mpi_comm, deadline, bootstrap);
    }
  }
  return error(
      Code::kNotSupported,
      "the MPI library of this process (%s) has neither Open MPI's nor MPICH's binary interface; use a unique id "
      "with nvshmemx_init_attr instead",
      name.substr(0, name.find('\n')).c_str());
}

}  // namespace heddle
