// Messages and descriptors over the control channel, on Unix sockets and TCP.
#include <atomic>
#include <mutex>
#include <string>

#include "tests/unit/control_job.h"

using namespace control_test;

namespace {

/// Collects what a courier delivers.
struct Inbox {
  std::mutex mutex;
  std::vector<std::string> messages;
  std::vector<OwnedFd> fds;

  Courier::Receiver receiver() {
    return [this](int pe, const unsigned char* message, size_t bytes, OwnedFd fd) {
      std::lock_guard<std::mutex> lock(mutex);
      messages.push_back(std::to_string(pe) + ":" + std::string(reinterpret_cast<const char*>(message), bytes));
      fds.push_back(std::move(fd));
    };
  }
  bool has(size_t count) {
    return eventually([&] {
      std::lock_guard<std::mutex> lock(mutex);
      return messages.size() >= count;
    });
  }
};

}  // namespace

TEST_CASE("Messages and descriptors arrive in order", "[control]") {
  Job job(2);
  Inbox inbox;
  auto sender = job[0].make_courier();
  auto receiver = job[1].make_courier();
  receiver->receive(inbox.receiver());
  job.connect_all();
  CHECK(sender->my_pe() == 0);
  CHECK(receiver->my_pe() == 1);
  REQUIRE(sender->post(1, "plain", 5, -1).is_ok());
  REQUIRE(sender->post(1, nullptr, 0, -1).is_ok());
  for (int i = 0; i < 300; ++i) {
    const std::string text = "content " + std::to_string(i);
    const OwnedFd fd = text_fd(text);  // ours may go as soon as it is posted
    REQUIRE(sender->post(1, text.data(), text.size(), fd.get()).is_ok());
    REQUIRE(sender->post(1, "between", 7, -1).is_ok());
  }
  REQUIRE(inbox.has(602));
  CHECK(inbox.messages[0] == "0:plain");
  CHECK(inbox.messages[1] == "0:");
  for (int i = 0; i < 300; ++i) {
    const std::string text = "content " + std::to_string(i);
    REQUIRE(inbox.messages[2 + 2 * i] == "0:" + text);
    REQUIRE(inbox.fds[2 + 2 * i].valid());
    REQUIRE(fd_text(inbox.fds[2 + 2 * i].get()) == text);
    REQUIRE((fcntl(inbox.fds[2 + 2 * i].get(), F_GETFD) & FD_CLOEXEC) != 0);
    REQUIRE_FALSE(inbox.fds[3 + 2 * i].valid());
  }
  require_text(sender->post(0, "self", 4, -1), Code::kInvalidValue, "PE 0");
  require_text(sender->post(2, "out", 3, -1), Code::kInvalidValue, "PE 2 of 2");
  require_text(sender->post(1, std::string(4097, 'x').data(), 4097, -1), Code::kInvalidValue, "4097");
  require_text(sender->post(1, "bad", 3, 1 << 20), Code::kInvalidValue, "descriptor");
  REQUIRE(sender->post(1, std::string(4096, 'x').data(), 4096, -1).is_ok());
  REQUIRE(inbox.has(603));
  job.leave_all();
}

TEST_CASE("Messages before there is a receiver are kept in order", "[control]") {
  Job job(2);
  job.connect_all();
  auto sender = job[0].make_courier();
  auto receiver = job[1].make_courier();
  for (int i = 0; i < 100; ++i) REQUIRE(sender->post(1, "early", 5, -1).is_ok());
  require_ok(each_pe(2, [&](int pe) { return job.gather_int(pe, "behind the messages", 60); }));
  Inbox inbox;
  receiver->receive(inbox.receiver());
  REQUIRE(sender->post(1, "late", 4, text_fd("late").get()).is_ok());
  REQUIRE(inbox.has(101));
  CHECK(inbox.messages[0] == "0:early");
  CHECK(inbox.messages[99] == "0:early");
  CHECK(inbox.messages[100] == "0:late");
  CHECK(fd_text(inbox.fds[100].get()) == "late");
  receiver->receive(nullptr);
  job.leave_all();
}

TEST_CASE("A receiver is removed only when no delivery runs", "[control]") {
  Job job(2);
  job.connect_all();
  auto sender = job[0].make_courier();
  auto receiver = job[1].make_courier();
  std::atomic<bool> begun{false}, ended{false};
  receiver->receive([&](int, const unsigned char*, size_t, OwnedFd) {
    begun = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ended = true;
  });
  REQUIRE(sender->post(1, "x", 1, -1).is_ok());
  REQUIRE(eventually([&] { return begun.load(); }));
  receiver->receive(nullptr);
  CHECK(ended);
  // From inside a delivery it must not wait for itself.
  std::atomic<bool> removed{false};
  receiver->receive([&](int, const unsigned char*, size_t, OwnedFd) {
    receiver->receive(nullptr);
    removed = true;
  });
  REQUIRE(sender->post(1, "y", 1, -1).is_ok());
  CHECK(eventually([&] { return removed.load(); }));
  job.leave_all();
}

TEST_CASE("Bursts both ways, and answers from inside deliveries, do not block", "[control]") {
  Job job(2);
  constexpr int kMessages = 3000;
  std::unique_ptr<Courier> couriers[2] = {job[0].make_courier(), job[1].make_courier()};
  std::atomic<int> received[2] = {}, answered[2] = {}, failures{0};
  for (int pe = 0; pe < 2; ++pe) {
    couriers[pe]->receive([&, pe, next = 0](int from, const unsigned char* message, size_t bytes, OwnedFd) mutable {
      int number = -1;
      std::memcpy(&number, message, sizeof number);
      if (bytes == 4096) {
        if (number != next++) ++failures;
        ++received[pe];
        // An answer of the same size, told apart by its length, against the stream of the other side.
        std::vector<unsigned char> answer(message, message + 4095);
        if (!couriers[pe]->post(from, answer.data(), answer.size(), -1).is_ok()) ++failures;
      } else {
        ++answered[pe];
      }
    });
  }
  job.connect_all();
  require_ok(each_pe(2, [&](int pe) {
    std::vector<char> message(4096, 'm');
    for (int i = 0; i < kMessages; ++i) {
      std::memcpy(message.data(), &i, sizeof i);
      HEDDLE_RETURN_IF_ERROR(couriers[pe]->post(1 - pe, message.data(), message.size(), -1));
    }
    return job.gather_int(pe, "behind the burst", 60);
  }));
  for (int pe = 0; pe < 2; ++pe) {
    CHECK(eventually([&] { return answered[pe] == kMessages; }, 60));
    CHECK(received[pe] == kMessages);
  }
  CHECK(failures == 0);
  for (auto& courier : couriers) courier->receive(nullptr);
  job.leave_all();
}

TEST_CASE("A peer that does not read ends in an error, not in a wait", "[control]") {
  Job job(2);
  job.connect_all();
  auto sender = job[0].make_courier();
  auto receiver = job[1].make_courier();
  std::atomic<bool> hold{true};
  receiver->receive([&](int, const unsigned char*, size_t, OwnedFd) { eventually([&] { return !hold; }, 60); });
  const std::vector<char> message(4096, 'm');
  Status status;
  for (int i = 0; i < 40000 && status.is_ok(); ++i) status = sender->post(1, message.data(), message.size(), -1);
  hold = false;
  require_text(status, Code::kOutOfMemory, "PE 1 does not read its control messages");
  require_ok(each_pe(2, [&](int pe) { return job.gather_int(pe, "afterwards", 60); }));
  receiver->receive(nullptr);
  job.leave_all();
}

TEST_CASE("PEs of different nodes talk over TCP", "[control]") {
  const CapturedLog log;
  Job job(3, true, {0, 0, 1}, test_settings({"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=lo"}));
  CHECK(job.peers[0].address.family == AF_INET);
  CHECK(job.peers[0].address.port != 0);
  Inbox inboxes[3];
  std::unique_ptr<Courier> couriers[3];
  for (int pe = 0; pe < 3; ++pe) {
    couriers[pe] = job[pe].make_courier();
    couriers[pe]->receive(inboxes[pe].receiver());
  }
  job.connect_all();
  require_ok(each_pe(3, [&](int pe) {
    for (int i = 0; i < 100; ++i) HEDDLE_RETURN_IF_ERROR(job.gather_int(pe, "over TCP", 60));
    return Status::ok();
  }));
  const OwnedFd fd = text_fd("same node");
  REQUIRE(couriers[0]->post(1, "near", 4, fd.get()).is_ok());
  REQUIRE(couriers[0]->post(2, "far", 3, -1).is_ok());
  require_text(couriers[0]->post(2, "far", 3, fd.get()), Code::kNotSupported, "PE 2, which is reached over TCP");
  REQUIRE(inboxes[1].has(1));
  REQUIRE(inboxes[2].has(1));
  CHECK(fd_text(inboxes[1].fds[0].get()) == "same node");
  CHECK(inboxes[2].messages[0] == "0:far");
  couriers[2].reset();
  job.channels[2].reset();
  for (int pe = 0; pe < 2; ++pe) {
    CHECK(eventually([&] { return job[pe].poison().load() == 3; }, 1));
    CHECK(job[pe].loss().text.find("PE 2 (pid 1002) ended without nvshmem_finalize") == 0);
  }
  CHECK(log.lines() == 0);
}

TEST_CASE("All over TCP, left in order", "[control]") {
  Job job(3, true, {0, 1, 2}, test_settings({"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=lo"}));
  job.connect_all();
  std::vector<std::vector<char>> all(3, std::vector<char>(3 * 4096));
  require_ok(each_pe(3, [&](int pe) {
    const std::vector<char> mine(4096, static_cast<char>(pe));
    HEDDLE_RETURN_IF_ERROR(job[pe].allgather("all", mine.data(), 4096, all[pe].data(), Deadline::in(60)));
    job[pe].leave();
    return all[pe][4095] == 0 && all[pe][3 * 4096 - 1] == 2 ? Status() : error(Code::kInternal, "wrong bytes");
  }));
  for (int pe = 0; pe < 3; ++pe) CHECK(job[pe].poison().load() == 0);
}

TEST_CASE("The interface and family of TCP are the user's", "[control]") {
  std::unique_ptr<ControlChannel> channel;
  require_text(ControlChannel::open(test_settings({"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=nosuch0"}), 0, 2, true, &channel),
               Code::kInvalidValue, "nosuch0");
  require_text(ControlChannel::open(test_settings({"NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY=INET"}), 0, 2, true, &channel),
               Code::kInvalidValue, "\"INET\"");
  const Settings any = test_settings();
  REQUIRE(ControlChannel::open(any, 0, 2, true, &channel).is_ok());
  const ControlAddress address = channel->address();
  const unsigned char zero[16] = {};
  CHECK(std::memcmp(address.ip, zero, address.family == AF_INET ? 4 : 16) != 0);
}

TEST_CASE("PEs of one node in different network namespaces use TCP; without it that is an error", "[control]") {
  Job job(2, true, {}, test_settings({"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=lo"}));
  std::strcpy(job.peers[0].address.unix_name, "heddle-a-name-of-another-namespace");
  job.connect_all();
  require_ok(each_pe(2, [&](int pe) { return job.gather_int(pe, "all", 60); }));
  job.leave_all();
  Job other(2, false, {0, 1});
  require_text(other.connect(1, 60), Code::kNotSupported, "PE 0 (pid 1000) runs on another node and has no TCP socket");
}

TEST_CASE("Messages of one lane reach couriers of that lane only", "[control]") {
  Job job(2);
  Inbox inboxes[kCourierLanes];
  std::unique_ptr<Courier> senders[kCourierLanes], receivers[kCourierLanes];
  for (uint32_t lane = 0; lane < kCourierLanes; ++lane) {
    senders[lane] = job[0].make_courier(lane);
    receivers[lane] = job[1].make_courier(lane);
  }
  job.connect_all();
  REQUIRE(senders[1]->post(1, "early", 5, -1).is_ok());  // kept until its own lane has a receiver
  receivers[0]->receive(inboxes[0].receiver());
  REQUIRE(senders[0]->post(1, "zero", 4, -1).is_ok());
  REQUIRE(inboxes[0].has(1));
  receivers[1]->receive(inboxes[1].receiver());
  REQUIRE(senders[1]->post(1, "one", 3, -1).is_ok());
  REQUIRE(inboxes[1].has(2));
  CHECK(inboxes[0].messages == std::vector<std::string>{"0:zero"});
  CHECK(inboxes[1].messages == std::vector<std::string>{"0:early", "0:one"});
  job.leave_all();
}
