// The collective of the control channel: PE 0 collects one contribution per PE, judges the round and answers everyone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/control_link.h"
#include "runtime/owned.h"
#include "runtime/status.h"

namespace heddle {

/// "PE 3", "PE 3 and PE 5", "PE 1, PE 2 and 14 more PEs": how messages name several PEs, given in ascending order.
std::string name_pes(const std::vector<int>& pes);

/// Rounds of gathering, in PE 0 as the hub and in the others as members. A round ends by success when every PE is in
/// it, and by one failure for all when two PEs are in different calls, a PE is lost or has left, or the earliest
/// deadline of those who wait has passed. Late arrivals get the round's verdict too. Nothing here blocks but run().
class Gather {
 public:
  static constexpr size_t kMaxBytes = 4096;
  static constexpr size_t kMaxTag = 1024;
  using Clock = std::chrono::steady_clock;
  /// Sends frames to a PE; must not block and must not call back.
  using Send = std::function<Status(int pe, Blob frames)>;

  Gather(int my_pe, int n_pes, Send send);

  /// See ControlChannel::allgather.
  Status run(const std::string& tag, const void* mine, size_t bytes, void* all, Deadline deadline);

  /// Frames from a peer. A failure says what was wrong with the frame: the peer's connection is then beyond use.
  Status on_gather(int pe, uint32_t sequence, const unsigned char* body, size_t bytes);
  Status on_gathered(int pe, uint32_t sequence, const unsigned char* body, size_t bytes);
  /// The PE that an answer of kPeerLost names, -1 for other answers.
  static int lost_pe_in(const unsigned char* body, size_t bytes);

  /// `pe` ended unexpectedly; `cause` is what waiters get. The first loss is the one that lasts.
  void on_lost(int pe, const Status& cause);
  /// `pe` ended in order: rounds that need it fail.
  void on_left(int pe);

  /// When expire() is due, Clock::time_point::max() for never; then fails the round whose deadline passed.
  Clock::time_point next_expiry();
  void expire();

 private:
  struct Contribution {
    uint32_t sequence = 0;
    std::string tag;
    std::vector<unsigned char> data;
    Clock::time_point expires = Clock::time_point::max();
    double seconds = 0;  // what the deadline was
  };
  struct Answer {
    uint32_t sequence = 0;
    size_t expected = 0;
    bool done = false;
    Status status;
    std::vector<unsigned char> data;
  };

  Status await_answer(std::unique_lock<std::mutex>& lock, const std::string& tag, Deadline deadline, double seconds);

  // The hub's part. All of it runs under mutex_.
  void add(int pe, Contribution contribution);
  void join_round(int pe);
  void settle();
  bool judge(Status* verdict) const;
  void finish(const Status& verdict);
  void expire_locked();
  void answer_failure(int pe, uint32_t sequence, const Status& verdict);
  Blob encode_result() const;
  Status mismatch_text() const;

  const int my_pe_;
  const int n_pes_;
  const Send send_;
  std::mutex call_mutex_;  // one run() at a time; taken before mutex_

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  uint32_t calls_ = 0;
  Answer answer_;
  Status lost_;
  int lost_pe_ = -1;
  Clock::time_point lost_at_{};
  bool hub_lost_ = false;
  bool hub_left_ = false;

  uint32_t round_ = 1;                             // the one that is being collected
  std::vector<std::deque<Contribution>> arrived_;  // per PE: the front belongs to round_, later ones are early
  std::vector<uint32_t> next_sequence_;            // per PE
  int n_arrived_ = 0;
  int first_arrived_ = -1;
  int mismatched_ = -1;  // a PE that is in another call than first_arrived_
  Clock::time_point expires_ = Clock::time_point::max();
  std::vector<int> left_;
  std::deque<std::pair<uint32_t, Status>> failed_rounds_;  // the last few, for late arrivals
};

}  // namespace heddle
