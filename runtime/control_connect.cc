// Listening, dialling and admission: how the control channel comes to have one connection per peer.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/control_impl.h"
#include "runtime/log.h"
#include "runtime/sockets.h"

namespace heddle {
namespace {

constexpr auto kHelloTime = std::chrono::seconds(5);
constexpr auto kProbeInterval = std::chrono::milliseconds(500);
constexpr size_t kProbesPerInterval = 16;
constexpr size_t kSpareStrangers = 16;

// Takes the same time wherever the first difference is.
bool same_token(const JobToken& a, const JobToken& b) {
  unsigned char difference = 0;
  for (size_t i = 0; i < sizeof a.bytes; ++i) difference |= a.bytes[i] ^ b.bytes[i];
  return difference == 0;
}

}  // namespace

Status ControlChannel::Impl::open(bool want_tcp) {
  HEDDLE_RETURN_IF_ERROR(listen_unix(&address_, &unix_listener_));
  if (want_tcp) HEDDLE_RETURN_IF_ERROR(listen_tcp(settings_, &address_, &tcp_listener_));
  return Status::ok();
}

Status ControlChannel::Impl::connect(const std::vector<ControlPeer>& peers, const JobToken& token, Deadline deadline) {
  if (peers.size() != static_cast<size_t>(n_pes_) || started_.load(std::memory_order_acquire)) {
    return error(Code::kInvalidValue, "the control channel was given %zu peers instead of %d, or connected twice",
                 peers.size(), n_pes_);
  }
  if (n_pes_ == 1) {
    unix_listener_.reset();
    tcp_listener_.reset();
    return Status::ok();
  }
  peers_ = peers;
  token_ = token;
  const double seconds = deadline.poll_ms() / 1000.0;
  HEDDLE_RETURN_IF_ERROR(start());
  HEDDLE_RETURN_IF_ERROR(dial_lower_peers(deadline));
  return await_peers(deadline, seconds);
}

std::string ControlChannel::Impl::who(int pe) const {
  return format("PE %d (pid %d)", pe, static_cast<int>(peers_[pe].identity.pid));
}

bool ControlChannel::Impl::same_node(int pe) const {
  const PeerIdentity& mine = peers_[my_pe_].identity;
  const PeerIdentity& its = peers_[pe].identity;
  if (mine.node >= 0 && its.node >= 0 && mine.node != its.node) return false;
  return std::memcmp(mine.boot_id, its.boot_id, sizeof mine.boot_id) == 0;
}

Status ControlChannel::Impl::connect_trouble() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (loss_.pe >= 0) return Status(Code::kPeerLost, loss_.text);
  return connect_failure_;
}

Status ControlChannel::Impl::missing_status(double seconds) {
  std::vector<int> missing;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (int pe = 0; pe < n_pes_; ++pe) {
      if (pe != my_pe_ && states_[pe] == PeerState::kMissing) missing.push_back(pe);
    }
  }
  return error(Code::kTimeout,
               "%s %s not connected to PE %d within %.3g s; see whether they run, or raise HEDDLE_TIMEOUT",
               name_pes(missing).c_str(), missing.size() == 1 ? "has" : "have", my_pe_, seconds);
}

// ---- dialling

Status ControlChannel::Impl::dial_lower_peers(Deadline deadline) {
  const double seconds = deadline.poll_ms() / 1000.0;
  std::vector<Dial> dials(my_pe_);
  for (int pe = 0; pe < my_pe_; ++pe) {
    dials[pe].pe = pe;
    dials[pe].tcp = !same_node(pe);
  }
  while (true) {
    std::vector<pollfd> waits;
    bool all_done = true;
    for (Dial& dial : dials) {
      if (!dial.done) HEDDLE_RETURN_IF_ERROR(advance(&dial));
      all_done = all_done && dial.done;
      if (!dial.done && dial.socket.valid()) waits.push_back({dial.socket.get(), POLLOUT, 0});
    }
    if (all_done) return Status::ok();
    HEDDLE_RETURN_IF_ERROR(connect_trouble());
    if (deadline.passed()) return missing_status(seconds);
    // A short sleep, since a full queue at a listener and a loss elsewhere wake nobody here.
    const int left = deadline.poll_ms();
    (void)::poll(waits.data(), waits.size(), left < 0 ? 20 : std::min(left, 20));
  }
}

Status ControlChannel::Impl::advance(Dial* dial) {
  const ControlAddress& address = peers_[dial->pe].address;
  int err = 0;
  if (dial->socket.valid()) {
    pollfd ready{dial->socket.get(), POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) return Status::ok();
    err = dial_outcome(dial->socket.get());
    if (err != 0) dial->socket.reset();
  } else if (dial->tcp && address.family == 0) {
    return error(Code::kNotSupported, "%s runs on another node and has no TCP socket to connect to",
                 who(dial->pe).c_str());
  } else {
    err = dial->tcp ? dial_tcp(address, address_.scope, &dial->socket) : dial_unix(address, &dial->socket);
    if (err == EINPROGRESS || err == EAGAIN) return Status::ok();
  }
  if (err == 0) return dialled(dial);
  if (!dial->tcp && err == ECONNREFUSED && address.family != 0) {
    // Abstract names belong to a network namespace: containers of one node can be in different ones.
    dial->tcp = true;
    return Status::ok();
  }
  if (err == ECONNREFUSED) {
    return error(Code::kPeerLost, "%s does not listen any more at %s: it has ended%s", who(dial->pe).c_str(),
                 dial->tcp ? address_text(address).c_str() : "its Unix socket",
                 dial->tcp ? "" : ", or is in another network namespace");
  }
  return error_errno(Code::kInternal, err, "cannot connect to %s at %s", who(dial->pe).c_str(),
                     dial->tcp ? address_text(address).c_str() : "its Unix socket");
}

Status ControlChannel::Impl::dialled(Dial* dial) {
  // The token is shown to our own user only: an ended peer's name could have been taken by somebody else.
  const int64_t uid = dial->tcp ? 0 : peer_uid(dial->socket.get());
  if (!dial->tcp && uid != static_cast<int64_t>(::geteuid())) {
    return error(Code::kPeerLost, "the Unix socket of %s is held by uid %lld, not by ours (%u): that PE has ended",
                 who(dial->pe).c_str(), static_cast<long long>(uid), ::geteuid());
  }
  dial->done = true;
  HelloBody hello;
  hello.token = token_;
  hello.pe = my_pe_;
  hello.n_pes = n_pes_;
  HEDDLE_RETURN_IF_ERROR(links_[dial->pe]->open(std::move(dial->socket), !dial->tcp));
  const Status sent = links_[dial->pe]->send(make_frame(FrameOp::kHello, 0, {{&hello, sizeof hello}}));
  // A peer that is gone by now is reported by the service thread, with its name.
  return sent.code() == Code::kPeerLost ? Status::ok() : sent;
}

// ---- waiting for the higher peers, and for everyone's welcome

Status ControlChannel::Impl::await_peers(Deadline deadline, double seconds) {
  auto next_probe = Clock::now() + kProbeInterval;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (loss_.pe >= 0) return Status(Code::kPeerLost, loss_.text);
    if (!connect_failure_.is_ok()) return connect_failure_;
    if (n_missing_ == 0) return Status::ok();
    if (deadline.passed()) break;
    changed_.wait_until(lock, std::min(deadline.at(), next_probe));
    if (Clock::now() < next_probe) continue;
    lock.unlock();
    HEDDLE_RETURN_IF_ERROR(probe_missing());
    next_probe = Clock::now() + kProbeInterval;
    lock.lock();
  }
  lock.unlock();
  return missing_status(seconds);
}

// A peer that ended before it called us closes nothing that we hold, but it listens no more.
Status ControlChannel::Impl::probe_missing() {
  std::vector<int> missing;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (int pe = my_pe_ + 1; pe < n_pes_; ++pe) {
      if (states_[pe] == PeerState::kMissing) missing.push_back(pe);
    }
  }
  if (missing.empty()) return Status::ok();
  // In a big job a few per turn, another few each time.
  const size_t turn = static_cast<size_t>(Clock::now().time_since_epoch() / kProbeInterval);
  const size_t first = missing.size() <= kProbesPerInterval ? 0 : turn * kProbesPerInterval % missing.size();
  const auto stop_at = Clock::now() + kProbeInterval;
  for (size_t i = 0; i < std::min(missing.size(), kProbesPerInterval) && Clock::now() < stop_at; ++i) {
    const int pe = missing[(first + i) % missing.size()];
    // Once connected a peer rightly stops listening, and it is marked connected before it can know.
    if (!is_refused(pe) || state_of(pe) != PeerState::kMissing) continue;
    return error(Code::kPeerLost, "%s ended before it connected to PE %d: it does not listen any more", who(pe).c_str(),
                 my_pe_);
  }
  return Status::ok();
}

bool ControlChannel::Impl::is_refused(int pe) {
  const ControlAddress& address = peers_[pe].address;
  OwnedFd socket;
  if (same_node(pe) && dial_unix(address, &socket) != ECONNREFUSED) return false;
  if (address.family == 0) return same_node(pe);
  int err = dial_tcp(address, address_.scope, &socket);
  if (err == EINPROGRESS) {
    pollfd ready{socket.get(), POLLOUT, 0};
    if (::poll(&ready, 1, 50) == 1) err = dial_outcome(socket.get());
  }
  return err == ECONNREFUSED;
}

// ---- admission, on the service thread

void ControlChannel::Impl::accept_strangers(bool is_unix) {
  while (true) {
    const OwnedFd& listener = is_unix ? unix_listener_ : tcp_listener_;
    if (!listener.valid()) return;
    if (strangers_.size() >= static_cast<size_t>(n_pes_) + kSpareStrangers) return watch_listeners(false);
    OwnedFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      const int err = errno;
      if (err == EINTR || err == ECONNABORTED) continue;
      if (err == EAGAIN) return;
      watch_listeners(false);
      return fail_connect(error_errno(Code::kInternal, err,
                                      "PE %d cannot accept a control connection; every PE needs about one descriptor "
                                      "per PE (ulimit -n)",
                                      my_pe_));
    }
    const uint32_t number = next_stranger_++;
    Stranger& stranger = strangers_[number];
    stranger.socket = std::move(socket);
    stranger.is_unix = is_unix;
    stranger.expires = Clock::now() + kHelloTime;
    const int64_t uid = is_unix ? peer_uid(stranger.socket.get()) : 0;
    if (is_unix && uid != static_cast<int64_t>(::geteuid())) {
      drop_stranger(number, format("it comes from uid %lld, not from ours", static_cast<long long>(uid)));
      continue;
    }
    if (!is_unix) tune_tcp(stranger.socket.get());
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = key(Source::kStranger, number);
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, stranger.socket.get(), &event) != 0) {
      drop_stranger(number, format("it cannot be watched: %s", std::strerror(errno)));
    }
  }
}

void ControlChannel::Impl::watch_listeners(bool on) {
  if (on == listeners_watched_) return;
  listeners_watched_ = on;
  for (const bool is_unix : {true, false}) {
    const OwnedFd& listener = is_unix ? unix_listener_ : tcp_listener_;
    if (!listener.valid()) continue;
    epoll_event event{};
    event.events = on ? static_cast<uint32_t>(EPOLLIN) : 0u;
    event.data.u64 = key(is_unix ? Source::kUnixListener : Source::kTcpListener, 0);
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener.get(), &event);  // cannot fail for a watched socket
  }
}

void ControlChannel::Impl::read_stranger(uint32_t number) {
  const auto found = strangers_.find(number);
  if (found == strangers_.end()) return;
  Stranger& stranger = found->second;
  // Never past the hello: what follows it is read by the link, once we know whose it is.
  const size_t goal = stranger.filled < sizeof(FrameHeader) ? sizeof(FrameHeader) : sizeof stranger.hello;
  const ssize_t got = ::recv(stranger.socket.get(), stranger.hello + stranger.filled, goal - stranger.filled, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    // One that says nothing at all is a peer that looks whether we live.
    return drop_stranger(number, stranger.filled == 0 ? "" : "it ended in the middle of its hello");
  }
  stranger.filled += static_cast<size_t>(got);
  if (stranger.filled < goal) return;
  int pe = -1;
  const Status verdict = judge_hello(stranger, &pe);
  if (!verdict.is_ok()) return drop_stranger(number, verdict.text());
  if (pe >= 0) return admit(number, pe);
  read_stranger(number);  // the header was good: go on with the body, at most once
}

// Judges the header as soon as it is there and the body when that is too: `*pe` is -1 until then.
Status ControlChannel::Impl::judge_hello(const Stranger& stranger, int* pe) {
  FrameHeader header;
  std::memcpy(&header, stranger.hello, sizeof header);
  HEDDLE_RETURN_IF_ERROR(check_header(header));
  if (header.op != static_cast<uint16_t>(FrameOp::kHello) || header.length != sizeof(HelloBody)) {
    return error(Code::kInvalidValue, "it begins with operation %u of %u bytes instead of a hello", header.op,
                 header.length);
  }
  if (stranger.filled < sizeof stranger.hello) return Status::ok();
  HelloBody hello;
  std::memcpy(&hello, stranger.hello + sizeof header, sizeof hello);
  if (!same_token(hello.token, token_)) return error(Code::kInvalidValue, "it does not hold this job's token");
  if (hello.n_pes != n_pes_ || hello.pe < 0 || hello.pe >= n_pes_) {
    return error(Code::kInvalidValue, "it says it is PE %d of %d, in a job of %d", hello.pe, hello.n_pes, n_pes_);
  }
  // The higher PE calls the lower one.
  if (hello.pe <= my_pe_ || state_of(hello.pe) != PeerState::kMissing) {
    return error(Code::kInvalidValue, "it says it is PE %d, which does not call PE %d or is connected already",
                 hello.pe, my_pe_);
  }
  *pe = hello.pe;
  return Status::ok();
}

void ControlChannel::Impl::drop_stranger(uint32_t number, const std::string& why) {
  if (!why.empty() && !stranger_warned_) {
    stranger_warned_ = true;
    log(LogLevel::kWarn, "dropped a control connection that is not of this job: %s; more of them are dropped silently",
        why.c_str());
  }
  strangers_.erase(number);  // closing removes it from epoll
  watch_listeners(true);
}

void ControlChannel::Impl::admit(uint32_t number, int pe) {
  Stranger stranger = std::move(strangers_[number]);
  strangers_.erase(number);
  watch_listeners(true);
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, stranger.socket.get(), nullptr);
  Status status = links_[pe]->open(std::move(stranger.socket), stranger.is_unix);
  const WelcomeBody welcome{my_pe_, n_pes_};
  if (status.is_ok()) {
    // Marked first, so that a peer that knows it is connected is known to be; counted after the welcome is on its way,
    // so that nothing else can come before it.
    set_state(pe, PeerState::kConnected);
    status = links_[pe]->send(make_frame(FrameOp::kWelcome, 0, {{&welcome, sizeof welcome}}));
    count_connected();
  }
  if (!status.is_ok() && status.code() != Code::kPeerLost) fail_connect(status);
}

void ControlChannel::Impl::expire_strangers() {
  const auto now = Clock::now();
  for (auto it = strangers_.begin(); it != strangers_.end();) {
    const auto& [number, stranger] = *it++;
    if (stranger.expires <= now) drop_stranger(number, "it did not say a whole hello within 5 s");
  }
}

void ControlChannel::Impl::count_connected() {
  bool last = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    last = n_missing_ == 1;
  }
  if (last) {
    // Everyone is here: nobody else has business with us. Done before connect() can return.
    strangers_.clear();
    unix_listener_.reset();
    tcp_listener_.reset();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  --n_missing_;
  changed_.notify_all();
}

void ControlChannel::Impl::fail_connect(Status status) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (connect_failure_.is_ok()) connect_failure_ = std::move(status);
  changed_.notify_all();
}

}  // namespace heddle
