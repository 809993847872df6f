#include "runtime/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace heddle {
namespace {

constexpr uint32_t kYields = 400;  // about 0.2 ms where nobody else wants the core
constexpr int kFirstSleepMicroseconds = 50;
constexpr int kLongestSleepMicroseconds = 1000;

}  // namespace

void Doorbell::ring() {
  // relaxed: a missed sleeper wakes by itself soon
  if (__atomic_load_n(&sleepers, __ATOMIC_RELAXED) == 0) return;
  __atomic_fetch_add(&bell, 1, __ATOMIC_RELEASE);  // release: what was stored before the ring is seen after it
  syscall(SYS_futex, &bell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Doorbell::sleep(uint32_t seen, int microseconds) {
  const timespec limit{0, microseconds * 1000L};
  syscall(SYS_futex, &bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

bool Waiter::slow() {
  // acquire: the loss text was written before the word
  if (context_.poison != nullptr && context_.poison->load(std::memory_order_acquire) != 0) {
    verdict_ = Code::kPeerLost;
    return false;
  }
  if (rounds_++ == 0) {
    deadline_ = Deadline::in(context_.timeout_seconds);
    warn_at_ = Deadline::in(context_.warn_seconds);
  }
  if (rounds_ % 16 == 0 && deadline_.passed()) {
    verdict_ = Code::kTimeout;
    return false;
  }
  if (rounds_ % 64 == 0 && warn_at_.passed()) {
    warn_at_ = Deadline::none();
    late_ = true;
  }
  if (rounds_ < kYields || context_.doorbell == nullptr) {
    sched_yield();
    return true;
  }
  Doorbell& doorbell = *context_.doorbell;
  const uint32_t past = (rounds_ - kYields) / 4;
  const int microseconds = past > 8 ? kLongestSleepMicroseconds : kFirstSleepMicroseconds << (past / 2);
  __atomic_fetch_add(&doorbell.sleepers, 1, __ATOMIC_SEQ_CST);  // before the bell is read: a ring after that is noticed
  const uint32_t seen = __atomic_load_n(&doorbell.bell, __ATOMIC_ACQUIRE);
  doorbell.sleep(seen, microseconds > kLongestSleepMicroseconds ? kLongestSleepMicroseconds : microseconds);
  __atomic_fetch_sub(&doorbell.sleepers, 1, __ATOMIC_RELAXED);  // relaxed: only a hint for ring()
  return true;
}

}  // namespace heddle
