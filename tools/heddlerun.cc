// heddlerun: starts N ranks of a program on this host and serves them PMIx. For tests, laptops and CI.
//
//   heddlerun -n 4 ./program arguments
//
// The program is one process with one event loop (signals, output, the PMIx server's requests), plus two helpers: the
// server's own thread inside libpmix, and a guard process that outlives us only to clean up when we are killed.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/owned.h"
#include "tools/pmix_server.h"

namespace {

using heddle::Deadline;
using heddle::OwnedFd;

constexpr int kUsageError = 2;
constexpr int kTimedOut = 124;
constexpr int kCannotRun = 126;
constexpr int kNotFound = 127;
constexpr size_t kLongestLine = 1 << 20;  // a longer one is cut, so that a rank cannot take all memory

struct Options {
  int ranks = 0;
  int nodes = 1;
  double timeout = 0;
  double grace = 2;
  bool prefix = false;
  bool keep_going = false;
  bool bind_cores = false;
  std::vector<std::string> command;
};

[[gnu::format(printf, 1, 2)]] void say(const char* pattern, ...) {
  char text[1024];
  va_list args;
  va_start(args, pattern);
  std::vsnprintf(text, sizeof text, pattern, args);
  va_end(args);
  const std::string line = std::string("heddlerun: ") + text + "\n";
  (void)!write(STDERR_FILENO, line.data(), line.size());
}

/// Reads the command line; the exit code when there is nothing to run.
std::optional<int> parse(int argc, char** argv, Options* options) {
  CLI::App app{"Starts N ranks of a program on this host, each a PE of one job.", "heddlerun"};
  std::string bind = "none";
  app.add_option("-n,--ranks", options->ranks, "Number of ranks, 1 to 512")->required()->check(CLI::Range(1, 512));
  app.add_flag("-p,--prefix", options->prefix, "Put \"[PE k] \" before every line that rank k prints");
  app.add_flag("--keep-going", options->keep_going, "Leave the other ranks running when one fails");
  app.add_option("--timeout", options->timeout, "Seconds after which everything is killed; the exit code is then 124")
      ->check(CLI::PositiveNumber);
  app.add_option("--grace", options->grace, "Seconds between SIGTERM and SIGKILL when the job is ended (default 2)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--nodes", options->nodes, "Pretend that the ranks run on K nodes, in blocks (default 1)")
      ->check(CLI::Range(1, 512));
  app.add_option("--bind", bind, "core: bind the ranks to processors in turn; none (default)")
      ->check(CLI::IsMember({"core", "none"}));
  app.prefix_command();
  app.footer(
      "Standard input goes to rank 0. The exit code is that of the first rank that fails (128 + signal for a signal).");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& problem) {
    say("%s; \"heddlerun --help\" shows the options", problem.what());
    return kUsageError;
  }
  options->command = app.remaining();
  if (!options->command.empty() && options->command.front() == "--") {
    options->command.erase(options->command.begin());
  } else if (!options->command.empty() && options->command.front().rfind('-', 0) == 0) {
    say("unknown option %s; \"heddlerun --help\" shows the options", options->command.front().c_str());
    return kUsageError;
  }
  if (options->command.empty()) {
    say("no program to run; use \"heddlerun -n N program arguments\"");
    return kUsageError;
  }
  if (options->nodes > options->ranks) {
    say("--nodes %d is more than the %d ranks", options->nodes, options->ranks);
    return kUsageError;
  }
  options->bind_cores = bind == "core";
  return {};
}

/// Finds the program as a shell would, so that a wrong name is one error and not one per rank.
std::optional<int> resolve(std::string* program) {
  if (program->find('/') == std::string::npos) {
    const char* path = getenv("PATH");
    std::string list = path ? path : "/usr/local/bin:/usr/bin:/bin";
    for (size_t at = 0; at <= list.size();) {
      const size_t end = std::min(list.find(':', at), list.size());
      const std::string folder = end == at ? "." : list.substr(at, end - at);
      const std::string candidate = folder + "/" + *program;
      std::error_code ignored;
      if (access(candidate.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(candidate, ignored)) {
        *program = candidate;
        return {};
      }
      at = end + 1;
    }
    say("cannot find program \"%s\" in PATH", program->c_str());
    return kNotFound;
  }
  if (access(program->c_str(), F_OK) != 0) {
    say("cannot run \"%s\": %s", program->c_str(), std::strerror(errno));
    return kNotFound;
  }
  std::error_code ignored;
  if (access(program->c_str(), X_OK) != 0 || std::filesystem::is_directory(*program, ignored)) {
    say("cannot run \"%s\": %s", program->c_str(), errno ? std::strerror(errno) : "it is a folder");
    return kCannotRun;
  }
  return {};
}

/// Variables of an outer launcher, which would tell the ranks a wrong identity. Tuning that a user may have set stays.
bool is_foreign(const std::string& name) {
  const auto starts = [&](const char* prefix) { return name.rfind(prefix, 0) == 0; };
  if (starts("OMPI_ALLOW_RUN_AS_ROOT") || name == "SLURM_CONF") return false;
  if (starts("PMIX_MCA_")) return false;
  if (starts("OMPI_MCA_")) return starts("OMPI_MCA_orte") || starts("OMPI_MCA_ess") || starts("OMPI_MCA_pmix");
  for (const char* prefix : {"PMIX_", "OMPI_", "SLURM_", "SLURMD_", "PMI_", "PRTE_", "HYDI_", "HYDRA_", "MPI_LOCAL"}) {
    if (starts(prefix)) return true;
  }
  return false;
}

void clean_environment() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry; ++entry) {
    const std::string name(*entry, strcspn(*entry, "="));
    if (is_foreign(name)) names.push_back(name);
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

/// A temporary folder for the PMIx server, and a process that removes it and kills the ranks' process groups once this
/// process is gone, however it went.
class Guard {
 public:
  bool start() {
    const char* base = getenv("TMPDIR");
    folder_ = std::string(base && *base ? base : "/tmp") + "/heddlerun-XXXXXX";
    if (!mkdtemp(folder_.data())) {
      say("cannot make the folder %s for the PMIx server: %s; set TMPDIR to a writable folder", folder_.c_str(),
          std::strerror(errno));
      return false;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      say("cannot make a pipe: %s", std::strerror(errno));
      std::filesystem::remove(folder_);
      return false;
    }
    lifeline_ = OwnedFd(ends[1]);
    pid_ = fork();
    if (pid_ == 0) {
      lifeline_.reset();
      run(ends[0]);
    }
    close(ends[0]);
    if (pid_ > 0) return true;
    say("cannot start a process: %s", std::strerror(errno));
    std::filesystem::remove(folder_);
    return false;
  }

  const std::string& folder() const { return folder_; }

  /// Tells the guard of a process group to kill in the end.
  void watch(pid_t group) { (void)!write(lifeline_.get(), &group, sizeof group); }

  /// Lets the guard do its work and waits for it.
  void finish() {
    lifeline_.reset();
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

 private:
  [[noreturn]] void run(int lifeline) {
    setsid();  // away from the terminal's signals, and from a kill of our caller's group
    for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE}) ::signal(signal, SIG_IGN);
    // Whoever waits for the end of our caller's output must not wait for the guard.
    if (const int null = open("/dev/null", O_RDWR | O_CLOEXEC); null >= 0) {
      for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, fd);
    }
    std::vector<pid_t> groups;
    pid_t group = 0;
    for (;;) {
      const ssize_t got = read(lifeline, &group, sizeof group);
      if (got < 0 && errno == EINTR) continue;
      if (got != sizeof group) break;
      groups.push_back(group);
    }
    for (pid_t each : groups) kill(-each, SIGKILL);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    _exit(0);
  }

  std::string folder_;
  OwnedFd lifeline_;
  pid_t pid_ = -1;
};

/// One output stream of one rank, cut into lines.
struct Stream {
  OwnedFd fd;
  int to = STDOUT_FILENO;
  std::string partial;
};

struct Rank {
  pid_t pid = -1;
  bool running = false;
  std::array<Stream, 2> streams;
};

class Job {
 public:
  Job(const Options& options, std::string program, Guard* guard, heddle_tools::PmixServer* server,
      const sigset_t& outer_mask, const sigset_t& signals)
      : options_(options), program_(std::move(program)), guard_(guard), server_(server), outer_mask_(outer_mask) {
    signals_ = OwnedFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    ranks_.resize(static_cast<size_t>(options.ranks));
    getrlimit(RLIMIT_NOFILE, &outer_files_);
    rlimit files = outer_files_;
    files.rlim_cur = files.rlim_max;  // with --prefix every rank takes two pipes beside its PMIx connection
    setrlimit(RLIMIT_NOFILE, &files);
    CPU_ZERO(&cpus_);
    sched_getaffinity(0, sizeof cpus_, &cpus_);
    foreground_input_ = isatty(STDIN_FILENO);
  }

  /// Starts every rank, and waits for all of them. Returns the exit code.
  int run() {
    if (options_.timeout > 0) job_deadline_ = Deadline::in(options_.timeout);
    for (int k = 0; k < options_.ranks; ++k) {
      if (!start(k)) {
        fail(kCannotRun);
        end_job();
        break;
      }
    }
    while (running() > 0) step();
    for (Rank& rank : ranks_) {
      for (Stream& stream : rank.streams) drain(rank, stream, true);
    }
    return exit_code_;
  }

 private:
  int index(const Rank& rank) const { return static_cast<int>(&rank - ranks_.data()); }

  int running() const {
    int count = 0;
    for (const Rank& rank : ranks_) count += rank.running;
    return count;
  }

  void fail(int code) {
    if (exit_code_ == 0) exit_code_ = code;
  }

  bool start(int k) {
    Rank& rank = ranks_[static_cast<size_t>(k)];
    std::array<OwnedFd, 2> ends;
    if (options_.prefix) {
      for (size_t i = 0; i < 2; ++i) {
        int fds[2];
        if (pipe2(fds, O_CLOEXEC) != 0) {
          say("cannot make a pipe for PE %d: %s", k, std::strerror(errno));
          return false;
        }
        fcntl(fds[0], F_SETFL, O_NONBLOCK);
        rank.streams[i] = {OwnedFd(fds[0]), i == 0 ? STDOUT_FILENO : STDERR_FILENO, {}};
        ends[i] = OwnedFd(fds[1]);
      }
    }
    std::string reason;
    char** const environment = server_->environment_of(k, &reason);
    if (!environment) {
      say("PE %d: %s", k, reason.c_str());
      return false;
    }
    std::vector<char*> arguments;
    for (const std::string& argument : options_.command) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    const pid_t parent = getpid();
    rank.pid = fork();
    if (rank.pid == 0) become(k, parent, ends, arguments.data(), environment);
    for (char** entry = environment; *entry; ++entry) std::free(*entry);
    std::free(environment);
    if (rank.pid < 0) {
      say("cannot start PE %d: %s", k, std::strerror(errno));
      return false;
    }
    if (has_own_group(k)) {
      setpgid(rank.pid, rank.pid);  // here and in the child: whoever is first
      guard_->watch(rank.pid);
    }
    rank.running = true;
    return true;
  }

  /// Rank 0 stays in our process group when it reads a terminal, else it would be stopped for reading it.
  bool has_own_group(int k) const { return k != 0 || !foreground_input_; }

  /// The child's side of start: only calls that are safe after fork.
  [[noreturn]] void become(int k, pid_t parent, const std::array<OwnedFd, 2>& ends, char** arguments,
                           char** environment) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kCannotRun);  // it died before the line above
    if (has_own_group(k)) setpgid(0, 0);
    if (k != 0) {
      const int null = open("/dev/null", O_RDONLY);
      if (null > STDIN_FILENO) {
        dup2(null, STDIN_FILENO);
        close(null);
      }
    }
    if (ends[0].valid()) dup2(ends[0].get(), STDOUT_FILENO);
    if (ends[1].valid()) dup2(ends[1].get(), STDERR_FILENO);
    if (options_.bind_cores && CPU_COUNT(&cpus_) > 0) {
      int nth = k % CPU_COUNT(&cpus_);
      for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (!CPU_ISSET(cpu, &cpus_) || nth-- > 0) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
        break;
      }
    }
    setrlimit(RLIMIT_NOFILE, &outer_files_);
    ::signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &outer_mask_, nullptr);
    execve(program_.c_str(), arguments, environment);
    char text[512];
    const int length = std::snprintf(text, sizeof text, "heddlerun: PE %d cannot run %s: %s\n", k, program_.c_str(),
                                     std::strerror(errno));
    (void)!write(STDERR_FILENO, text, static_cast<size_t>(std::min<int>(length, sizeof text - 1)));
    _exit(kCannotRun);
  }

  /// Waits for the next event and handles it.
  void step() {
    std::vector<pollfd> polled = {{signals_.get(), POLLIN, 0}, {server_->abort_fd(), POLLIN, 0}};
    std::vector<std::pair<Rank*, Stream*>> streams;
    for (Rank& rank : ranks_) {
      for (Stream& stream : rank.streams) {
        if (!stream.fd.valid()) continue;
        polled.push_back({stream.fd.get(), POLLIN, 0});
        streams.emplace_back(&rank, &stream);
      }
    }
    int wait_ms = job_deadline_.poll_ms();
    if (const int kill_ms = kill_deadline_.poll_ms(); kill_ms >= 0 && (wait_ms < 0 || kill_ms < wait_ms)) {
      wait_ms = kill_ms;
    }
    if (poll(polled.data(), polled.size(), wait_ms) < 0 && errno != EINTR) {
      say("poll failed: %s", std::strerror(errno));
      fail(kCannotRun);
      signal_all(SIGKILL);
    }
    for (size_t i = 0; i < streams.size(); ++i) {
      if (polled[i + 2].revents) drain(*streams[i].first, *streams[i].second, false);
    }
    if (polled[1].revents) handle_abort();
    if (polled[0].revents) handle_signals();
    if (job_deadline_.passed()) {
      job_deadline_ = Deadline::none();
      say("timed out after %g seconds with %d of %d ranks running; ending the job", options_.timeout, running(),
          options_.ranks);
      exit_code_ = kTimedOut;
      end_job();
    }
    if (kill_deadline_.passed()) {
      kill_deadline_ = Deadline::none();
      signal_all(SIGKILL);
    }
  }

  void handle_signals() {
    signalfd_siginfo info;
    bool child_ended = false;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) {
        child_ended = true;
        continue;
      }
      const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP;
      if (ends && ending_ && told_to_end_) {  // asked twice: at once
        signal_all(SIGKILL);
        continue;
      }
      // The terminal has told a rank 0 in our own process group already.
      signal_all(signal, info.ssi_code == SI_KERNEL && foreground_input_);
      if (ends) {
        told_to_end_ = true;
        arm_kill();
      }
    }
    if (child_ended) collect();
  }

  void handle_abort() {
    const std::optional<heddle_tools::Abort> abort = server_->take_abort();
    if (!abort) return;
    const int code = (abort->code & 0xff) ? abort->code & 0xff : 1;
    say("PE %d asked to end the job with code %d%s%s", abort->rank, code, abort->reason.empty() ? "" : ": ",
        abort->reason.c_str());
    fail(code);
    end_job();
  }

  /// Notes the ranks that ended. They stay unreaped until we end, so that no signal can hit a stranger with their
  /// number.
  void collect() {
    for (Rank& rank : ranks_) {
      if (!rank.running) continue;
      siginfo_t info = {};
      if (waitid(P_PID, static_cast<id_t>(rank.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
        continue;
      }
      rank.running = false;
      const bool exited = info.si_code == CLD_EXITED;
      const int code = exited ? info.si_status : 128 + info.si_status;
      for (Stream& stream : rank.streams) drain(rank, stream, false);
      if (code == 0) continue;
      if (exit_code_ == 0 || options_.keep_going) {
        if (exited) {
          say("PE %d (pid %d) exited with code %d", index(rank), rank.pid, code);
        } else {
          say("PE %d (pid %d) was ended by signal %d (%s)%s", index(rank), rank.pid, info.si_status,
              strsignal(info.si_status), info.si_code == CLD_DUMPED ? ", core dumped" : "");
        }
      }
      fail(code);
      if (!options_.keep_going) end_job();
    }
  }

  void signal_all(int signal, bool but_rank_0 = false) {
    for (Rank& rank : ranks_) {
      if (!rank.running || (but_rank_0 && index(rank) == 0)) continue;
      kill(has_own_group(index(rank)) ? -rank.pid : rank.pid, signal);
    }
  }

  void arm_kill() {
    if (ending_) return;
    ending_ = true;
    kill_deadline_ = Deadline::in(std::max(options_.grace, 1e-3));
  }

  void end_job() {
    if (ending_) return;
    arm_kill();
    signal_all(SIGTERM);
  }

  /// Passes on what a stream holds, in whole lines; with `last` also a line without an end.
  void drain(const Rank& rank, Stream& stream, bool last) {
    if (!stream.fd.valid()) return;
    char bytes[65536];
    bool ended = last;
    for (;;) {
      const ssize_t got = read(stream.fd.get(), bytes, sizeof bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        ended |= got == 0;
        break;
      }
      stream.partial.append(bytes, static_cast<size_t>(got));
      if (stream.partial.size() > kLongestLine) break;  // the others' turn
    }
    const std::string prefix = "[PE " + std::to_string(index(rank)) + "] ";
    std::string out;
    size_t at = 0;
    for (size_t end; (end = stream.partial.find('\n', at)) != std::string::npos; at = end + 1) {
      out += prefix;
      out.append(stream.partial, at, end + 1 - at);
    }
    stream.partial.erase(0, at);
    if (!stream.partial.empty() && (ended || stream.partial.size() > kLongestLine)) {
      out += prefix + stream.partial + "\n";
      stream.partial.clear();
    }
    if (ended) stream.fd.reset();
    for (size_t done = 0; done < out.size();) {
      const ssize_t put = write(stream.to, out.data() + done, out.size() - done);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && errno == EAGAIN) {
        pollfd ready = {stream.to, POLLOUT, 0};
        poll(&ready, 1, -1);
        continue;
      }
      if (put <= 0) return;  // our reader is gone; the ranks go on
      done += static_cast<size_t>(put);
    }
  }

  const Options& options_;
  std::string program_;
  Guard* guard_;
  heddle_tools::PmixServer* server_;
  sigset_t outer_mask_;
  rlimit outer_files_ = {};
  cpu_set_t cpus_;
  bool foreground_input_ = false;
  OwnedFd signals_;
  std::vector<Rank> ranks_;
  Deadline job_deadline_ = Deadline::none();
  Deadline kill_deadline_ = Deadline::none();
  bool ending_ = false;
  bool told_to_end_ = false;
  int exit_code_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const std::optional<int> code = parse(argc, argv, &options)) return *code;
  std::string program = options.command.front();
  if (const std::optional<int> code = resolve(&program)) return *code;
  clean_environment();

  // Blocked before any thread exists, so that signals reach only the event loop.
  sigset_t signals, outer_mask;
  sigemptyset(&signals);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    struct sigaction inherited;
    sigaction(signal, nullptr, &inherited);
    if (signal == SIGCHLD || inherited.sa_handler != SIG_IGN) sigaddset(&signals, signal);  // nohup stays nohup
  }
  ::signal(SIGCHLD, SIG_DFL);  // ignored, it would take the ranks' exit codes away
  sigprocmask(SIG_BLOCK, &signals, &outer_mask);
  ::signal(SIGPIPE, SIG_IGN);

  Guard guard;
  if (!guard.start()) return kCannotRun;
  int code = kCannotRun;
  {
    heddle_tools::PmixServer server;
    std::string reason;
    if (server.start(guard.folder(), options.ranks, options.nodes, &reason)) {
      code = Job(options, program, &guard, &server, outer_mask, signals).run();
      // libpmix has been seen to wait for itself in its finalize; the job's code must come out all the same.
      std::thread([&guard, code] {
        std::this_thread::sleep_for(std::chrono::seconds(3));
        guard.finish();
        _exit(code);
      }).detach();
    } else {
      say("%s", reason.c_str());
    }
  }
  guard.finish();
  return code;
}
