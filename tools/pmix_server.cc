#include "tools/pmix_server.h"

#include <dlfcn.h>
#include <pmix.h>
#include <pmix_server.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/owned.h"

namespace heddle_tools {
namespace {

/// What the server's thread hands to the event loop.
struct Mailbox {
  heddle::OwnedFd event{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;
  std::optional<Abort> abort;  // guarded by mutex
};

Mailbox& mailbox() {
  static Mailbox box;
  return box;
}

// ---- what libpmix calls on its own thread

pmix_status_t on_client(const pmix_proc_t*, void*, pmix_op_cbfunc_t, void*) { return PMIX_OPERATION_SUCCEEDED; }

pmix_status_t on_abort(const pmix_proc_t* proc, void*, int status, const char message[], pmix_proc_t[], size_t,
                       pmix_op_cbfunc_t, void*) {
  Mailbox& box = mailbox();
  {
    std::lock_guard<std::mutex> lock(box.mutex);
    if (!box.abort) box.abort = Abort{static_cast<int>(proc->rank), status, message ? message : ""};
  }
  const uint64_t one = 1;
  (void)!write(box.event.get(), &one, sizeof one);
  return PMIX_OPERATION_SUCCEEDED;
}

/// All ranks are our own clients, and libpmix calls this when each of them has come: their data together is the result.
pmix_status_t on_fence(const pmix_proc_t[], size_t, const pmix_info_t[], size_t, char* data, size_t bytes,
                       pmix_modex_cbfunc_t done, void* done_data) {
  if (!done) {
    std::free(data);
    return PMIX_SUCCESS;
  }
  done(PMIX_SUCCESS, data, bytes, done_data, std::free, data);
  return PMIX_SUCCESS;
}

/// Asked for data of a rank elsewhere; there is no elsewhere.
pmix_status_t on_direct_modex(const pmix_proc_t*, const pmix_info_t[], size_t, pmix_modex_cbfunc_t done,
                              void* done_data) {
  if (done) done(PMIX_ERR_NOT_FOUND, nullptr, 0, done_data, nullptr, nullptr);
  return PMIX_SUCCESS;
}

/// Waits for the callback of one of our own calls into the server library.
class Completion {
 public:
  static void done(pmix_status_t status, void* self) { static_cast<Completion*>(self)->finish(status); }
  pmix_status_t wait(pmix_status_t started) {
    if (started == PMIX_OPERATION_SUCCEEDED) return PMIX_SUCCESS;
    if (started != PMIX_SUCCESS) return started;
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return finished_; });
    return status_;
  }

 private:
  void finish(pmix_status_t status) {
    std::lock_guard<std::mutex> lock(mutex_);  // held while notifying: the waiter destroys us when it wakes
    status_ = status;
    finished_ = true;
    changed_.notify_one();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  pmix_status_t status_ = PMIX_SUCCESS;
};

/// Owns a list of PMIx attributes; nested lists are copied in.
class Attributes {
 public:
  Attributes() = default;
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes() {
    for (pmix_info_t& info : infos_) PMIx_Value_destruct(&info.value);
  }
  void add(const char* key, const void* value, pmix_data_type_t type) {
    infos_.push_back({});
    PMIx_Info_load(&infos_.back(), key, value, type);
  }
  void add(const char* key, uint32_t value) { add(key, &value, PMIX_UINT32); }
  void add16(const char* key, uint16_t value) { add(key, &value, PMIX_UINT16); }
  void add_text(const char* key, const std::string& value) { add(key, value.c_str(), PMIX_STRING); }
  void add_list(const char* key, Attributes& list) {
    pmix_data_array_t array = {};
    array.type = PMIX_INFO;
    array.size = list.infos_.size();
    array.array = list.infos_.data();
    add(key, &array, PMIX_DATA_ARRAY);
  }
  pmix_info_t* data() { return infos_.data(); }
  size_t size() const { return infos_.size(); }

 private:
  std::vector<pmix_info_t> infos_;
};

std::string failed(const char* call, pmix_status_t status) {
  return std::string("the PMIx server cannot start: ") + call + " failed with " + PMIx_Error_string(status);
}

/// Ranks and name of one claimed node: ranks are dealt in blocks, as even as possible.
struct Node {
  std::string name;
  int first = 0, count = 0;
};

Node node(int index, int ranks, int nodes) {
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  Node result;
  result.name = nodes == 1 ? host : "heddle-node" + std::to_string(index);
  result.first = static_cast<int>(static_cast<int64_t>(index) * ranks / nodes);
  result.count = static_cast<int>(static_cast<int64_t>(index + 1) * ranks / nodes) - result.first;
  return result;
}

void set_namespace(char (&name)[PMIX_MAX_NSLEN + 1]) {
  std::snprintf(name, sizeof name, "heddlerun-%d", static_cast<int>(getpid()));
}

}  // namespace

PmixServer::~PmixServer() {
  if (started_) PMIx_server_finalize();
}

bool PmixServer::start(const std::string& folder, int ranks, int nodes, std::string* reason) {
  ranks_ = ranks;
  nodes_ = nodes;
  static pmix_server_module_t module = {};
  module.client_connected = on_client;
  module.client_finalized = on_client;
  module.abort = on_abort;
  module.fence_nb = on_fence;
  module.direct_modex = on_direct_modex;
  if (!mailbox().event.valid()) {
    *reason = std::string("cannot make an event descriptor: ") + std::strerror(errno);
    return false;
  }
  // When ranks are killed in the middle of a message, libevent inside libpmix complains on stderr of what is no fault.
  using Silencer = void (*)(void (*)(int, const char*));
  if (const auto silence = reinterpret_cast<Silencer>(dlsym(RTLD_DEFAULT, "event_set_log_callback"))) {
    silence([](int, const char*) {});
  }
  Attributes folders;
  folders.add_text(PMIX_SERVER_TMPDIR, folder);
  folders.add_text(PMIX_SYSTEM_TMPDIR, folder);
  pmix_status_t status = PMIx_server_init(&module, folders.data(), folders.size());
  if (status != PMIX_SUCCESS) {
    *reason = failed("PMIx_server_init", status);
    return false;
  }
  started_ = true;

  std::string node_names, node_ranks;
  Attributes job;
  for (int k = 0; k < nodes; ++k) {
    const Node each = node(k, ranks, nodes);
    std::string members;
    for (int i = 0; i < each.count; ++i) {
      if (i > 0) members += ',';
      members += std::to_string(each.first + i);
    }
    if (k > 0) {
      node_names += ',';
      node_ranks += ';';
    }
    node_names += each.name;
    node_ranks += members;
    Attributes about;
    about.add_text(PMIX_HOSTNAME, each.name);
    about.add(PMIX_NODEID, static_cast<uint32_t>(k));
    about.add(PMIX_LOCAL_SIZE, static_cast<uint32_t>(each.count));
    about.add_text(PMIX_LOCAL_PEERS, members);
    job.add_list(PMIX_NODE_INFO_ARRAY, about);
    for (int i = 0; i < each.count; ++i) {
      Attributes process;
      const pmix_rank_t rank = static_cast<pmix_rank_t>(each.first + i);
      process.add(PMIX_RANK, &rank, PMIX_PROC_RANK);
      process.add(PMIX_NODEID, static_cast<uint32_t>(k));
      process.add16(PMIX_LOCAL_RANK, static_cast<uint16_t>(i));
      process.add16(PMIX_NODE_RANK, static_cast<uint16_t>(i));
      process.add(PMIX_APPNUM, 0u);
      job.add_list(PMIX_PROC_INFO_ARRAY, process);
    }
    if (nodes == 1) job.add_text(PMIX_LOCAL_PEERS, members);
  }
  char* node_map = nullptr;
  char* process_map = nullptr;
  PMIx_generate_regex(node_names.c_str(), &node_map);
  PMIx_generate_ppn(node_ranks.c_str(), &process_map);
  job.add(PMIX_NODE_MAP, node_map, PMIX_REGEX);
  job.add(PMIX_PROC_MAP, process_map, PMIX_REGEX);
  std::free(node_map);
  std::free(process_map);
  const uint32_t count = static_cast<uint32_t>(ranks);
  job.add(PMIX_JOB_SIZE, count);
  job.add(PMIX_UNIV_SIZE, count);
  job.add(PMIX_MAX_PROCS, count);
  job.add(PMIX_NUM_NODES, static_cast<uint32_t>(nodes));
  job.add(PMIX_JOB_NUM_APPS, 1u);
  if (nodes == 1) job.add(PMIX_LOCAL_SIZE, count);
  pmix_nspace_t name = {};
  set_namespace(name);
  job.add_text(PMIX_JOBID, name);

  {
    Completion completion;
    status = completion.wait(
        PMIx_server_register_nspace(name, ranks, job.data(), job.size(), Completion::done, &completion));
  }
  if (status != PMIX_SUCCESS) {
    *reason = failed("PMIx_server_register_nspace", status);
    return false;
  }
  for (int k = 0; k < ranks; ++k) {
    pmix_proc_t proc = {};
    set_namespace(proc.nspace);
    proc.rank = static_cast<pmix_rank_t>(k);
    Completion completion;
    status =
        completion.wait(PMIx_server_register_client(&proc, getuid(), getgid(), nullptr, Completion::done, &completion));
    if (status != PMIX_SUCCESS) {
      *reason = failed("PMIx_server_register_client", status);
      return false;
    }
  }
  return true;
}

char** PmixServer::environment_of(int rank, std::string* reason) {
  size_t count = 0;
  while (environ[count]) ++count;
  char** copy = static_cast<char**>(std::calloc(count + 1, sizeof *copy));
  for (size_t i = 0; i < count; ++i) copy[i] = strdup(environ[i]);
  pmix_proc_t proc = {};
  set_namespace(proc.nspace);
  proc.rank = static_cast<pmix_rank_t>(rank);
  const pmix_status_t status = PMIx_server_setup_fork(&proc, &copy);
  if (status != PMIX_SUCCESS) {
    *reason = std::string("PMIx_server_setup_fork failed with ") + PMIx_Error_string(status);
    for (char** entry = copy; *entry; ++entry) std::free(*entry);
    std::free(copy);
    return nullptr;
  }
  return copy;
}

int PmixServer::abort_fd() const { return mailbox().event.get(); }

std::optional<Abort> PmixServer::take_abort() {
  Mailbox& box = mailbox();
  uint64_t count = 0;
  (void)!read(box.event.get(), &count, sizeof count);
  std::lock_guard<std::mutex> lock(box.mutex);
  return std::exchange(box.abort, std::nullopt);
}

}  // namespace heddle_tools
