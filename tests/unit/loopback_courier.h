// A courier among fabrics of one process, for tests with threads as PEs: a queue and a delivery thread per PE.
// Tests can hold deliveries back, lose a PE and change what travels.
#pragma once

#include <fcntl.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/fabric/fabric.h"

namespace heddle::test {

class LoopbackNetwork {
 public:
  /// May change a message and its descriptor on the way; runs on the sender's thread.
  using Tamper = std::function<void(int from, int to, std::vector<unsigned char>& message, OwnedFd& fd)>;

  explicit LoopbackNetwork(int n_pes) {
    for (int pe = 0; pe < n_pes; ++pe) mailboxes_.push_back(std::make_unique<Mailbox>());
    for (auto& mailbox : mailboxes_) mailbox->thread = std::thread([box = mailbox.get()] { box->deliver_all(); });
  }
  ~LoopbackNetwork() {
    for (auto& mailbox : mailboxes_) mailbox->set([](Mailbox& box) { box.stop = true; });
    for (auto& mailbox : mailboxes_) mailbox->thread.join();
  }

  std::unique_ptr<Courier> courier(int pe) { return std::make_unique<Line>(*this, pe); }

  /// Holds deliveries to `pe` back until resume().
  void pause(int pe) {
    box(pe).set([](Mailbox& box) { box.paused = true; });
  }
  void resume(int pe) {
    box(pe).set([](Mailbox& box) { box.paused = false; });
  }
  /// Delivers one message to the paused `pe`, which must come; returns when it has been handled.
  void step(int pe) {
    box(pe).set([](Mailbox& box) { box.allowed = 1; });
    settle(pe, [](Mailbox& box) { return box.allowed == 0; });
  }
  /// Returns when everything posted to `pe`, which is not paused, has been handled.
  void settle(int pe) {
    settle(pe, [](Mailbox& box) { return box.parcels.empty(); });
  }
  /// From now on posts to `pe` fail with kPeerLost.
  void lose(int pe) {
    box(pe).set([](Mailbox& box) { box.lost = true; });
  }
  void tamper(Tamper tamper) {
    std::lock_guard<std::mutex> lock(tamper_mutex_);
    tamper_ = std::move(tamper);
  }

  /// Puts a message into `to`'s queue as if `from` had posted it.
  Status post(int from, int to, const void* bytes, size_t count, int fd) {
    if (to < 0 || to >= static_cast<int>(mailboxes_.size())) {
      return error(Code::kInvalidValue, "PE %d does not exist; there are %zu", to, mailboxes_.size());
    }
    if (count > 4096) return error(Code::kInvalidValue, "a message of %zu bytes is over 4096", count);
    Parcel parcel;
    parcel.from = from;
    parcel.message.assign(static_cast<const unsigned char*>(bytes), static_cast<const unsigned char*>(bytes) + count);
    if (fd >= 0) parcel.fd = OwnedFd(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    {
      std::lock_guard<std::mutex> lock(tamper_mutex_);
      if (tamper_) tamper_(from, to, parcel.message, parcel.fd);
    }
    bool lost = false;
    box(to).set([&](Mailbox& box) {
      lost = box.lost;
      if (!lost) box.parcels.push_back(std::move(parcel));
    });
    return lost ? error(Code::kPeerLost, "PE %d is lost", to) : Status::ok();
  }

 private:
  struct Parcel {
    int from = -1;
    std::vector<unsigned char> message;
    OwnedFd fd;
  };

  struct Mailbox {
    template <class Change>
    void set(const Change& change) {
      std::lock_guard<std::mutex> lock(mutex);
      change(*this);
      changed.notify_all();
    }
    void deliver_all() {
      std::unique_lock<std::mutex> lock(mutex);
      while (true) {
        changed.wait(lock, [this] { return stop || (!parcels.empty() && receiver && (!paused || allowed > 0)); });
        if (stop) return;
        Parcel parcel = std::move(parcels.front());
        parcels.pop_front();
        if (paused) --allowed;
        Courier::Receiver target = receiver;
        delivering = true;
        lock.unlock();
        target(parcel.from, parcel.message.data(), parcel.message.size(), std::move(parcel.fd));
        lock.lock();
        delivering = false;
        changed.notify_all();
      }
    }
    void receive(Courier::Receiver new_receiver) {
      std::unique_lock<std::mutex> lock(mutex);
      receiver = std::move(new_receiver);
      changed.notify_all();
      if (!receiver) changed.wait(lock, [this] { return !delivering; });
    }

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Parcel> parcels;
    Courier::Receiver receiver;
    int allowed = 0;
    bool delivering = false, paused = false, lost = false, stop = false;
    std::thread thread;
  };

  class Line final : public Courier {
   public:
    Line(LoopbackNetwork& network, int pe) : network_(network), pe_(pe) {}
    int my_pe() const override { return pe_; }
    Status post(int pe, const void* message, size_t bytes, int fd) override {
      return network_.post(pe_, pe, message, bytes, fd);
    }
    void receive(Receiver receiver) override { network_.box(pe_).receive(std::move(receiver)); }

   private:
    LoopbackNetwork& network_;
    const int pe_;
  };

  template <class Done>
  void settle(int pe, const Done& done) {
    Mailbox& mailbox = box(pe);
    std::unique_lock<std::mutex> lock(mailbox.mutex);
    mailbox.changed.wait(lock, [&] { return done(mailbox) && !mailbox.delivering; });
  }

  Mailbox& box(int pe) { return *mailboxes_[static_cast<size_t>(pe)]; }

  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  std::mutex tamper_mutex_;
  Tamper tamper_;
};

}  // namespace heddle::test
