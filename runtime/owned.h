// Small owners of operating-system resources.
#pragma once

#include <unistd.h>

#include <chrono>
#include <utility>

namespace heddle {

/// Owns one file descriptor; closes it when it goes.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  ~OwnedFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

/// A point on the steady clock by which something must have happened; none() never comes.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  static Deadline none() { return Deadline(Clock::time_point::max()); }
  /// `seconds` from now; 0 or less means none().
  static Deadline in(double seconds) {
    if (seconds <= 0 || seconds > 1e9) return none();
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  }
  bool is_none() const { return at_ == Clock::time_point::max(); }
  bool passed() const { return !is_none() && Clock::now() >= at_; }
  /// Milliseconds left for poll(2): -1 for none(), else 0 or more, rounded up.
  int poll_ms() const {
    if (is_none()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return left < 0 ? 0 : left > 1'000'000'000 ? 1'000'000'000 : static_cast<int>(left);
  }
  Clock::time_point at() const { return at_; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace heddle
