// The control channel: one stream socket per pair of PEs, framed messages, descriptors, liveness, agreement.
//
// Same node (launcher's node map and equal boot id): abstract Unix sockets, so nothing is left in any file system; the
// kernel's word on the peer's uid is checked. Other node: TCP on the interface the job uses. Every connection shows the
// 128-bit job token before anything else is read from it; a stranger is dropped with one warning. The listening sockets
// are closed as soon as every peer is connected: from then on strangers are refused by the kernel.
// One service thread per process owns all reading; it is idle (epoll) unless something arrives. Sending never waits for
// a receiver: what a socket does not take at once is queued (up to 64 MiB per peer) and sent by the service thread.
// A channel of one PE opens no connection and starts no thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "runtime/fabric/fabric.h"
#include "runtime/owned.h"
#include "runtime/settings.h"
#include "runtime/status.h"

namespace heddle {

/// 128 random bits that every connection of one job shows.
struct JobToken {
  unsigned char bytes[16] = {};
};

/// Fills a token from the kernel's random source.
Status make_job_token(JobToken* token);

/// Where a process listens, as it travels in its record.
struct ControlAddress {
  char unix_name[56] = {};    ///< abstract socket name without the leading NUL, NUL-terminated
  uint16_t family = 0;        ///< AF_INET, AF_INET6, or 0: no TCP listener
  uint16_t port = 0;          ///< host byte order
  uint32_t scope = 0;         ///< IPv6 scope id
  unsigned char ip[16] = {};  ///< 4 or 16 bytes, network byte order
};

/// What a PE knows of another before it connects.
struct ControlPeer {
  PeerIdentity identity{};
  ControlAddress address{};
};

/// How a peer left, as liveness sees it.
struct PeerLoss {
  int pe = -1;
  std::string text;  ///< e.g. "PE 3 (pid 4711) ended without nvshmem_finalize"
};

/// Fabrics that can talk over one channel: that of the heap, and that of the host memory beside a device heap.
constexpr uint32_t kCourierLanes = 2;

class ControlChannel {
 public:
  /// Opens the listening sockets: Unix always, TCP only when `want_tcp`. Nobody is connected yet.
  static Status open(const Settings& settings, int my_pe, int n_pes, bool want_tcp,
                     std::unique_ptr<ControlChannel>* channel);
  /// Closes everything without telling the peers, as a crash would; call leave() first for an orderly end.
  ~ControlChannel();

  ControlAddress address() const;

  /// Connects to every peer (the higher PE calls the lower one) and starts the service thread. `peers` has n_pes
  /// entries. Ends by `deadline`; the text then names the PEs that are missing. kPeerLost when a PE ended meanwhile.
  /// After a failure the channel is good for nothing but leave() and destruction.
  Status connect(const std::vector<ControlPeer>& peers, const JobToken& token, Deadline deadline);

  /// Carries the messages of a fabric. One at a time for each lane (0 to kCourierLanes - 1), whose messages meet only
  /// couriers of the same lane; it must be destroyed before the channel. Messages that come while
  /// no receiver is named are kept (up to 16 MiB) and delivered in order once there is one. A descriptor for a PE that
  /// is reached over TCP is kNotSupported; a PE that is gone is kPeerLost.
  std::unique_ptr<Courier> make_courier(uint32_t lane = 0);

  /// Gathers `bytes` (at most 4096) from every PE into `all`, in PE order. A collective: every PE calls it in the same
  /// order with the same `tag`; a PE that is in another call (tag) makes all fail with kSymmetry and a text that names
  /// both, and so does a PE that has left. A lost PE makes all fail with kPeerLost; the earliest of the callers'
  /// deadlines with kTimeout and the missing PEs. Who gets kPeerLost finds poison() set. Blocks; not to be called from
  /// a handler of this channel. Tags have up to 1024 bytes.
  Status allgather(const std::string& tag, const void* mine, size_t bytes, void* all, Deadline deadline);

  /// Every PE passes its status of one step: all get ok, or all get the same failure, that of the lowest failing PE
  /// with "PE n: " before its text.
  Status agree(const std::string& tag, const Status& mine, Deadline deadline);

  /// 0 while all peers live; else 1 + the first lost PE. Word for waits to poll; for kernels it will be mapped memory.
  const std::atomic<uint32_t>& poison() const;
  /// The first loss; pe is -1 while there is none.
  PeerLoss loss() const;
  /// Called on the service thread after poison is set, for the first loss only; at once when that was before the
  /// handler came. Returns when no call of the former handler is running. Handlers must not destroy or leave the
  /// channel.
  void on_loss(std::function<void(const PeerLoss&)> handler);

  /// Tells every peer to end with `exit_code` (nvshmem_global_exit) and returns when they have ended, at the latest
  /// after 0.5 s. Losses are no longer reported from its start on, nor exits that peers ask for.
  void send_exit(int exit_code);
  /// Called on the service thread when a peer asks for exit; the default tells the other peers too, writes out stdout
  /// and calls _exit(exit_code).
  void on_exit(std::function<void(int pe, int exit_code)> handler);

  /// For the child of a fork: closes its copies of the sockets, so that the end of its parent is seen. Takes no lock;
  /// the channel must not be used afterwards.
  void abandon_in_child();

  /// Orderly end: tells the peers so that the end-of-file that follows is no loss, waits up to 1 s for them to leave
  /// too, stops the service thread and closes. Losses are no longer reported from its start on.
  void leave();

 private:
  class Impl;
  explicit ControlChannel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// ---- frames, shown for the tests that send broken ones

constexpr uint32_t kFrameMagic = 0x4c444448;  // "HDDL"
constexpr uint32_t kMaxFrameBytes = 8192;

enum class FrameOp : uint16_t { kHello = 1, kWelcome, kCourier, kGather, kGathered, kBye, kExit };

/// What precedes every message. A frame with another magic, an unknown op, a length over kMaxFrameBytes or a descriptor
/// where the op takes none ends its connection: before kHello the stranger is dropped, after it the peer counts as
/// lost.
struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint16_t op = 0;
  uint16_t has_fd = 0;
  uint32_t length = 0;    ///< bytes that follow
  uint32_t sequence = 0;  ///< of the collective it belongs to
};

/// Body of kHello, from the PE that calls: what a connection shows before anything else is read from it.
struct HelloBody {
  JobToken token;
  int32_t pe = -1;
  int32_t n_pes = 0;
};

/// Body of kWelcome, the answer.
struct WelcomeBody {
  int32_t pe = -1;
  int32_t n_pes = 0;
};

}  // namespace heddle
