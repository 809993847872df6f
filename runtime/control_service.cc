// The service thread of the control channel: it owns all reading, sends what had to be queued, and notices who is gone.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "runtime/control_impl.h"
#include "runtime/log.h"

namespace heddle {
namespace {

// The executable's thread-local variables live on this stack too, and the CUDA driver maps memory on it.
constexpr size_t kStackBytes = 1u << 20;
constexpr size_t kScratchBytes = 64u << 10;
constexpr size_t kEarlyLimit = 16u << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSmallStack = false;
#else
constexpr bool kSmallStack = true;
#endif

}  // namespace

Status ControlChannel::Impl::start() {
  epoll_ = OwnedFd(epoll_create1(EPOLL_CLOEXEC));
  wake_ = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !wake_.valid()) {
    return error_errno(Code::kInternal, errno, "cannot make the control channel's epoll and event descriptors");
  }
  const auto watch = [this](const OwnedFd& fd, Source source) {
    if (!fd.valid()) return Status::ok();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = key(source, 0);
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0) return Status::ok();
    return error_errno(Code::kInternal, errno, "cannot watch a descriptor of the control channel");
  };
  HEDDLE_RETURN_IF_ERROR(watch(wake_, Source::kWake));
  HEDDLE_RETURN_IF_ERROR(watch(unix_listener_, Source::kUnixListener));
  HEDDLE_RETURN_IF_ERROR(watch(tcp_listener_, Source::kTcpListener));
  links_.resize(n_pes_);
  for (int pe = 0; pe < n_pes_; ++pe) {
    if (pe != my_pe_) links_[pe] = std::make_unique<Link>(pe, epoll_.get(), key(Source::kPeer, pe));
  }
  states_.assign(n_pes_, PeerState::kMissing);
  n_missing_ = n_pes_ - 1;
  scratch_.resize(kScratchBytes);
  return spawn();
}

Status ControlChannel::Impl::spawn() {
  // The program's signals are its own threads' business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (kSmallStack) (void)pthread_attr_setstacksize(&attributes, kStackBytes);
  const auto body = [](void* self) -> void* {
    static_cast<Impl*>(self)->serve();
    return nullptr;
  };
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int err = pthread_create(&thread_, &attributes, body, this);
  // Refused when the program's thread-local variables leave too little of a small stack.
  if (err == EINVAL) err = pthread_create(&thread_, nullptr, body, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (err != 0) return error_errno(Code::kInternal, err, "cannot start the control channel's thread");
  started_.store(true, std::memory_order_release);  // after links_ is complete, for whoever sees it
  return Status::ok();
}

void ControlChannel::Impl::stop() {
  if (!started_.load(std::memory_order_relaxed)) return;  // relaxed: the owner's thread wrote it
  stopping_.store(true, std::memory_order_release);       // read by the service thread after the wake
  wake();
  pthread_join(thread_, nullptr);
  started_.store(false, std::memory_order_release);
  const Status closed = error(Code::kNotInitialized, "the control channel of PE %d is closed", my_pe_);
  for (const auto& link : links_) {
    if (link) link->close(closed);
  }
  strangers_.clear();
  for (auto& kept : early_) kept.clear();
  unix_listener_.reset();
  tcp_listener_.reset();
}

void ControlChannel::Impl::wake() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);  // a full counter wakes as well
}

void ControlChannel::Impl::serve() {
  pthread_setname_np(pthread_self(), "heddle-control");
  service_id_.store(std::this_thread::get_id(), std::memory_order_relaxed);  // compared by this thread alone
  epoll_event events[32];
  while (!stopping_.load(std::memory_order_acquire)) {
    const int count = epoll_wait(epoll_.get(), events, 32, wait_ms());
    for (int i = 0; i < count && !stopping_.load(std::memory_order_acquire); ++i) {
      handle_event(events[i].data.u64, events[i].events);
    }
    expire_strangers();
    if (my_pe_ == 0) gather_.expire();
  }
}

int ControlChannel::Impl::wait_ms() {
  auto until = my_pe_ == 0 ? gather_.next_expiry() : Clock::time_point::max();
  for (const auto& [number, stranger] : strangers_) until = std::min(until, stranger.expires);
  if (until == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
}

void ControlChannel::Impl::handle_event(uint64_t key, uint32_t events) {
  const auto index = static_cast<uint32_t>(key);
  switch (static_cast<Source>(key >> 32)) {
    case Source::kWake: {
      uint64_t count = 0;
      (void)!::read(wake_.get(), &count, sizeof count);
      deliver_early();
      report_loss();
      return;
    }
    case Source::kUnixListener:
    case Source::kTcpListener:
      return accept_strangers(static_cast<Source>(key >> 32) == Source::kUnixListener);
    case Source::kStranger:
      return read_stranger(index);
    case Source::kPeer: {
      const int pe = static_cast<int>(index);
      if ((events & EPOLLOUT) && links_[pe]->flush()) {
        std::lock_guard<std::mutex> lock(mutex_);
        changed_.notify_all();
      }
      if (events & ~static_cast<uint32_t>(EPOLLOUT)) read_peer(pe);
      return;
    }
  }
}

void ControlChannel::Impl::read_peer(int pe) {
  std::string failure;
  switch (links_[pe]->receive(&scratch_, &failure)) {
    case Link::Input::kNothing:
      return;
    case Link::Input::kEnd:
    case Link::Input::kFailed:
      return handle_end(pe, failure);
    case Link::Input::kUnusable:
      return lose(pe, format("%s is cut off from PE %d: %s", who(pe).c_str(), my_pe_, failure.c_str()));
    case Link::Input::kData:
      break;
  }
  while (links_[pe]->is_open()) {
    Frame frame;
    bool got = false;
    Status status = links_[pe]->reader().next(&frame, &got);
    if (status.is_ok() && !got) return;
    if (status.is_ok()) status = handle_frame(pe, &frame);
    if (!status.is_ok()) {
      return lose(pe, format("%s broke the control channel's rules and is cut off: %s", who(pe).c_str(),
                             status.text().c_str()));
    }
  }
}

Status ControlChannel::Impl::handle_frame(int pe, Frame* frame) {
  const PeerState state = state_of(pe);
  if (state == PeerState::kMissing) return handle_welcome(pe, *frame);
  if (state == PeerState::kLeft) return Status::ok();
  switch (frame->op) {
    case FrameOp::kHello:
    case FrameOp::kWelcome:
      break;
    case FrameOp::kCourier:
      return handle_courier(pe, frame);
    case FrameOp::kGather:
      return gather_.on_gather(pe, frame->sequence, frame->body, frame->bytes);
    case FrameOp::kGathered:
      return handle_gathered(pe, *frame);
    case FrameOp::kBye:
      handle_bye(pe, *frame);
      return Status::ok();
    case FrameOp::kExit: {
      ExitBody body;
      if (frame->bytes != sizeof body) break;
      std::memcpy(&body, frame->body, sizeof body);
      handle_exit(pe, body.exit_code);
      return Status::ok();
    }
  }
  return error(Code::kInvalidValue, "frame operation %u of %zu bytes out of place", static_cast<unsigned>(frame->op),
               frame->bytes);
}

Status ControlChannel::Impl::handle_welcome(int pe, const Frame& frame) {
  WelcomeBody welcome;
  if (frame.op != FrameOp::kWelcome || frame.bytes != sizeof welcome) {
    return error(Code::kInvalidValue, "frame operation %u of %zu bytes instead of a welcome",
                 static_cast<unsigned>(frame.op), frame.bytes);
  }
  std::memcpy(&welcome, frame.body, sizeof welcome);
  if (welcome.pe != pe || welcome.n_pes != n_pes_) {
    return error(Code::kInvalidValue, "it answers as PE %d of %d, where PE %d of %d was called", welcome.pe,
                 welcome.n_pes, pe, n_pes_);
  }
  set_state(pe, PeerState::kConnected);
  count_connected();
  return Status::ok();
}

Status ControlChannel::Impl::handle_gathered(int pe, const Frame& frame) {
  // A loss that PE 0 saw first is one here too, before the waiter returns: who gets kPeerLost finds the poison word
  // set.
  const int lost = Gather::lost_pe_in(frame.body, frame.bytes);
  if (pe == 0 && lost > 0 && lost < n_pes_ && lost != my_pe_ && state_of(lost) != PeerState::kLost) {
    lose(lost, std::string(reinterpret_cast<const char*>(frame.body) + sizeof(GatheredBody),
                           frame.bytes - sizeof(GatheredBody)));
  }
  return gather_.on_gathered(pe, frame.sequence, frame.body, frame.bytes);
}

Status ControlChannel::Impl::handle_courier(int pe, Frame* frame) {
  if (frame->bytes > Gather::kMaxBytes) {
    return error(Code::kInvalidValue, "a message of %zu bytes, more than 4096", frame->bytes);
  }
  const uint32_t lane = frame->sequence;
  if (lane >= kCourierLanes) return error(Code::kInvalidValue, "a message for lane %u of %u", lane, kCourierLanes);
  // Behind kept messages it queues: the wake that comes with a receiver delivers them all.
  if (early_[lane].empty() && receivers_[lane].call(pe, frame->body, frame->bytes, std::move(frame->fd)))
    return Status::ok();
  early_bytes_ += sizeof(Early) + frame->bytes;
  if (early_bytes_ > kEarlyLimit) {
    return error(Code::kOutOfMemory, "more than %zu bytes of messages before there was a receiver", kEarlyLimit);
  }
  early_[lane].push_back({pe, {frame->body, frame->body + frame->bytes}, std::move(frame->fd)});
  return Status::ok();
}

void ControlChannel::Impl::deliver_early() {
  for (uint32_t lane = 0; lane < kCourierLanes; ++lane) {
    std::deque<Early>& kept = early_[lane];
    while (!kept.empty()) {
      Early& first = kept.front();
      if (!receivers_[lane].call(first.pe, first.message.data(), first.message.size(), std::move(first.fd))) break;
      early_bytes_ -= sizeof(Early) + first.message.size();
      kept.pop_front();
    }
  }
}

void ControlChannel::Impl::handle_bye(int pe, const Frame& frame) {
  if (ByeBody body; frame.bytes > sizeof body) {
    std::memcpy(&body, frame.body, sizeof body);
    const int lost = body.lost_pe;
    if (lost >= 0 && lost < n_pes_ && lost != my_pe_ && lost != pe && state_of(lost) != PeerState::kLost) {
      const size_t bytes = std::min(frame.bytes - sizeof body, kMostLossText);
      lose(lost, std::string(reinterpret_cast<const char*>(frame.body) + sizeof body, bytes));
    }
  }
  links_[pe]->refuse(error(Code::kPeerLost, "PE %d has left (nvshmem_finalize)", pe));
  gather_.on_left(pe);
  set_state(pe, PeerState::kLeft);
}

void ControlChannel::Impl::handle_exit(int pe, int exit_code) {
  if (exiting_.load(std::memory_order_acquire) || exit_handler_.call(pe, exit_code)) return;
  log(LogLevel::kInfo, "PE %d called nvshmem_global_exit(%d)", pe, exit_code);
  pass_exit(exit_code);  // each peer hears of it before it can take our end for a loss
  // What the program has printed is not lost, unless a thread of its is in the middle of printing.
  if (ftrylockfile(stdout) == 0) {
    (void)std::fflush(stdout);
    funlockfile(stdout);
  }
  if (exit_code == 0) {
    // A launcher takes an end without farewell for a failure. It has a second to answer.
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      ::_exit(0);
    }).detach();
    end_launcher_session();
  }
  ::_exit(exit_code);  // not exit(): the program's own threads are in the middle of something
}

void ControlChannel::Impl::handle_end(int pe, const std::string& failure) {
  const PeerState state = state_of(pe);
  const std::string cause = failure.empty() ? "" : format(" (%s)", failure.c_str());
  if (state == PeerState::kLeft) return links_[pe]->close(Status());
  if (state == PeerState::kMissing) {
    return lose(pe, format("%s closed the control connection before it answered%s: it has ended, or belongs to another "
                           "job",
                           who(pe).c_str(), cause.c_str()));
  }
  lose(pe, format("%s ended without nvshmem_finalize%s", who(pe).c_str(), cause.c_str()));
}

void ControlChannel::Impl::lose(int pe, const std::string& text) {
  const Status cause(Code::kPeerLost, text);
  links_[pe]->close(cause);
  if (leaving_.load(std::memory_order_acquire)) return set_state(pe, PeerState::kLost);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    states_[pe] = PeerState::kLost;
    if (loss_.pe < 0) {
      loss_ = {pe, text};
      loss_unreported_ = true;
      // Release, so that whoever polls the word and sees it also sees what led to it.
      poison_.store(static_cast<uint32_t>(pe) + 1, std::memory_order_release);
    }
    changed_.notify_all();
  }
  gather_.on_lost(pe, cause);
  report_loss();
}

void ControlChannel::Impl::report_loss() {
  if (!loss_unreported_ || leaving_.load(std::memory_order_acquire)) return;
  if (loss_handler_.call(loss())) loss_unreported_ = false;
}

ControlChannel::Impl::PeerState ControlChannel::Impl::state_of(int pe) {
  std::lock_guard<std::mutex> lock(mutex_);
  return states_[pe];
}

void ControlChannel::Impl::set_state(int pe, PeerState state) {
  std::lock_guard<std::mutex> lock(mutex_);
  states_[pe] = state;
  changed_.notify_all();
}

}  // namespace heddle
