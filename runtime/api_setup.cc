// Set-up and end of the C API: init in its forms, finalize, global_exit, unique ids, queues, versions, and heddle.h.
#include <fcntl.h>
#include <pthread.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "device/block_slots.h"
#include "include/heddle.h"
#include "include/nvshmem_host.h"
#include "runtime/device_state.h"
#include "runtime/global.h"

namespace heddle {

std::atomic<World*> current_world{nullptr};

namespace {

/// What an init asked for: which job to join, and as whom.
struct JoinRequest {
  enum class Maker { kLauncher, kUniqueId, kMpi };
  Maker maker = Maker::kLauncher;
  int rank = -1;
  int nranks = -1;
  nvshmemx_uniqueid_t id{};
  void* mpi_comm = nullptr;  // valid during the call only
  uint32_t comm_bits = 0;    // what it pointed to, to know it again
  int cuda_device = -1;      // the GPU asked for, -1: none in particular

  /// Whether a further init that asks for `other` means the job that is joined. A plain nvshmem_init names no job.
  bool agrees_with(const JoinRequest& other) const {
    if (other.maker == Maker::kLauncher) return true;
    if (maker != other.maker) return false;
    if (maker == Maker::kMpi) return comm_bits == other.comm_bits;
    return rank == other.rank && nranks == other.nranks && std::memcmp(&id, &other.id, sizeof id) == 0;
  }

  /// For messages. The id holds the job's secret: only a digest of it is shown.
  std::string text() const {
    switch (maker) {
      case Maker::kLauncher:
        return "the launcher's job";
      case Maker::kMpi:
        return format("the MPI communicator with handle 0x%08x", comm_bits);
      case Maker::kUniqueId:
        break;
    }
    uint32_t digest = 2166136261U;  // FNV-1a
    unsigned char bytes[sizeof id];
    std::memcpy(bytes, &id, sizeof id);
    for (const unsigned char byte : bytes) digest = (digest ^ byte) * 16777619U;
    return format("rank %d of %d with unique id #%08x", rank, nranks, digest);
  }
};

/// What init and finalize keep. Never destroyed: other threads may still be in calls when the process exits.
struct Setup {
  std::mutex mutex;              // init and finalize one at a time; guards what follows up to joined
  std::shared_ptr<World> world;  // changed with cause_mutex held, too: global_exit may come beside finalize
  bool introduced = false;       // what is said once for a process was said
  JoinRequest joined;
  // Written with the mutex held, read by any call at any time.
  std::atomic<int> count{0};  // inits not yet undone
  std::atomic<int> status{NVSHMEM_STATUS_NOT_INITIALIZED};
  std::atomic<int> thread_level{NVSHMEM_THREAD_SINGLE};
  std::atomic<bool> exiting{false};
  std::atomic<pid_t> owner{0};  // the process that joined; a fork of it has not

  std::mutex cause_mutex;  // guards what follows; never held while waiting
  std::string failed_call, failed_text;
  bool finalized = false;
  std::set<const char*> reported;  // calls whose missing init was logged; each passes its own name's address

  std::mutex collective_mutex;
};

Setup& the_setup() {
  static Setup* setup = new Setup;
  return *setup;
}

void note_change(const char* failed_call, const std::string& failed_text, bool finalized) {
  Setup& setup = the_setup();
  const std::lock_guard<std::mutex> lock(setup.cause_mutex);
  // The first failure is the cause; what fails after it is mostly its consequence.
  if (failed_text.empty() || setup.failed_text.empty()) {
    setup.failed_call = failed_call;
    setup.failed_text = failed_text;
  }
  setup.finalized = finalized;
  setup.reported.clear();
}

constexpr const char* kInForkedChild =
    "called in a child that a PE has forked; only the PE itself may call, or a program that the child executes";

/// Whether this process is a fork of a PE, made between its init and finalize. Takes no lock: another thread of the PE
/// may have held it at the fork, and the child would wait for ever.
bool is_forked_child() {
  const Setup& setup = the_setup();
  // acquire: pairs with init's count, so that owner is the one of that init; relaxed: nothing else is read by it
  return setup.count.load(std::memory_order_acquire) > 0 && setup.owner.load(std::memory_order_relaxed) != getpid();
}

void warn_at_exit() {
  const World* const w = world();
  if (w == nullptr || the_setup().exiting.load(std::memory_order_relaxed) || is_forked_child()) return;
  log(LogLevel::kWarn, "PE %d ended without nvshmem_finalize; the other PEs will take it for lost", w->my_pe());
}

/// A forked child is no PE: its parent is. It must not keep the parent's sockets open either, or nobody would see the
/// parent end.
void forget_world_in_child() {
  World* const w = current_world.exchange(nullptr, std::memory_order_relaxed);  // relaxed: the child has one thread
  if (w != nullptr) w->control().abandon_in_child();
  the_setup().status.store(NVSHMEM_STATUS_NOT_INITIALIZED, std::memory_order_relaxed);  // relaxed: the same
}

/// Gives the standard descriptors that are closed to /dev/null: else ours would get their numbers, and what the program
/// prints would go into the heap.
void fill_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)open("/dev/null", O_RDWR);  // takes the lowest free number
  }
}

// ---- join

void print_settings(const Settings& settings) {
  std::string text = "Settings: name, value, source, meaning\n";
  for (const SettingRow& row : settings.rows()) {
    text += format("  %-38s %-16s %-12s %s\n", row.name.c_str(), row.value.empty() ? "\"\"" : row.value.c_str(),
                   row.from_environment ? "environment" : "default", row.help.c_str());
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
}

/// What PE 0 says for all, since the environment is mostly one and the same, and not again in later inits.
void introduce(const Settings& settings, const std::vector<std::string>& warnings) {
  if (std::exchange(the_setup().introduced, true)) return;
  for (const std::string& warning : warnings) log(LogLevel::kWarn, "%s", warning.c_str());
  if (settings.version || settings.info || strcasecmp(settings.debug.c_str(), "VERSION") == 0) {
    std::printf("%s\n", NVSHMEM_VENDOR_STRING);
  }
  if (settings.info) print_settings(settings);
  std::fflush(stdout);
}

Status join(const JoinRequest& request, std::unique_ptr<World>* joined) {
  fill_standard_descriptors();
  Settings settings;
  std::vector<std::string> warnings;
  Status configured = Settings::from_environment(&settings, &warnings);
  if (configured.is_ok()) configured = configure_log(settings, -1);
  std::unique_ptr<Bootstrap> bootstrap;
  Status made;
  switch (request.maker) {
    case JoinRequest::Maker::kLauncher:
      made = make_bootstrap(settings, &bootstrap);
      break;
    case JoinRequest::Maker::kUniqueId:
      made = make_uid_bootstrap(settings, request.id, request.rank, request.nranks, &bootstrap);
      break;
    case JoinRequest::Maker::kMpi:
      made = make_mpi_bootstrap(settings, request.mpi_comm, &bootstrap);
      break;
  }
  if (!made.is_ok()) return configured.is_ok() ? made : configured;
  if (configured.is_ok()) configured = configure_log(settings, bootstrap->rank());
  if (!configured.is_ok()) return World::refuse(settings, *bootstrap, configured);
  if (bootstrap->rank() == 0) introduce(settings, warnings);
  return World::join(settings, std::move(bootstrap), joined, request.cuda_device);
}

Status join_first(const JoinRequest& request) {
  Setup& setup = the_setup();
  std::unique_ptr<World> joined;
  HEDDLE_RETURN_IF_ERROR(join(request, &joined));
  {
    const std::lock_guard<std::mutex> lock(setup.cause_mutex);
    setup.world = std::move(joined);
  }
  setup.joined = request;
  setup.owner.store(getpid(), std::memory_order_relaxed);  // relaxed: count publishes it
  static const bool kRegistered =
      std::atexit(warn_at_exit) == 0 && pthread_atfork(nullptr, nullptr, forget_world_in_child) == 0;
  (void)kRegistered;                                                  // without it only the warning is missing
  current_world.store(setup.world.get(), std::memory_order_release);  // release: the world is built before it is seen
  setup.status.store(init_status_of(*setup.world), std::memory_order_release);  // release: who sees it may make calls
  return Status::ok();
}

/// One init: `valid` is what the caller found wrong with its arguments.
int init(const char* call, const Status& valid, const JoinRequest& request, int thread_level) {
  if (is_forked_child()) return report(call, error(Code::kNotSupported, "%s", kInForkedChild)).nvshmem_code();
  Setup& setup = the_setup();
  const std::lock_guard<std::mutex> lock(setup.mutex);
  const bool first = setup.count.load(std::memory_order_relaxed) == 0;  // relaxed: under the mutex
  Status status = valid;
  if (status.is_ok() && !first && !setup.joined.agrees_with(request)) {
    status = error(Code::kInvalidValue,
                   "this process has joined %s already and was now asked to join %s; pass the same, or call "
                   "nvshmem_finalize first",
                   setup.joined.text().c_str(), request.text().c_str());
  }
  if (status.is_ok() && first) status = guarded([&] { return join_first(request); });
  if (status.is_ok()) {
    // relaxed: a number that orders nothing
    const int level = first ? thread_level : std::max(thread_level, setup.thread_level.load(std::memory_order_relaxed));
    setup.thread_level.store(level, std::memory_order_relaxed);
    setup.count.fetch_add(1, std::memory_order_release);  // release: after owner, see is_forked_child
    if (first) note_change("", "", false);
    return NVSHMEMX_SUCCESS;
  }
  if (first) note_change(call, status.text(), false);
  return report(call, status).nvshmem_code();
}

// ---- arguments of init_attr

Status check_attributes(const nvshmemx_init_attr_t* attributes) {
  // Any version word is taken: most MPI programs set mpi_comm in a structure that they never initialised.
  return attributes != nullptr ? Status::ok() : error(Code::kInvalidValue, "the attributes are NULL");
}

Status check_rank(int rank, int nranks) {
  if (nranks >= 1 && rank >= 0 && rank < nranks) return Status::ok();
  return error(Code::kInvalidValue, "rank %d of %d ranks; a rank is at least 0 and less than the number of ranks", rank,
               nranks);
}

Status check_unique_id(const nvshmemx_uniqueid_t* id) {
  if (id == nullptr) return error(Code::kInvalidValue, "the unique id is NULL; fill it with nvshmemx_get_uniqueid");
  if (id->version == NVSHMEMX_UNIQUEID_VERSION) return Status::ok();
  return error(
      Code::kInvalidValue,
      "nvshmemx_uniqueid_t has version word %d instead of %d: fill it with nvshmemx_get_uniqueid and carry all "
      "%zu bytes",
      id->version, NVSHMEMX_UNIQUEID_VERSION, sizeof *id);
}

/// Reads flags and attributes into `request`.
Status read_request(unsigned int flags, const nvshmemx_init_attr_t* attributes, JoinRequest* request) {
  constexpr unsigned kMpi = NVSHMEMX_INIT_WITH_MPI_COMM, kUniqueId = NVSHMEMX_INIT_WITH_UNIQUEID;
  constexpr unsigned kShmem = NVSHMEMX_INIT_WITH_SHMEM, kThreads = NVSHMEMX_INIT_THREAD_PES;
  if ((flags & ~(kMpi | kUniqueId | kShmem | kThreads)) != 0) {
    return error(Code::kInvalidValue,
                 "flags 0x%x hold unknown bits; pass NVSHMEMX_INIT_WITH_MPI_COMM (2), "
                 "NVSHMEMX_INIT_WITH_UNIQUEID (8) or 0",
                 flags);
  }
  if ((flags & kMpi) != 0 && (flags & kUniqueId) != 0) {
    return error(Code::kInvalidValue,
                 "flags 0x%x ask for an MPI communicator and a unique id at once; choose one of them", flags);
  }
  if ((flags & kShmem) != 0) {
    return error(Code::kNotSupported,
                 "joining by another OpenSHMEM library (NVSHMEMX_INIT_WITH_SHMEM) is not supported; "
                 "carry a unique id with it and pass NVSHMEMX_INIT_WITH_UNIQUEID");
  }
  if ((flags & kThreads) != 0) {
    return error(Code::kNotSupported,
                 "threads as PEs (NVSHMEMX_INIT_THREAD_PES) are not supported; start one process for each PE");
  }
  // Only of a structure that was initialised, and is of the version that has this member.
  if (attributes != nullptr && attributes->version == NVSHMEMX_INIT_ATTR_V2 &&
      attributes->args.version == NVSHMEMX_INIT_ARGS_V2) {
    request->cuda_device = attributes->args.cuda_device_id;
  }
  if (flags == 0) return Status::ok();
  if (attributes == nullptr) return check_attributes(attributes);
  if (flags == kMpi) {
    request->maker = JoinRequest::Maker::kMpi;
    request->mpi_comm = attributes->mpi_comm;
    if (request->mpi_comm == nullptr) {
      return error(Code::kInvalidValue,
                   "mpi_comm is NULL; let it point to an MPI_Comm, such as one that holds "
                   "MPI_COMM_WORLD");
    }
    // An MPI_Comm is an int or a pointer; its first four bytes tell communicators apart.
    std::memcpy(&request->comm_bits, request->mpi_comm, sizeof request->comm_bits);
    return Status::ok();
  }
  const nvshmemx_uniqueid_args_t& given = attributes->args.uid_args;
  HEDDLE_RETURN_IF_ERROR(check_unique_id(given.id));
  HEDDLE_RETURN_IF_ERROR(check_rank(given.myrank, given.nranks));
  request->maker = JoinRequest::Maker::kUniqueId;
  request->rank = given.myrank;
  request->nranks = given.nranks;
  request->id = *given.id;  // NOLINT(clang-analyzer-core.NullDereference): check_unique_id has looked
  return Status::ok();
}

int init_attr(const char* call, unsigned int flags, const nvshmemx_init_attr_t* attributes) {
  JoinRequest request;
  const Status valid = read_request(flags, attributes, &request);
  return init(call, valid, request, NVSHMEM_THREAD_SINGLE);
}

void finalize(const char* call) {
  if (is_forked_child()) return report_no_world(call);  // what it would take down is the parent's
  Setup& setup = the_setup();
  const std::lock_guard<std::mutex> lock(setup.mutex);
  const int count = setup.count.load(std::memory_order_relaxed);  // relaxed, here and below: under the mutex
  if (count == 0) return report_no_world(call);
  setup.count.store(count - 1, std::memory_order_relaxed);
  if (count > 1) return;
  {
    const std::lock_guard<std::mutex> collective(setup.collective_mutex);
    (void)report(call, guarded([&] { return setup.world->finalize(); }));
    current_world.store(nullptr, std::memory_order_release);  // release: nothing of the world is used after it
    setup.status.store(NVSHMEM_STATUS_NOT_INITIALIZED, std::memory_order_release);  // release: after what came before
    std::shared_ptr<World> last;  // ends after the lock, which is never held while something is taken down
    const std::lock_guard<std::mutex> cause(setup.cause_mutex);
    last.swap(setup.world);
  }
  forget_registrations();
  note_change("", "", true);
}

/// The world, which then outlives finalize; nullptr outside init and finalize.
std::shared_ptr<World> hold_world() {
  if (is_forked_child()) return nullptr;
  Setup& setup = the_setup();
  const std::lock_guard<std::mutex> lock(setup.cause_mutex);
  return setup.world;
}

int report_code(const char* call, const Status& status) { return report(call, status).nvshmem_code(); }

/// Far more than a GPU has blocks at once; every handle is the default queue's.
constexpr int kMostQueues = 65536;

/// Handles of the default queue, in memory that the program gives back with free().
Status create_queues(int count, nvshmemx_qp_handle_t** handles) {
  if (handles == nullptr) return error(Code::kInvalidValue, "out_qp_array is NULL; pass where the array is to be put");
  if (count < 0) return error(Code::kInvalidValue, "num_qps is %d; ask for a number of queues from 0 on", count);
  if (count > kMostQueues) {
    return error(Code::kInvalidValue, "num_qps is %d; ask for at most %d queues", count, kMostQueues);
  }
  if (count == 0) return Status::ok();
  const size_t bytes = static_cast<size_t>(count) * sizeof **handles;
  *handles = static_cast<nvshmemx_qp_handle_t*>(std::malloc(bytes));
  if (*handles == nullptr) {
    return error(Code::kOutOfMemory, "no memory for %d handles of queues (%zu bytes); ask for fewer", count, bytes);
  }
  std::fill_n(*handles, count, NVSHMEMX_QP_DEFAULT);
  return Status::ok();
}

}  // namespace

void report_no_world(const char* call) {
  Setup& setup = the_setup();
  std::string text;
  bool fresh = false;
  {
    const std::lock_guard<std::mutex> lock(setup.cause_mutex);
    text = setup.finalized ? "called after nvshmem_finalize" : "called before nvshmem_init";
    if (is_forked_child()) text = kInForkedChild;
    if (!setup.failed_text.empty()) {
      text += format("; an earlier %s failed: %s", setup.failed_call.c_str(), setup.failed_text.c_str());
    }
    fresh = setup.reported.insert(call).second;
  }
  Status status(Code::kNotInitialized, std::move(text));
  if (fresh) {
    (void)report(call, std::move(status));
  } else {
    (void)keep_error(call, std::move(status));
  }
}

std::mutex& collective_mutex() { return the_setup().collective_mutex; }

int init_status_of(const World& world) {
  switch (world.gpus().mode()) {
    case SharingMode::kTimeSliced:
      return NVSHMEM_STATUS_LIMITED_MPG;
    case SharingMode::kMps:
      return NVSHMEM_STATUS_FULL_MPG;
    case SharingMode::kNone:
      break;
  }
  return NVSHMEM_STATUS_IS_INITIALIZED;
}

}  // namespace heddle

using heddle::Code;
using heddle::error;
using heddle::report_no_world;
using heddle::Status;
using heddle::World;

// ---- init and finalize

void nvshmem_init(void) { heddle::init(__func__, Status::ok(), {}, NVSHMEM_THREAD_SINGLE); }

int nvshmem_init_thread(int requested, int* provided) {
  Status valid;
  if (provided == nullptr) {
    valid = error(Code::kInvalidValue, "provided is NULL; pass where the level of thread support is to be written");
  } else if (requested < NVSHMEM_THREAD_SINGLE || requested > NVSHMEM_THREAD_MULTIPLE) {
    valid = error(Code::kInvalidValue,
                  "requested thread support %d is none of NVSHMEM_THREAD_SINGLE (0) to NVSHMEM_THREAD_MULTIPLE (3)",
                  requested);
  }
  const int code = heddle::init(__func__, valid, {}, requested);
  if (code == NVSHMEMX_SUCCESS && provided != nullptr) *provided = requested;
  return code;
}

void nvshmem_query_thread(int* provided) {
  if (heddle::world() == nullptr) return report_no_world(__func__);
  if (provided == nullptr) {
    (void)heddle::report(__func__, error(Code::kInvalidValue, "provided is NULL"));
  } else {
    *provided = heddle::the_setup().thread_level.load(std::memory_order_relaxed);  // relaxed: a number alone
  }
}

int nvshmemx_init_attr(unsigned int flags, nvshmemx_init_attr_t* attributes) {
  return heddle::init_attr(__func__, flags, attributes);
}

int nvshmemx_hostlib_init_attr(unsigned int flags, nvshmemx_init_attr_t* attr) {
  return heddle::init_attr(__func__, flags, attr);
}

// At any time, beside init and finalize of another thread too: the world itself may be going.
int nvshmemx_init_status(void) {
  return heddle::the_setup().status.load(std::memory_order_acquire);  // acquire: calls may follow
}

void nvshmem_finalize(void) { heddle::finalize(__func__); }
void nvshmemx_hostlib_finalize(void) { heddle::finalize(__func__); }

int nvshmemx_get_uniqueid(nvshmemx_uniqueid_t* uniqueid) {
  return heddle::report_code(__func__, heddle::guarded([&]() -> Status {
                               if (uniqueid == nullptr) return error(Code::kInvalidValue, "uniqueid is NULL");
                               heddle::Settings settings;
                               std::vector<std::string> warnings;  // init will say them
                               HEDDLE_RETURN_IF_ERROR(heddle::Settings::from_environment(&settings, &warnings));
                               return heddle::create_unique_id(settings, uniqueid);
                             }));
}

int nvshmemx_set_attr_uniqueid_args(const int myrank, const int nranks, const nvshmemx_uniqueid_t* uniqueid,
                                    nvshmemx_init_attr_t* attr) {
  return heddle::report_code(__func__, heddle::guarded([&]() -> Status {
                               HEDDLE_RETURN_IF_ERROR(heddle::check_attributes(attr));
                               HEDDLE_RETURN_IF_ERROR(heddle::check_unique_id(uniqueid));
                               HEDDLE_RETURN_IF_ERROR(heddle::check_rank(myrank, nranks));
                               // The structure's member is not const, but nobody writes through it.
                               attr->args.uid_args = {NVSHMEMX_UNIQUEID_ARGS_VERSION,
                                                      const_cast<nvshmemx_uniqueid_t*>(uniqueid), myrank, nranks};
                               return Status::ok();
                             }));
}

int nvshmemx_set_attr_mpi_comm_args(void* mpi_comm, nvshmemx_init_attr_t* nvshmem_attr) {
  return heddle::report_code(__func__, heddle::guarded([&]() -> Status {
                               HEDDLE_RETURN_IF_ERROR(heddle::check_attributes(nvshmem_attr));
                               if (mpi_comm == nullptr)
                                 return error(Code::kInvalidValue, "mpi_comm is NULL; let it point to an MPI_Comm");
                               nvshmem_attr->mpi_comm = mpi_comm;
                               return Status::ok();
                             }));
}

void nvshmem_global_exit(int status) {
  std::fflush(nullptr);  // the launcher may kill this process before exit() would flush
  // Held to the end of the process: another thread may be in finalize, which takes the world away.
  static std::shared_ptr<World>* const held = new std::shared_ptr<World>(heddle::hold_world());
  if (World* const w = held->get(); w != nullptr) {
    heddle::the_setup().exiting.store(true, std::memory_order_relaxed);  // relaxed: read by this thread's exit()
    w->tell_exit(status);
    if (status != 0) {
      const int me = w->bootstrap().rank();  // finalize may be clearing the views
      w->bootstrap().abort(status, heddle::format("PE %d called nvshmem_global_exit(%d)", me, status));
    }
  }
  std::exit(status);
}

// ---- queues

int nvshmemx_qp_create(int num_qps, nvshmemx_qp_handle_t** out_qp_array) {
  if (out_qp_array != nullptr) *out_qp_array = nullptr;
  if (heddle::world() == nullptr) return report_no_world(__func__), heddle::kNoWorldCode;
  return heddle::report_code(__func__, heddle::create_queues(num_qps, out_qp_array));
}

// ---- queries

int nvshmem_my_pe(void) {
  const World* const w = heddle::world();
  if (HEDDLE_UNLIKELY(w == nullptr)) return report_no_world(__func__), -1;
  return w->my_pe();
}

int nvshmem_n_pes(void) {
  const World* const w = heddle::world();
  if (HEDDLE_UNLIKELY(w == nullptr)) return report_no_world(__func__), -1;
  return w->n_pes();
}

void nvshmem_info_get_version(int* major, int* minor) {
  if (major != nullptr) *major = NVSHMEM_MAJOR_VERSION;
  if (minor != nullptr) *minor = NVSHMEM_MINOR_VERSION;
}

void nvshmem_info_get_name(char* name) {
  static_assert(sizeof NVSHMEM_VENDOR_STRING <= NVSHMEM_MAX_NAME_LEN);
  if (name != nullptr) std::memcpy(name, NVSHMEM_VENDOR_STRING, sizeof NVSHMEM_VENDOR_STRING);
}

int nvshmemx_ask_smem(nvshmemx_smem_amount_t flag) { return heddle::device::smem_to_give(flag); }

void nvshmemx_vendor_get_version_info(int* major, int* minor, int* patch) {
  if (major != nullptr) *major = NVSHMEM_VENDOR_MAJOR_VERSION;
  if (minor != nullptr) *minor = NVSHMEM_VENDOR_MINOR_VERSION;
  if (patch != nullptr) *patch = NVSHMEM_VENDOR_PATCH_VERSION;
}

const char* nvshmemx_status_string(int status) {
  static constexpr const char* kNames[] = {"NVSHMEMX_SUCCESS",
                                           "NVSHMEMX_ERROR_INVALID_VALUE",
                                           "NVSHMEMX_ERROR_OUT_OF_MEMORY",
                                           "NVSHMEMX_ERROR_NOT_SUPPORTED",
                                           "NVSHMEMX_ERROR_SYMMETRY",
                                           "NVSHMEMX_ERROR_GPU_NOT_SELECTED",
                                           "NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED",
                                           "NVSHMEMX_ERROR_INTERNAL"};
  return status >= 0 && static_cast<size_t>(status) < std::size(kNames) ? kNames[status] : "NVSHMEMX_ERROR_<unknown>";
}

// ---- heddle.h

const char* heddle_last_error(void) {
  thread_local std::string text;
  if (heddle::world() == nullptr) heddle::find_stray_failures();  // of kernels: nobody else looks for them now
  text = heddle::last_error().text();
  return text.c_str();  // NOLINT(clang-analyzer-cplusplus.InnerPointer): valid until the next call
}

void heddle_clear_error(void) {
  heddle::forget_failed_grids();  // first: it reports what kernels have recorded until now
  heddle::clear_last_error();
}

int heddle_heap_info(struct heddle_heap_info* info) {
  const World* const w = heddle::world();
  if (w == nullptr) return report_no_world(__func__), heddle::kNoWorldCode;
  if (info == nullptr || info->size < 2 * sizeof(uint64_t)) {
    return heddle::report_code(
        __func__, error(Code::kInvalidValue, "info is NULL, or its size is not sizeof(struct heddle_heap_info)"));
  }
  const heddle::HeapFigures figures = w->heap_figures();
  const struct heddle_heap_info all = {info->size,       figures.limit,    figures.in_use, figures.largest_free,
                                       figures.physical, figures.internal, figures.blocks};
  const size_t size = info->size;
  std::memset(static_cast<void*>(info), 0, size);
  std::memcpy(static_cast<void*>(info), &all, std::min(size, sizeof all));
  return NVSHMEMX_SUCCESS;
}

const char* heddle_version(void) { return HEDDLE_VERSION_STRING; }

const char* heddle_fabric_name(void) {
  World* const w = heddle::world();
  return w == nullptr ? "" : w->fabric().name();
}
