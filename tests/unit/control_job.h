// Threads as PEs around control channels, and raw sockets that speak to them.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/control.h"
#include "runtime/log.h"
#include "runtime/sockets.h"
#include "tests/catch.h"

namespace control_test {

using namespace heddle;
using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline Settings test_settings(std::vector<std::string> environment = {}) {
  Settings settings;
  std::vector<std::string> warnings;
  const Status status = Settings::from_list(environment, &settings, &warnings);
  if (!status.is_ok()) FAIL(status.text());
  return settings;
}

/// Polls until `condition` holds; false after `seconds`.
inline bool eventually(const std::function<bool()>& condition, double seconds = 10) {
  const auto start = Clock::now();
  while (!condition()) {
    if (seconds_since(start) > seconds) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Runs `body` for every PE, each on its own thread, and returns what they returned. No assertions inside: Catch2's are
/// for one thread.
inline std::vector<Status> each_pe(int n, const std::function<Status(int)>& body) {
  std::vector<Status> statuses(n);
  std::vector<std::thread> threads;
  for (int pe = 0; pe < n; ++pe) threads.emplace_back([&, pe] { statuses[pe] = body(pe); });
  for (auto& thread : threads) thread.join();
  return statuses;
}

inline void require_ok(const std::vector<Status>& statuses) {
  for (size_t pe = 0; pe < statuses.size(); ++pe) {
    INFO("PE " << pe << ": " << statuses[pe].text());
    REQUIRE(statuses[pe].is_ok());
  }
}

inline void require_text(const Status& status, Code code, const std::string& part) {
  INFO("status \"" << status.text() << "\" should be " << code_name(code) << " with \"" << part << "\"");
  REQUIRE(status.code() == code);
  REQUIRE(status.text().find(part) != std::string::npos);
}

/// Channels of n PEs with their records exchanged, not yet connected. node[pe] is the launcher's node.
struct Job {
  int n;
  std::vector<std::unique_ptr<ControlChannel>> channels;
  std::vector<ControlPeer> peers;
  JobToken token;

  explicit Job(int n_pes, bool tcp = false, std::vector<int> nodes = {}, const Settings& settings = test_settings())
      : n(n_pes), channels(n_pes), peers(n_pes) {
    Status status = make_job_token(&token);
    for (int pe = 0; pe < n && status.is_ok(); ++pe) {
      status = ControlChannel::open(settings, pe, n, tcp, &channels[pe]);
      if (!status.is_ok()) break;
      peers[pe].address = channels[pe]->address();
      peers[pe].identity.pid = 1000 + pe;
      peers[pe].identity.node = nodes.empty() ? 0 : nodes[pe];
      std::memset(peers[pe].identity.boot_id, 7, sizeof peers[pe].identity.boot_id);
    }
    if (!status.is_ok()) FAIL(status.text());
  }

  Status connect(int pe, double seconds = 60) { return channels[pe]->connect(peers, token, Deadline::in(seconds)); }
  void connect_all() {
    require_ok(each_pe(n, [this](int pe) { return connect(pe); }));
  }
  void leave_all() {
    each_pe(n, [this](int pe) { return channels[pe]->leave(), Status(); });
  }
  ControlChannel& operator[](int pe) { return *channels[pe]; }

  /// An allgather of one int32 that checks what came.
  Status gather_int(int pe, const std::string& tag, double seconds = 0) {
    const int32_t mine = 100 + pe;
    std::vector<int32_t> all(n, -1);
    HEDDLE_RETURN_IF_ERROR(channels[pe]->allgather(tag, &mine, sizeof mine, all.data(), Deadline::in(seconds)));
    for (int i = 0; i < n; ++i) {
      if (all[i] != 100 + i) return error(Code::kInternal, "PE %d has %d for PE %d", pe, all[i], i);
    }
    return Status::ok();
  }
};

inline int open_fds() {
  int count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

/// A memfd that holds `text`.
inline OwnedFd text_fd(const std::string& text) {
  OwnedFd fd(memfd_create("control-test", MFD_CLOEXEC));
  if (!fd.valid() || write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw std::runtime_error("no memfd");
  }
  return fd;
}

inline std::string fd_text(int fd) {
  std::string text(256, '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return text;
}

/// The log of this test program, kept in memory so that expected warnings do not appear and can be counted.
class CapturedLog {
 public:
  CapturedLog() : start_(text().size()) {}
  int lines_with(const std::string& part) const {
    int count = 0;
    const std::string all = text();
    for (size_t at = all.find(part, start_); at != std::string::npos; at = all.find(part, at + 1)) ++count;
    return count;
  }
  int lines() const { return lines_with("\n"); }

 private:
  static int file() {
    static const int fd = [] {
      const int made = memfd_create("control-test-log", 0);
      const Status status =
          configure_log(test_settings({"NVSHMEM_DEBUG_FILE=/proc/self/fd/" + std::to_string(made)}), -1);
      if (!status.is_ok()) FAIL(status.text());
      return made;
    }();
    return fd;
  }
  static std::string text() {
    std::string all;
    char part[4096];
    ssize_t got;
    while ((got = pread(file(), part, sizeof part, static_cast<off_t>(all.size()))) > 0) {
      all.append(part, static_cast<size_t>(got));
    }
    return all;
  }
  size_t start_;
};

/// A raw connection to a channel's Unix socket.
class RawPeer {
 public:
  explicit RawPeer(const ControlAddress& address) : dialled_(dial_unix(address, &socket_)) {}
  int dialled() const { return dialled_; }
  int fd() const { return socket_.get(); }
  void close() { socket_.reset(); }

  void send_bytes(const void* data, size_t bytes, int fd = -1) {
    iovec part{const_cast<void*>(data), bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (fd >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      *rights = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
      std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    (void)!sendmsg(socket_.get(), &message, MSG_NOSIGNAL);  // the channel may have closed already, which tests look at
  }
  void send_header(FrameOp op, uint32_t length, uint32_t magic = kFrameMagic, int has_fd = 0, int fd = -1) {
    FrameHeader header;
    header.magic = magic;
    header.op = static_cast<uint16_t>(op);
    header.length = length;
    header.has_fd = static_cast<uint16_t>(has_fd);
    send_bytes(&header, sizeof header, fd);
  }
  void hello(const JobToken& token, int pe, int n_pes) {
    HelloBody body;
    body.token = token;
    body.pe = pe;
    body.n_pes = n_pes;
    send_header(FrameOp::kHello, sizeof body);
    send_bytes(&body, sizeof body);
  }
  /// Bytes that came within `seconds`; empty when the channel said nothing or closed, and then `closed` is set.
  std::string read_some(bool* closed, double seconds = 10) {
    *closed = false;
    pollfd ready{socket_.get(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(seconds * 1000)) != 1) return {};
    char bytes[256];
    const ssize_t got = recv(socket_.get(), bytes, sizeof bytes, 0);
    *closed = got <= 0;
    return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : std::string();
  }
  bool is_closed(double seconds = 10) {
    bool closed = false;
    while (!read_some(&closed, seconds).empty()) {
    }
    return closed;
  }

 private:
  OwnedFd socket_;
  int dialled_;
};

/// Descriptors for big jobs in one process; true when there are enough for `wanted`.
inline bool allow_fds(rlim_t wanted) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return true;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= wanted;
}

}  // namespace control_test
