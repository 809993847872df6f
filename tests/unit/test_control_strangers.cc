// Who is not of the job is kept out of the control channel; who is, and breaks its rules, counts as lost.
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <random>

#include "runtime/control_link.h"
#include "tests/unit/control_job.h"

using namespace control_test;

namespace {

/// Starts the connect of some PEs of a job on threads, and joins them.
class Connecting {
 public:
  Connecting(Job* job, std::vector<int> pes, double seconds = 60) : statuses_(job->n) {
    for (int pe : pes) threads_.emplace_back([=, this] { statuses_[pe] = job->connect(pe, seconds); });
  }
  const std::vector<Status>& join() {
    for (auto& thread : threads_) thread.join();
    threads_.clear();
    return statuses_;
  }
  ~Connecting() { join(); }

 private:
  std::vector<Status> statuses_;
  std::vector<std::thread> threads_;
};

}  // namespace

TEST_CASE("Strangers are dropped and the job goes on", "[control]") {
  const CapturedLog log;
  Job job(3);
  const ControlAddress address = job.peers[0].address;
  const int before = open_fds();
  {
    Connecting connecting(&job, {0});
    RawPeer silent(address);
    RawPeer wrong_token(address), out_of_range(address), wrong_size(address), itself(address), not_hello(address);
    RawPeer oversized(address), random(address), truncated(address), probe(address);
    JobToken other = job.token;
    other.bytes[15] ^= 1;
    wrong_token.hello(other, 1, 3);
    out_of_range.hello(job.token, 3, 3);
    wrong_size.hello(job.token, 1, 4);
    itself.hello(job.token, 0, 3);
    not_hello.send_header(FrameOp::kCourier, 4);
    oversized.send_header(FrameOp::kHello, kMaxFrameBytes + 1);
    std::mt19937 generator(1);
    std::vector<unsigned char> bytes(5000);
    for (auto& byte : bytes) byte = static_cast<unsigned char>(generator());
    random.send_bytes(bytes.data(), bytes.size(), 0);
    truncated.send_header(FrameOp::kHello, sizeof(HelloBody));
    truncated.send_bytes(&job.token, 10);
    truncated.close();
    probe.close();
    for (RawPeer* raw : {&wrong_token, &out_of_range, &wrong_size, &itself, &not_hello, &oversized, &random}) {
      CHECK(raw->is_closed(3));  // at once, not when the time for a hello is over
    }
    // A right hello in small pieces is none the worse for it; a second of the same PE is.
    RawPeer pieces(address);
    FrameHeader header;
    header.op = static_cast<uint16_t>(FrameOp::kHello);
    header.length = sizeof(HelloBody);
    HelloBody body{job.token, 1, 3};
    std::vector<unsigned char> hello(sizeof header + sizeof body);
    std::memcpy(hello.data(), &header, sizeof header);
    std::memcpy(hello.data() + sizeof header, &body, sizeof body);
    for (unsigned char byte : hello) {
      pieces.send_bytes(&byte, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    bool closed = false;
    const std::string welcome = pieces.read_some(&closed);
    REQUIRE(welcome.size() == sizeof(FrameHeader) + sizeof(WelcomeBody));
    RawPeer twice(address);
    twice.hello(job.token, 1, 3);
    CHECK(twice.is_closed());
    RawPeer last(address);
    last.hello(job.token, 2, 3);
    CHECK_FALSE(last.read_some(&closed).empty());
    require_ok(connecting.join());
    // With everyone there nobody else is listened to, also who had come before.
    CHECK(silent.is_closed());
    CHECK(RawPeer(address).dialled() == ECONNREFUSED);
    CHECK(job[0].poison().load() == 0);
    CHECK(log.lines() == 1);
    CHECK(log.lines_with("warning: dropped a control connection that is not of this job") == 1);
    job.channels[0].reset();
  }
  // The channel had a listener, which is gone too.
  CHECK(open_fds() == before - 1);
}

TEST_CASE("Real peers connect among strangers", "[control]") {
  const CapturedLog log;
  Job job(4);
  std::vector<std::unique_ptr<RawPeer>> crowd;
  // More than are let in at a time, and they come first.
  for (int i = 0; i < 100; ++i) {
    crowd.push_back(std::make_unique<RawPeer>(job.peers[i % 3].address));
    if (i >= 90) continue;
    if (i % 3 != 2) crowd.back()->send_header(FrameOp::kHello, sizeof(HelloBody), i % 2 == 0 ? kFrameMagic : 1u);
    if (i % 3 == 2) crowd.back()->close();
  }
  const auto start = Clock::now();
  job.connect_all();
  require_ok(each_pe(4, [&](int pe) { return job.gather_int(pe, "all", 60); }));
  CHECK(seconds_since(start) < 30);
  job.leave_all();
  CHECK(log.lines() <= 3);
}

TEST_CASE("A connection that does not say its hello in time is dropped", "[control]") {
  const CapturedLog log;
  Job job(2);
  Connecting connecting(&job, {0});
  RawPeer silent(job.peers[0].address), half(job.peers[0].address);
  half.send_header(FrameOp::kHello, sizeof(HelloBody));
  CHECK_FALSE(silent.is_closed(1));
  CHECK(silent.is_closed(20));
  CHECK(half.is_closed(20));
  REQUIRE(job.connect(1).is_ok());
  require_ok(connecting.join());
  CHECK(log.lines_with("it did not say a whole hello within 5 s") == 1);
  job.leave_all();
}

TEST_CASE("Another user's connection is dropped", "[control]") {
  if (geteuid() != 0) return;  // only root can take another uid
  const CapturedLog log;
  Job job(2);
  Connecting connecting(&job, {0});
  std::unique_ptr<RawPeer> foreign;
  // The system call changes this thread only, unlike the C library's function.
  std::thread([&] {
    if (syscall(SYS_setresuid, -1, 65534, -1) == 0) foreign = std::make_unique<RawPeer>(job.peers[0].address);
  }).join();
  REQUIRE(foreign);
  foreign->hello(job.token, 1, 2);
  CHECK(foreign->is_closed());
  REQUIRE(job.connect(1).is_ok());
  require_ok(connecting.join());
  CHECK(log.lines_with("it comes from uid 65534") == 1);
  job.leave_all();
}

TEST_CASE("A peer that leaves for a loss tells of it, to those who have not seen it yet", "[control]") {
  CapturedLog log;
  Job job(3);
  RawPeer witness(job.peers[0].address), victim(job.peers[0].address);
  witness.hello(job.token, 1, 3);
  victim.hello(job.token, 2, 3);
  REQUIRE(job.connect(0).is_ok());
  Status waited;
  std::thread waiter([&] { waited = job.gather_int(0, "the wait"); });
  const std::string text = "PE 2 (pid 1002) ended, as PE 1 saw it";
  const int32_t lost_pe = 2;
  witness.send_header(FrameOp::kBye, sizeof lost_pe + text.size());
  witness.send_bytes(&lost_pe, sizeof lost_pe);
  witness.send_bytes(text.data(), text.size());
  witness.close();
  waiter.join();
  require_text(waited, Code::kPeerLost, text);
  CHECK(job[0].loss().pe == 2);
  CHECK(job[0].poison() == 3);
}

TEST_CASE("A PE that obeys an exit passes it on before its own end, so that nobody takes that for a loss",
          "[control]") {
  Job job(3);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!job.connect(0).is_ok()) _exit(99);
    std::this_thread::sleep_for(std::chrono::seconds(20));
    _exit(98);
  }
  RawPeer leaver(job.peers[0].address), other(job.peers[0].address);
  leaver.hello(job.token, 1, 3);
  other.hello(job.token, 2, 3);
  bool closed = false;
  std::string heard = other.read_some(&closed);  // its welcome
  const int32_t code = 23;
  leaver.send_header(FrameOp::kExit, sizeof code);
  leaver.send_bytes(&code, sizeof code);
  while (!closed) heard += other.read_some(&closed);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == code);
  REQUIRE(heard.size() == 2 * sizeof(FrameHeader) + sizeof(WelcomeBody) + sizeof code);
  FrameHeader last;
  std::memcpy(&last, heard.data() + sizeof(FrameHeader) + sizeof(WelcomeBody), sizeof last);
  CHECK(last.op == static_cast<uint16_t>(FrameOp::kExit));
}

TEST_CASE("A peer that breaks the rules counts as lost, with the reason", "[control]") {
  Job job(2);
  RawPeer peer(job.peers[0].address);
  peer.hello(job.token, 1, 2);
  REQUIRE(job.connect(0).is_ok());
  bool closed = false;
  REQUIRE_FALSE(peer.read_some(&closed).empty());
  // A waiter is ended by it as by a death.
  std::thread waiter;
  Status waited;
  waiter = std::thread([&] { waited = job.gather_int(0, "the wait"); });
  std::string reason;
  SECTION("magic") {
    peer.send_header(FrameOp::kCourier, 0, 0x12345678);
    reason = "frame magic 0x12345678 instead of 0x4c444448";
  }
  SECTION("operation") {
    peer.send_header(static_cast<FrameOp>(77), 0);
    reason = "unknown frame operation 77";
  }
  SECTION("length") {
    peer.send_header(FrameOp::kCourier, kMaxFrameBytes + 1);
    reason = "frame of 8193 bytes, more than the limit of 8192";
  }
  SECTION("long message") {
    const std::vector<char> body(4097);
    peer.send_header(FrameOp::kCourier, 4097);
    peer.send_bytes(body.data(), body.size());
    reason = "a message of 4097 bytes";
  }
  SECTION("a descriptor where none is taken") {
    peer.send_header(FrameOp::kBye, 0, kFrameMagic, 1, 0);
    reason = "with a descriptor, which it does not take";
  }
  SECTION("a descriptor that is not announced") {
    peer.send_header(FrameOp::kCourier, 0, kFrameMagic, 0, 0);
    reason = "a descriptor that no frame announced";
  }
  SECTION("a descriptor that does not come") {
    peer.send_header(FrameOp::kCourier, 0, kFrameMagic, 1);
    reason = "came without it";
  }
  SECTION("a second hello") {
    peer.hello(job.token, 1, 2);
    reason = "frame operation 1 of 24 bytes out of place";
  }
  SECTION("a contribution that lies about its sizes") {
    const GatherBody body{-1, 2000000000u, 2000000000u};
    peer.send_header(FrameOp::kGather, sizeof body);
    peer.send_bytes(&body, sizeof body);
    reason = "claims 2000000000 of tag";
  }
  SECTION("a contribution out of turn") {
    const GatherBody body;
    peer.send_header(FrameOp::kGather, sizeof body);
    peer.send_bytes(&body, sizeof body);
    reason = "a contribution to round 0 where 1 is due";
  }
  SECTION("an answer to PE 0") {
    const GatheredBody body{};
    peer.send_header(FrameOp::kGathered, sizeof body);
    peer.send_bytes(&body, sizeof body);
    reason = "an answer that only PE 0 gives";
  }
  waiter.join();
  require_text(waited, Code::kPeerLost, reason);
  CHECK(job[0].poison().load() == 2);
  CHECK(job[0].loss().text.find("PE 1 (pid 1001) broke the control channel's rules") == 0);
  CHECK(job[0].loss().text.find(reason) != std::string::npos);
  CHECK(peer.is_closed());
}

TEST_CASE("A caller is wary of who answers", "[control]") {
  Job job(2);
  job.channels[0].reset();
  OwnedFd listener;
  REQUIRE(listen_unix(&job.peers[0].address, &listener).is_ok());
  Status status;
  std::thread caller([&] { status = job.connect(1, 60); });
  pollfd ready{listener.get(), POLLIN, 0};
  REQUIRE(poll(&ready, 1, 10000) == 1);
  OwnedFd accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  REQUIRE(accepted.valid());
  std::string reason;
  SECTION("it closes") {
    accepted.reset();
    reason = "PE 0 (pid 1000) closed the control connection before it answered";
  }
  SECTION("it is another PE") {
    const WelcomeBody body{5, 2};
    const Blob frame = make_frame(FrameOp::kWelcome, 0, {{&body, sizeof body}});
    REQUIRE(send(accepted.get(), frame->data(), frame->size(), MSG_NOSIGNAL) > 0);
    reason = "it answers as PE 5 of 2";
  }
  SECTION("it speaks out of turn") {
    const Blob frame = make_frame(FrameOp::kBye, 0, {});
    REQUIRE(send(accepted.get(), frame->data(), frame->size(), MSG_NOSIGNAL) > 0);
    reason = "instead of a welcome";
  }
  caller.join();
  require_text(status, Code::kPeerLost, reason);
}
