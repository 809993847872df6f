#include "runtime/control.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/control_impl.h"
#include "runtime/log.h"
#include "runtime/sockets.h"

namespace heddle {
namespace {

constexpr auto kPartingTime = std::chrono::seconds(1);
constexpr auto kExitTime = std::chrono::milliseconds(500);
constexpr size_t kCauseBytes = 1024;  // of a failure's text, as far as agree() carries it

}  // namespace

Status make_job_token(JobToken* token) { return random_bytes(token->bytes, sizeof token->bytes); }

// ---- the inside, as far as users' threads call it

ControlChannel::Impl::Impl(const Settings& settings, int my_pe, int n_pes)
    : settings_(settings),
      my_pe_(my_pe),
      n_pes_(n_pes),
      gather_(my_pe, n_pes, [this](int pe, Blob frames) { return links_[pe]->send(std::move(frames)); }) {}

Status ControlChannel::Impl::post(uint32_t lane, int pe, const void* message, size_t bytes, int fd) {
  if (pe < 0 || pe >= n_pes_ || pe == my_pe_ || bytes > Gather::kMaxBytes) {
    return error(Code::kInvalidValue, "PE %d cannot send a message of %zu bytes to PE %d of %d; the limit is %zu bytes",
                 my_pe_, bytes, pe, n_pes_, Gather::kMaxBytes);
  }
  if (!usable()) return error(Code::kNotInitialized, "the control channel of PE %d is not connected", my_pe_);
  return links_[pe]->send(make_frame(FrameOp::kCourier, lane, {{message, bytes}}, fd >= 0), fd);
}

void ControlChannel::Impl::receive(uint32_t lane, Courier::Receiver receiver) {
  const bool any = receiver != nullptr;
  receivers_[lane].set(std::move(receiver));
  if (any && usable() && n_pes_ > 1) wake();
}

void ControlChannel::Impl::on_loss(std::function<void(const PeerLoss&)> handler) {
  const bool any = handler != nullptr;
  loss_handler_.set(std::move(handler));
  if (any && usable() && n_pes_ > 1) wake();
}

PeerLoss ControlChannel::Impl::loss() {
  std::lock_guard<std::mutex> lock(mutex_);
  return loss_;
}

void ControlChannel::Impl::send_exit(int exit_code) {
  if (n_pes_ == 1 || !usable()) return;
  exiting_.store(true, std::memory_order_release);  // both before the peers can know: their ends are no losses, and
  leaving_.store(true, std::memory_order_release);  // the word that they pass on is not for us
  pass_exit(exit_code);
  // A launcher that is told next may kill them before they have written what they had printed.
  await_parting(Clock::now() + kExitTime);
}

void ControlChannel::Impl::pass_exit(int exit_code) {
  const ExitBody body{exit_code};
  const Blob frame = make_frame(FrameOp::kExit, 0, {{&body, sizeof body}});
  for (const auto& link : links_) {
    if (link) (void)link->send(frame);  // a peer that is gone needs no word
  }
}

void ControlChannel::Impl::abandon_in_child() {
  for (const auto& link : links_) {
    if (link) link->abandon_in_child();
  }
}

void ControlChannel::Impl::leave() {
  if (n_pes_ == 1 || !usable()) return;
  leaving_.store(true, std::memory_order_release);  // before the peers can know, so that their ends are no losses
  // A loss that made this PE leave is the cause that the others, who may not know yet, are to give.
  const PeerLoss known = loss();
  const ByeBody body{known.pe};
  const std::string text = known.text.substr(0, kMostLossText);
  const Blob frame = known.pe < 0 ? make_frame(FrameOp::kBye, 0, {})
                                  : make_frame(FrameOp::kBye, 0, {{&body, sizeof body}, {text.data(), text.size()}});
  for (const auto& link : links_) {
    if (link) (void)link->send(frame);  // a peer that is gone needs no word
  }
  await_parting(Clock::now() + kPartingTime);
  stop();
}

void ControlChannel::Impl::await_parting(Clock::time_point until) {
  // The service thread is the one that would do what is waited for.
  if (service_id_.load(std::memory_order_relaxed) == std::this_thread::get_id())
    return;  // relaxed: only it stores that
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, until, [&] {
    for (int pe = 0; pe < n_pes_; ++pe) {
      if (!links_[pe]) continue;
      if (!links_[pe]->idle() || states_[pe] == PeerState::kConnected) return false;
    }
    return true;
  });
}

// ---- the courier

class ControlChannel::Impl::ChannelCourier : public Courier {
 public:
  ChannelCourier(Impl* channel, uint32_t lane) : channel_(channel), lane_(lane) {}
  ~ChannelCourier() override { channel_->receive(lane_, nullptr); }
  int my_pe() const override { return channel_->my_pe(); }
  Status post(int pe, const void* message, size_t bytes, int fd) override {
    return channel_->post(lane_, pe, message, bytes, fd);
  }
  void receive(Receiver receiver) override { channel_->receive(lane_, std::move(receiver)); }

 private:
  Impl* const channel_;
  const uint32_t lane_;
};

// ---- the interface

ControlChannel::ControlChannel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ControlChannel::~ControlChannel() = default;

Status ControlChannel::open(const Settings& settings, int my_pe, int n_pes, bool want_tcp,
                            std::unique_ptr<ControlChannel>* channel) {
  if (n_pes < 1 || my_pe < 0 || my_pe >= n_pes) {
    return error(Code::kInvalidValue, "PE %d of %d is not possible", my_pe, n_pes);
  }
  auto impl = std::make_unique<Impl>(settings, my_pe, n_pes);
  HEDDLE_RETURN_IF_ERROR(impl->open(want_tcp));
  channel->reset(new ControlChannel(std::move(impl)));
  return Status::ok();
}

ControlAddress ControlChannel::address() const { return impl_->address(); }

Status ControlChannel::connect(const std::vector<ControlPeer>& peers, const JobToken& token, Deadline deadline) {
  return impl_->connect(peers, token, deadline);
}

std::unique_ptr<Courier> ControlChannel::make_courier(uint32_t lane) {
  return std::make_unique<Impl::ChannelCourier>(impl_.get(), lane);
}

Status ControlChannel::allgather(const std::string& tag, const void* mine, size_t bytes, void* all, Deadline deadline) {
  if (!impl_->usable()) {
    return error(Code::kNotInitialized, "%s: the control channel is not connected", tag.c_str());
  }
  return impl_->gather().run(tag, mine, bytes, all, deadline);
}

Status ControlChannel::agree(const std::string& tag, const Status& mine, Deadline deadline) {
  // The codes first, since mostly all are well; the texts only when somebody failed, which all know then.
  std::vector<int32_t> codes(impl_->n_pes());
  const auto my_code = static_cast<int32_t>(mine.code());
  Status status = allgather(tag, &my_code, sizeof my_code, codes.data(), deadline);
  const auto failed = std::find_if(codes.begin(), codes.end(), [](int32_t code) { return code != 0; });
  if (status.is_ok() && failed == codes.end()) return status;
  std::vector<char> texts(kCauseBytes * codes.size());
  if (status.is_ok()) {
    char text[kCauseBytes] = {};
    std::memcpy(text, mine.text().data(), std::min(mine.text().size(), kCauseBytes - 1));
    status = allgather(tag + " (cause of failure)", text, sizeof text, texts.data(), deadline);
  }
  if (!status.is_ok()) {
    if (mine.is_ok()) return status;
    return Status(status.code(), status.text() + "; before that, here: " + mine.text());
  }
  const auto pe = static_cast<int>(failed - codes.begin());
  return error(static_cast<Code>(*failed), "PE %d: %s", pe, texts.data() + pe * kCauseBytes);
}

const std::atomic<uint32_t>& ControlChannel::poison() const { return impl_->poison(); }
void ControlChannel::abandon_in_child() { impl_->abandon_in_child(); }
PeerLoss ControlChannel::loss() const { return impl_->loss(); }
void ControlChannel::on_loss(std::function<void(const PeerLoss&)> handler) { impl_->on_loss(std::move(handler)); }
void ControlChannel::send_exit(int exit_code) { impl_->send_exit(exit_code); }
void ControlChannel::on_exit(std::function<void(int pe, int exit_code)> handler) {
  impl_->exit_handler().set(std::move(handler));
}
void ControlChannel::leave() { impl_->leave(); }

}  // namespace heddle
