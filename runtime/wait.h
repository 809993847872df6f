// How a host thread waits: spins briefly, then yields, then sleeps on a futex; ends when a PE is lost or time is up.
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/owned.h"
#include "runtime/status.h"

namespace heddle {

/// Tells the core that this is a spin loop.
inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Where sleepers of one PE wait; lives in its heap so that peers can ring it.
///
/// Ringing is a courtesy: a sleeper also wakes by itself after at most a millisecond, so that plain puts, which do not
/// ring, and a ring that races with falling asleep cost that much and no more.
struct Doorbell {
  uint32_t sleepers;  ///< threads asleep or about to be
  uint32_t bell;      ///< futex word, changes with every ring

  /// Wakes the sleepers if there are any.
  void ring();
  /// Sleeps until rung, at most `microseconds`; returns at once if the bell differs from `seen`.
  void sleep(uint32_t seen, int microseconds);
};

/// What waits of one PE share.
struct WaitContext {
  const std::atomic<uint32_t>* poison = nullptr;  ///< non-zero: a PE was lost
  Doorbell* doorbell = nullptr;
  double timeout_seconds = 0;  ///< 0: none
  double warn_seconds = 0;     ///< when late() becomes true; 0: never
  uint32_t spins = 0;          ///< looks before the first yield
};

/// The pause of one wait: call it between looks. False: give up, and verdict() says why.
class Waiter {
 public:
  explicit Waiter(const WaitContext& context) : context_(context) {}

  bool operator()() {
    if (++looks_ < context_.spins) {
      // Short waits end within the first looks; pausing there would only add latency.
      if (looks_ > kEagerLooks) cpu_relax();
      return true;
    }
    return slow();
  }

  /// True once, when the wait has lasted so long that somebody should hear of it.
  bool late() {
    if (!late_) return false;
    late_ = false;
    return true;
  }

  /// kPeerLost or kTimeout after a false; the caller adds which PE.
  Code verdict() const { return verdict_; }

 private:
  bool slow();

  static constexpr uint32_t kEagerLooks = 256;
  const WaitContext& context_;
  uint32_t looks_ = 0;
  uint32_t rounds_ = 0;
  Deadline deadline_ = Deadline::none();
  Deadline warn_at_ = Deadline::none();
  bool late_ = false;
  Code verdict_ = Code::kOk;
};

}  // namespace heddle
