#include "runtime/control_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace heddle {

void append_frame(std::vector<unsigned char>* out, FrameOp op, uint32_t sequence, std::initializer_list<Piece> pieces,
                  bool has_fd) {
  FrameHeader header;
  header.op = static_cast<uint16_t>(op);
  header.has_fd = has_fd ? 1 : 0;
  header.sequence = sequence;
  for (const Piece& piece : pieces) header.length += static_cast<uint32_t>(piece.bytes);
  const auto* raw = reinterpret_cast<const unsigned char*>(&header);
  out->insert(out->end(), raw, raw + sizeof header);
  for (const Piece& piece : pieces) {
    const auto* data = static_cast<const unsigned char*>(piece.data);
    if (piece.bytes > 0) out->insert(out->end(), data, data + piece.bytes);
  }
}

Blob make_frame(FrameOp op, uint32_t sequence, std::initializer_list<Piece> pieces, bool has_fd) {
  auto bytes = std::make_shared<std::vector<unsigned char>>();
  size_t total = sizeof(FrameHeader);
  for (const Piece& piece : pieces) total += piece.bytes;
  bytes->reserve(total);
  append_frame(bytes.get(), op, sequence, pieces, has_fd);
  return bytes;
}

Status check_header(const FrameHeader& header) {
  if (header.magic != kFrameMagic) {
    return error(Code::kInvalidValue, "frame magic 0x%08x instead of 0x%08x", header.magic, kFrameMagic);
  }
  if (header.op < static_cast<uint16_t>(FrameOp::kHello) || header.op > static_cast<uint16_t>(FrameOp::kExit)) {
    return error(Code::kInvalidValue, "unknown frame operation %u", header.op);
  }
  if (header.length > kMaxFrameBytes) {
    return error(Code::kInvalidValue, "frame of %u bytes, more than the limit of %u", header.length, kMaxFrameBytes);
  }
  if (header.has_fd > 1 || (header.has_fd == 1 && header.op != static_cast<uint16_t>(FrameOp::kCourier))) {
    return error(Code::kInvalidValue, "frame operation %u with a descriptor, which it does not take", header.op);
  }
  return Status::ok();
}

void FrameReader::feed(const unsigned char* data, size_t bytes, std::vector<OwnedFd>* fds) {
  data_.erase(data_.begin(), data_.begin() + static_cast<ptrdiff_t>(used_));
  used_ = 0;
  data_.insert(data_.end(), data, data + bytes);
  for (OwnedFd& fd : *fds) fds_.push_back(std::move(fd));
  fds->clear();
}

Status FrameReader::next(Frame* frame, bool* got) {
  *got = false;
  const size_t left = data_.size() - used_;
  FrameHeader header;
  const bool has_header = left >= sizeof header;
  if (has_header) {
    std::memcpy(&header, data_.data() + used_, sizeof header);
    HEDDLE_RETURN_IF_ERROR(check_header(header));
  }
  if (!has_header || left < sizeof header + header.length) {
    // A descriptor comes with the first byte of its frame, so that only the unfinished frame can own one here.
    const size_t expected = has_header ? header.has_fd : left > 0 ? 1 : 0;
    if (fds_.size() > expected) return error(Code::kInvalidValue, "a descriptor that no frame announced");
    return Status::ok();
  }
  frame->fd.reset();
  if (header.has_fd == 1) {
    if (fds_.empty()) return error(Code::kInvalidValue, "a frame that announced a descriptor came without it");
    frame->fd = std::move(fds_.front());
    fds_.pop_front();
  }
  frame->op = static_cast<FrameOp>(header.op);
  frame->sequence = header.sequence;
  frame->body = data_.data() + used_ + sizeof header;
  frame->bytes = header.length;
  used_ += sizeof header + header.length;
  *got = true;
  return Status::ok();
}

Status Link::open(OwnedFd socket, bool passes_fds) {
  std::lock_guard<std::mutex> lock(mutex_);
  socket_ = std::move(socket);
  passes_fds_ = passes_fds;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = key_;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, socket_.get(), &event) != 0) {
    return error_errno(Code::kInternal, errno, "cannot watch the control connection to PE %d", pe_);
  }
  return Status::ok();
}

Status Link::send(Blob blob, int fd) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!refused_.is_ok()) return refused_;
  if (!socket_.valid()) return error(Code::kNotInitialized, "the control channel is not connected to PE %d", pe_);
  if (fd >= 0 && !passes_fds_) {
    return error(Code::kNotSupported, "a file descriptor cannot be sent to PE %d, which is reached over TCP", pe_);
  }
  if (queued_bytes_ + blob->size() > kQueueLimit) {
    return error(Code::kOutOfMemory, "PE %d does not read its control messages: %zu bytes wait for it already", pe_,
                 queued_bytes_);
  }
  Outgoing outgoing{std::move(blob), 0, OwnedFd()};
  if (fd >= 0) {
    outgoing.fd = OwnedFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!outgoing.fd.valid()) {
      return error_errno(Code::kInvalidValue, errno, "cannot duplicate descriptor %d to send it to PE %d", fd, pe_);
    }
  }
  if (queue_.empty()) {
    const Progress progress = write(&outgoing);
    if (progress == Progress::kDone) return Status::ok();
    if (progress == Progress::kFailed) return refused_;
  }
  if (queue_.empty()) watch_output(true);
  queued_bytes_ += outgoing.blob->size();
  queue_.push_back(std::move(outgoing));
  return Status::ok();
}

bool Link::flush() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (queue_.empty()) return false;
  while (!queue_.empty()) {
    const Progress progress = write(&queue_.front());
    if (progress == Progress::kBlocked) return false;
    if (progress == Progress::kFailed) return true;
    queued_bytes_ -= queue_.front().blob->size();
    queue_.pop_front();
  }
  watch_output(false);
  return true;
}

Link::Progress Link::write(Outgoing* outgoing) {
  while (outgoing->sent < outgoing->blob->size()) {
    iovec part{const_cast<unsigned char*>(outgoing->blob->data()) + outgoing->sent,
               outgoing->blob->size() - outgoing->sent};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (outgoing->fd.valid()) {
      const int fd = outgoing->fd.get();
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      outgoing->sent += static_cast<size_t>(sent);
      outgoing->fd.reset();
      continue;
    }
    const int err = errno;
    if (err == EINTR) continue;
    if (err == EAGAIN) return Progress::kBlocked;
    if (err == ETOOMANYREFS || err == ENOBUFS || err == ENOMEM) {
      // Passing trouble that epoll does not announce the end of: too many descriptors under way, or no kernel memory.
      if (!queue_.empty()) ::poll(nullptr, 0, 1);
      return Progress::kBlocked;
    }
    // The reading side decides whether the peer left or was lost: it may still hold the peer's last frames.
    refused_ = error_errno(Code::kPeerLost, err, "cannot send to PE %d", pe_);
    drop_queue();
    return Progress::kFailed;
  }
  return Progress::kDone;
}

Link::Input Link::receive(std::vector<unsigned char>* scratch, std::string* failure) {
  const int socket = [this] {
    std::lock_guard<std::mutex> lock(mutex_);
    return socket_.get();
  }();
  if (socket < 0) return Input::kNothing;
  iovec part{scratch->data(), scratch->size()};
  constexpr size_t kMaxFds = 8;  // one frame brings one; the rest is room to see that a peer sent more
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) {
    if (errno == EAGAIN || errno == EINTR) return Input::kNothing;
    *failure = std::strerror(errno);
    return Input::kFailed;
  }
  std::vector<OwnedFd> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; CMSG_LEN(at + sizeof(int)) <= header->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  if (message.msg_flags & MSG_CTRUNC) {
    *failure = "a descriptor could not be received: this process has too many open files (ulimit -n)";
    return Input::kUnusable;
  }
  if (got == 0) return Input::kEnd;
  reader_.feed(scratch->data(), static_cast<size_t>(got), &fds);
  return Input::kData;
}

void Link::refuse(Status reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (refused_.is_ok()) refused_ = std::move(reason);
}

void Link::close(Status reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (refused_.is_ok()) refused_ = std::move(reason);
  drop_queue();
  if (!socket_.valid()) return;
  (void)epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, socket_.get(), nullptr);
  (void)::shutdown(socket_.get(), SHUT_RDWR);
  socket_.reset();
}

bool Link::idle() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return queue_.empty();
}

bool Link::is_open() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return socket_.valid();
}

void Link::watch_output(bool on) {
  epoll_event event{};
  event.events = EPOLLIN | (on ? EPOLLOUT : 0u);
  event.data.u64 = key_;
  (void)epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, socket_.get(), &event);  // cannot fail for a watched socket
}

void Link::drop_queue() {
  if (!queue_.empty() && socket_.valid()) watch_output(false);
  queue_.clear();
  queued_bytes_ = 0;
}

}  // namespace heddle
