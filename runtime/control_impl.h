// The inside of the control channel: who is connected, the service thread, and what it does with each frame.
// control_connect.cc holds listening, dialling and admission; control_service.cc the service thread; control.cc the
// rest.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/control.h"
#include "runtime/control_gather.h"
#include "runtime/control_link.h"

namespace heddle {

/// A handler that one thread calls and others replace.
template <typename... Arguments>
class Handler {
 public:
  using Function = std::function<void(Arguments...)>;

  /// Replaces the handler; returns when no call of the former is running, at once when called from inside that call.
  void set(Function function) {
    std::unique_lock<std::mutex> lock(mutex_);
    function_ = function ? std::make_shared<const Function>(std::move(function)) : nullptr;
    idle_.wait(lock, [this] { return caller_ == std::thread::id() || caller_ == std::this_thread::get_id(); });
  }

  /// Calls the handler; false when there is none, and then nothing was moved from the arguments.
  template <typename... Given>
  bool call(Given&&... given) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!function_) return false;
    const auto function = function_;
    caller_ = std::this_thread::get_id();
    lock.unlock();
    (*function)(std::forward<Given>(given)...);
    lock.lock();
    caller_ = std::thread::id();
    idle_.notify_all();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable idle_;
  std::shared_ptr<const Function> function_;
  std::thread::id caller_;
};

class ControlChannel::Impl {
 public:
  using Clock = std::chrono::steady_clock;

  class ChannelCourier;

  Impl(const Settings& settings, int my_pe, int n_pes);
  ~Impl() { stop(); }

  Status open(bool want_tcp);
  Status connect(const std::vector<ControlPeer>& peers, const JobToken& token, Deadline deadline);
  Status post(uint32_t lane, int pe, const void* message, size_t bytes, int fd);
  void receive(uint32_t lane, Courier::Receiver receiver);
  void on_loss(std::function<void(const PeerLoss&)> handler);
  void send_exit(int exit_code);
  void abandon_in_child();
  void leave();
  PeerLoss loss();

  const ControlAddress& address() const { return address_; }
  const std::atomic<uint32_t>& poison() const { return poison_; }
  bool usable() const { return n_pes_ == 1 || started_.load(std::memory_order_acquire); }  // pairs with start()
  Handler<int, int>& exit_handler() { return exit_handler_; }
  Gather& gather() { return gather_; }
  int my_pe() const { return my_pe_; }
  int n_pes() const { return n_pes_; }

 private:
  enum class PeerState { kMissing, kConnected, kLeft, kLost };

  /// An accepted connection that has not shown who it is.
  struct Stranger {
    OwnedFd socket;
    bool is_unix = false;
    Clock::time_point expires;
    size_t filled = 0;
    unsigned char hello[sizeof(FrameHeader) + sizeof(HelloBody)];
  };

  /// A connection that we are making.
  struct Dial {
    int pe = -1;
    bool tcp = false;
    OwnedFd socket;
    bool done = false;
  };

  struct Early {
    int pe;
    std::vector<unsigned char> message;
    OwnedFd fd;
  };

  // What epoll reports: a kind in the upper half, a PE or a stranger's number in the lower.
  enum class Source : uint32_t { kWake, kUnixListener, kTcpListener, kStranger, kPeer };
  static uint64_t key(Source source, uint32_t index) { return static_cast<uint64_t>(source) << 32 | index; }

  // ---- on the thread that calls connect()
  Status dial_lower_peers(Deadline deadline);
  Status advance(Dial* dial);
  Status dialled(Dial* dial);
  Status await_peers(Deadline deadline, double seconds);
  Status probe_missing();
  bool is_refused(int pe);
  bool same_node(int pe) const;
  Status connect_trouble();
  Status missing_status(double seconds);
  std::string who(int pe) const;

  // ---- service thread: strangers
  void accept_strangers(bool is_unix);
  void watch_listeners(bool on);
  void read_stranger(uint32_t number);
  Status judge_hello(const Stranger& stranger, int* pe);
  void drop_stranger(uint32_t number, const std::string& why);
  void admit(uint32_t number, int pe);
  void expire_strangers();
  void count_connected();
  void fail_connect(Status status);

  // ---- service thread: peers
  Status start();
  Status spawn();
  void stop();
  void wake();
  void serve();
  int wait_ms();
  void handle_event(uint64_t key, uint32_t events);
  void read_peer(int pe);
  Status handle_frame(int pe, Frame* frame);
  Status handle_welcome(int pe, const Frame& frame);
  Status handle_gathered(int pe, const Frame& frame);
  Status handle_courier(int pe, Frame* frame);
  void deliver_early();
  void handle_bye(int pe, const Frame& frame);
  void handle_exit(int pe, int exit_code);
  void pass_exit(int exit_code);
  void handle_end(int pe, const std::string& failure);
  void lose(int pe, const std::string& text);
  void report_loss();
  PeerState state_of(int pe);
  void set_state(int pe, PeerState state);
  void await_parting(Clock::time_point until);

  const Settings settings_;
  const int my_pe_;
  const int n_pes_;
  ControlAddress address_;
  std::vector<ControlPeer> peers_;
  JobToken token_;
  OwnedFd unix_listener_, tcp_listener_;  // of the service thread once it runs
  OwnedFd epoll_, wake_;
  std::vector<std::unique_ptr<Link>> links_;  // per PE, null for our own; fixed before the service thread starts
  Gather gather_;

  pthread_t thread_{};
  std::atomic<std::thread::id> service_id_{};
  std::atomic<bool> started_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<bool> exiting_{false};  // this PE has called nvshmem_global_exit
  std::atomic<uint32_t> poison_{0};

  Handler<int, const unsigned char*, size_t, OwnedFd> receivers_[kCourierLanes];
  Handler<const PeerLoss&> loss_handler_;
  Handler<int, int> exit_handler_;

  std::mutex mutex_;  // guards the five below; no other lock but a link's is taken under it
  std::condition_variable changed_;
  std::vector<PeerState> states_;
  int n_missing_ = 0;
  Status connect_failure_;
  PeerLoss loss_;

  // Of the service thread alone.
  std::map<uint32_t, Stranger> strangers_;
  uint32_t next_stranger_ = 0;
  bool listeners_watched_ = true;
  bool stranger_warned_ = false;
  bool loss_unreported_ = false;
  std::vector<unsigned char> scratch_;
  std::deque<Early> early_[kCourierLanes];
  size_t early_bytes_ = 0;
};

}  // namespace heddle
