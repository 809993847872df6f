// The bootstrap by unique id: makes ids, and is a rank's side of the rendezvous.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "bootstrap/bootstrap.h"
#include "bootstrap/rendezvous.h"
#include "runtime/sockets.h"

namespace heddle {
namespace {

constexpr size_t kMaxGathered = 256u << 20;  // bytes of all ranks together in one exchange
constexpr double kVerdictSeconds = 3;  // how long after our deadline the rendezvous may take to say who is missing

/// The running kernel's boot id, zero when it cannot be read.
void read_boot_id(unsigned char (&id)[16]) {
  std::memset(id, 0, sizeof id);
  const OwnedFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[64] = {};
  if (!file.valid() || ::read(file.get(), text, sizeof text - 1) <= 0) return;
  size_t digits = 0;
  for (const char* at = text; *at && digits < 32; ++at) {
    const char* hex = "0123456789abcdef";
    const char* digit = std::strchr(hex, *at);
    if (!digit) continue;  // the dashes
    id[digits / 2] = static_cast<unsigned char>(id[digits / 2] << 4 | (digit - hex));
    ++digits;
  }
}

int64_t wait_ms(Deadline deadline) { return deadline.is_none() ? -1 : deadline.poll_ms(); }

/// A moment later than `deadline`, for the rendezvous' word on it.
Deadline with_grace(Deadline deadline) {
  return deadline.is_none() ? deadline : Deadline::in(deadline.poll_ms() / 1000.0 + kVerdictSeconds);
}

Status read_id(const nvshmemx_uniqueid_t& id, UniqueIdContent* content) {
  const char* remedy = "fill it by nvshmemx_get_uniqueid in one process and hand all of its 128 bytes to the others";
  std::memcpy(content, id.internal, sizeof *content);
  const bool zeros = std::all_of(std::begin(id.internal), std::end(id.internal), [](char byte) { return byte == 0; });
  if (zeros) return error(Code::kInvalidValue, "the unique id is empty: %s", remedy);
  if (id.version != NVSHMEMX_UNIQUEID_VERSION) {
    return error(Code::kInvalidValue, "the unique id has version %#x, not %#x: %s", static_cast<unsigned>(id.version),
                 static_cast<unsigned>(NVSHMEMX_UNIQUEID_VERSION), remedy);
  }
  const bool rest_is_zero =
      std::all_of(id.internal + sizeof *content, std::end(id.internal), [](char b) { return b == 0; });
  if (content->magic != UniqueIdContent::kMagic || !rest_is_zero || content->port == 0 ||
      (content->family != AF_INET && content->family != AF_INET6)) {
    return error(Code::kInvalidValue, "the unique id was not made by this library or was damaged on its way: %s",
                 remedy);
  }
  return Status::ok();
}

class UidBootstrap : public Bootstrap {
 public:
  UidBootstrap(int rank, int size) : rank_(rank), size_(size) {}
  ~UidBootstrap() override { leave(); }

  /// Connects, shows the secret, joins and waits for the others.
  Status join(const UniqueIdContent& id, Deadline deadline) {
    HEDDLE_RETURN_IF_ERROR(dial(id, deadline));
    HEDDLE_RETURN_IF_ERROR(send_bytes(id.secret, sizeof id.secret, deadline));
    JoinMessage message;
    message.rank = rank_;
    message.size = size_;
    message.wait_ms = wait_ms(deadline);
    read_boot_id(message.boot_id);
    HEDDLE_RETURN_IF_ERROR(send_frame(RendezvousOp::kJoin, &message, sizeof message, nullptr, 0, deadline));
    // The size was not judged by the rendezvous yet, but no more than this is ever read.
    nodes_.resize(static_cast<size_t>(std::clamp(size_, 1, kMaxRendezvousRanks)));
    return receive(RendezvousOp::kWelcome, nodes_.data(), nodes_.size() * sizeof(int32_t), deadline);
  }

  const char* name() const override { return "uid"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int node_of(int rank) const override { return rank >= 0 && rank < size_ ? nodes_[static_cast<size_t>(rank)] : -1; }

  Status allgather(const void* mine, size_t bytes, void* all, Deadline deadline) override {
    HEDDLE_RETURN_IF_ERROR(broken_);
    if (bytes > kMaxRendezvousRecord || bytes > kMaxGathered / static_cast<size_t>(size_)) {
      return error(Code::kInvalidValue,
                   "cannot gather %zu bytes from each of %d ranks: the limits are %zu and %zu in all", bytes, size_,
                   kMaxRendezvousRecord, kMaxGathered);
    }
    ++sequence_;
    GatherMessage message;
    message.wait_ms = wait_ms(deadline);
    message.bytes = bytes;
    Status status = send_frame(RendezvousOp::kGather, &message, sizeof message, mine, bytes, deadline);
    // What went wrong is better told by the rendezvous, if it has said so before it closed.
    Status answer = receive(RendezvousOp::kGathered, all, bytes * static_cast<size_t>(size_), deadline);
    broken_ = answer;
    return status.is_ok() || !answer.is_ok() ? answer : status;
  }

  Status barrier(Deadline deadline) override { return allgather(nullptr, 0, nullptr, deadline); }

  void abort(int exit_code, const std::string& reason) override {
    std::string text = format("exit code %d, %s", exit_code, reason.c_str());
    text.resize(std::min(text.size(), kMaxRendezvousText));
    const Status ignored = send_frame(RendezvousOp::kAbort, text.data(), text.size(), nullptr, 0, Deadline::in(1));
    (void)ignored;  // nobody is left to tell
    broken_ = error(Code::kPeerLost, "rank %d has ended the job: %s", rank_, text.c_str());
  }

 private:
  Status dial(const UniqueIdContent& id, Deadline deadline) {
    ControlAddress address;
    address.family = id.family;
    address.port = id.port;
    address.scope = id.scope;
    std::memcpy(address.ip, id.ip, sizeof address.ip);
    where_ = address_text(address);
    const char* remedy =
        "is the process that made the unique id still alive, was the id used before (it serves one job), and is the "
        "address reachable from here (NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME chooses another interface)?";
    int err = dial_tcp(address, 0, &socket_);
    if (err == EINPROGRESS) {
      if (!wait_for(POLLOUT, deadline)) {
        return error(Code::kTimeout, "rank %d: no connection to the rendezvous at %s in time: %s", rank_,
                     where_.c_str(), remedy);
      }
      err = dial_outcome(socket_.get());
    }
    if (err == 0) return Status::ok();
    socket_.reset();
    return error_errno(Code::kPeerLost, err, "rank %d: cannot connect to the rendezvous at %s: %s", rank_,
                       where_.c_str(), remedy);
  }

  /// False when the deadline passed first.
  bool wait_for(short events, Deadline deadline) const {
    pollfd polled = {socket_.get(), events, 0};
    for (;;) {
      const int count = ::poll(&polled, 1, deadline.poll_ms());
      if (count > 0) return true;
      if (count == 0 && deadline.passed()) return false;
    }
  }

  Status lost(int err) const {
    const std::string cause = err == 0 ? "end of file" : std::strerror(err);
    return error(Code::kPeerLost,
                 "rank %d: the rendezvous at %s closed the connection (%s): the process that serves the unique id has "
                 "ended, or the id was used before (it serves one job)",
                 rank_, where_.c_str(), cause.c_str());
  }

  Status late(const char* what) const {
    return error(Code::kTimeout,
                 "rank %d: the rendezvous at %s does not %s: does the process that made the unique id run?", rank_,
                 where_.c_str(), what);
  }

  Status send_bytes(const void* bytes, size_t count, Deadline deadline) {
    const char* at = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t put = ::send(socket_.get(), at, count, MSG_NOSIGNAL);
      if (put >= 0) {
        at += put;
        count -= static_cast<size_t>(put);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!wait_for(POLLOUT, deadline)) return late("take what is sent");
      } else if (errno != EINTR) {
        return lost(errno);
      }
    }
    return Status::ok();
  }

  Status receive_bytes(void* bytes, size_t count, Deadline deadline) {
    char* at = static_cast<char*>(bytes);
    while (count > 0) {
      const ssize_t got = ::recv(socket_.get(), at, count, 0);
      if (got > 0) {
        at += got;
        count -= static_cast<size_t>(got);
      } else if (got == 0) {
        return lost(0);
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        if (!wait_for(POLLIN, deadline)) return late("answer");
      } else if (errno != EINTR) {
        return lost(errno);
      }
    }
    return Status::ok();
  }

  Status send_frame(RendezvousOp op, const void* head, size_t head_bytes, const void* tail, size_t tail_bytes,
                    Deadline deadline) {
    RendezvousHeader header;
    header.op = static_cast<uint16_t>(op);
    header.length = static_cast<uint32_t>(head_bytes + tail_bytes);
    header.sequence = sequence_;
    std::string frame(reinterpret_cast<const char*>(&header), sizeof header);
    if (head_bytes > 0) frame.append(static_cast<const char*>(head), head_bytes);
    if (tail_bytes > 0) frame.append(static_cast<const char*>(tail), tail_bytes);
    return send_bytes(frame.data(), frame.size(), deadline);
  }

  /// Waits for a message of exactly `bytes` bytes, or for the rendezvous' word on why it does not come.
  Status receive(RendezvousOp wanted, void* body, size_t bytes, Deadline deadline) {
    const Deadline last = with_grace(deadline);
    RendezvousHeader header;
    HEDDLE_RETURN_IF_ERROR(receive_bytes(&header, sizeof header, last));
    const auto op = static_cast<RendezvousOp>(header.op);
    if (header.magic == RendezvousHeader::kMagic && op == RendezvousOp::kFailed && header.length >= sizeof(int32_t) &&
        header.length <= sizeof(int32_t) + kMaxRendezvousText) {
      int32_t code = 0;
      std::string text(header.length - sizeof code, '\0');
      HEDDLE_RETURN_IF_ERROR(receive_bytes(&code, sizeof code, last));
      HEDDLE_RETURN_IF_ERROR(receive_bytes(text.data(), text.size(), last));
      return {code == 0 ? Code::kInternal : static_cast<Code>(code), text};
    }
    if (header.magic != RendezvousHeader::kMagic || op != wanted || header.length != bytes ||
        (wanted == RendezvousOp::kGathered && header.sequence != sequence_)) {
      return error(
          Code::kInternal,
          "rank %d: broken message from the rendezvous at %s: magic %08x, operation %u, %u bytes of exchange %u, "
          "where operation %u with %zu bytes of exchange %u was due",
          rank_, where_.c_str(), header.magic, header.op, header.length, header.sequence, static_cast<unsigned>(wanted),
          bytes, sequence_);
    }
    return receive_bytes(body, bytes, last);
  }

  /// Says bye and waits for the answer: the rendezvous may live in this process, which may be about to end, and others
  /// may still have to be sent their bytes.
  void leave() {
    if (!socket_.valid()) return;
    const Deadline deadline = Deadline::in(1);
    if (!send_frame(RendezvousOp::kBye, nullptr, 0, nullptr, 0, deadline).is_ok()) return;
    char ignored[4096];
    while (wait_for(POLLIN, deadline)) {
      const ssize_t got = ::recv(socket_.get(), ignored, sizeof ignored, 0);
      if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return;
      // Failures told before may still be in the way, so the answer is what ends what we got.
      RendezvousHeader header;
      if (got < static_cast<ssize_t>(sizeof header)) continue;
      std::memcpy(&header, ignored + got - sizeof header, sizeof header);
      if (header.magic == RendezvousHeader::kMagic && header.op == static_cast<uint16_t>(RendezvousOp::kBye)) return;
    }
  }

  int rank_, size_;
  OwnedFd socket_;
  std::string where_;
  std::vector<int32_t> nodes_;
  uint32_t sequence_ = 0;
  Status broken_;  // the first failure; the ranks are out of step after it
};

}  // namespace

Status create_unique_id(const Settings& settings, nvshmemx_uniqueid_t* id) {
  UniqueIdContent content;
  HEDDLE_RETURN_IF_ERROR(random_bytes(content.secret, sizeof content.secret));
  ControlAddress address;
  OwnedFd listener;
  HEDDLE_RETURN_IF_ERROR(listen_for_rendezvous(settings, &address, &listener));
  content.family = address.family;
  content.port = address.port;
  content.scope = address.scope;
  std::memcpy(content.ip, address.ip, sizeof content.ip);
  HEDDLE_RETURN_IF_ERROR(serve_rendezvous(std::move(listener), content));
  *id = {};
  id->version = NVSHMEMX_UNIQUEID_VERSION;
  std::memcpy(id->internal, &content, sizeof content);
  return Status::ok();
}

Status make_uid_bootstrap(const Settings& settings, const nvshmemx_uniqueid_t& id, int rank, int size,
                          std::unique_ptr<Bootstrap>* bootstrap) {
  UniqueIdContent content;
  HEDDLE_RETURN_IF_ERROR(read_id(id, &content));
  auto fresh = std::make_unique<UidBootstrap>(rank, size);
  HEDDLE_RETURN_IF_ERROR(fresh->join(content, Deadline::in(settings.timeout)));
  *bootstrap = std::move(fresh);
  return Status::ok();
}

}  // namespace heddle
