// Frames of the control channel and one connection that carries them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/control.h"
#include "runtime/owned.h"
#include "runtime/status.h"

namespace heddle {

/// Body of kGather, from a member to PE 0; `tag_bytes` of tag and `data_bytes` of data follow.
struct GatherBody {
  int32_t timeout_ms = -1;  ///< how long the sender will wait, -1 without end
  uint32_t tag_bytes = 0;
  uint32_t data_bytes = 0;
};

/// Body of kGathered, PE 0's answer. Success: a slice of the result follows, and offsets ascend without gaps over
/// several frames. Failure: one frame, and the text follows.
struct GatheredBody {
  int32_t code = 0;      ///< heddle::Code
  int32_t lost_pe = -1;  ///< with kPeerLost: the PE that PE 0 lost
  uint32_t total = 0;    ///< bytes of the whole result
  uint32_t offset = 0;   ///< of this slice
};

/// Body of kExit.
struct ExitBody {
  int32_t exit_code = 0;
};

/// Body of kBye, when the PE leaves knowing of a loss; its text follows, at most kMostLossText bytes.
struct ByeBody {
  int32_t lost_pe = -1;
};
constexpr size_t kMostLossText = 1024;

/// Encoded frames, shared when they go to several peers.
using Blob = std::shared_ptr<const std::vector<unsigned char>>;

/// A part of a frame's body.
struct Piece {
  const void* data;
  size_t bytes;
};

/// Appends a frame whose body is `pieces` in order; together at most kMaxFrameBytes.
void append_frame(std::vector<unsigned char>* out, FrameOp op, uint32_t sequence, std::initializer_list<Piece> pieces,
                  bool has_fd = false);
/// A blob of one such frame.
Blob make_frame(FrameOp op, uint32_t sequence, std::initializer_list<Piece> pieces, bool has_fd = false);

/// A received frame. `body` points into the reader and is good until its next call.
struct Frame {
  FrameOp op{};
  uint32_t sequence = 0;
  const unsigned char* body = nullptr;
  size_t bytes = 0;
  OwnedFd fd;
};

/// Whether a header can start a frame; else what is wrong with it, for the log.
Status check_header(const FrameHeader& header);

/// Cuts a stream into frames.
class FrameReader {
 public:
  /// Appends received bytes and the descriptors that came with them.
  void feed(const unsigned char* data, size_t bytes, std::vector<OwnedFd>* fds);
  /// Takes the next whole frame; `*got` is false when more bytes are needed. A failure is final and says what is wrong.
  Status next(Frame* frame, bool* got);

 private:
  std::vector<unsigned char> data_;
  size_t used_ = 0;  // bytes of data_ that frames already took
  std::deque<OwnedFd> fds_;
};

/// One connection to a peer. send() and close() may be called from any thread, receive() and flush() by the one thread
/// that serves `epoll_fd`. Sending never waits: what the socket does not take is queued, and flush() sends it.
class Link {
 public:
  /// Bytes that may wait for one peer.
  static constexpr size_t kQueueLimit = 64u << 20;

  /// `key` is what epoll reports for this connection.
  Link(int pe, int epoll_fd, uint64_t key) : pe_(pe), epoll_fd_(epoll_fd), key_(key) {}
  ~Link() { close(Status()); }

  /// Takes a connected non-blocking socket and watches it. `passes_fds`: a Unix socket.
  Status open(OwnedFd socket, bool passes_fds);

  /// Sends the frames of `blob` after all earlier ones; a duplicate of `fd` (when >= 0) goes with the first byte.
  /// kPeerLost when the connection is gone, kNotSupported for a descriptor over TCP, kOutOfMemory beyond kQueueLimit.
  Status send(Blob blob, int fd = -1);

  /// Sends what is queued, as far as the socket takes it. True when the queue ran empty in this call.
  bool flush();

  enum class Input { kData, kNothing, kEnd, kFailed, kUnusable };
  /// Reads once into reader(). kFailed (the connection) and kUnusable (what came over it) fill `*failure`.
  Input receive(std::vector<unsigned char>* scratch, std::string* failure);
  FrameReader& reader() { return reader_; }

  /// From now on send() fails with `reason`; what is queued is still sent, and reading goes on.
  void refuse(Status reason);
  /// Ends the connection, also in the eyes of forked children that share the socket; drops what is queued.
  void close(Status reason);

  /// Closes a forked child's copy of the socket and nothing else.
  void abandon_in_child() { (void)OwnedFd(socket_.release()); }

  /// Nothing is queued.
  bool idle() const;
  bool is_open() const;

 private:
  struct Outgoing {
    Blob blob;
    size_t sent = 0;
    OwnedFd fd;  // to pass with the first byte
  };
  enum class Progress { kDone, kBlocked, kFailed };
  Progress write(Outgoing* outgoing);
  void watch_output(bool on);
  void drop_queue();

  const int pe_;
  const int epoll_fd_;
  const uint64_t key_;
  FrameReader reader_;  // of the serving thread

  mutable std::mutex mutex_;  // guards all below
  OwnedFd socket_;            // changed by the serving thread only, or when that is gone
  bool passes_fds_ = false;
  Status refused_;
  std::deque<Outgoing> queue_;
  size_t queued_bytes_ = 0;
};

}  // namespace heddle
