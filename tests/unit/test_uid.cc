// Unique ids and their rendezvous, with threads as ranks and with strangers.
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "bootstrap/bootstrap.h"
#include "bootstrap/rendezvous.h"
#include "catch.h"
#include "runtime/log.h"

using namespace heddle;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

int entries(const char* folder) {
  int count = 0;
  if (DIR* dir = opendir(folder)) {
    while (readdir(dir)) ++count;
    closedir(dir);
  }
  return count;
}

/// Threads and descriptors of this process, to see later that nothing is left.
class Residue {
 public:
  Residue() {
    std::thread([] {}).join();  // the first thread of a process may bring helpers, of ThreadSanitizer for example
    threads_ = entries("/proc/self/task");
    descriptors_ = entries("/proc/self/fd");
  }
  /// Gives the rendezvous at most 5 s to end.
  bool is_gone() const {
    for (int i = 0; i < 500; ++i) {
      if (entries("/proc/self/task") <= threads_ && entries("/proc/self/fd") <= descriptors_) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  int threads_ = 0, descriptors_ = 0;
};

Settings loopback(double timeout = 20) {
  Settings settings;
  settings.socket_ifname = "lo";
  settings.socket_family = "AF_INET";
  settings.timeout = timeout;
  return settings;
}

/// Runs `body` once per rank, each in its own thread, and gives every rank's status.
std::vector<Status> on_ranks(int count, const std::function<Status(int)>& body) {
  std::vector<Status> results(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] { results[static_cast<size_t>(rank)] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

Status exchange(Bootstrap& boot, size_t bytes, Deadline deadline = Deadline::in(20)) {
  std::vector<unsigned char> mine(bytes), all(bytes * static_cast<size_t>(boot.size()), 0xee);
  const auto byte_of = [](int rank, size_t i) { return static_cast<unsigned char>(rank * 31 + static_cast<int>(i)); };
  for (size_t i = 0; i < bytes; ++i) mine[i] = byte_of(boot.rank(), i);
  HEDDLE_RETURN_IF_ERROR(boot.allgather(mine.data(), bytes, all.data(), deadline));
  for (int rank = 0; rank < boot.size(); ++rank) {
    for (size_t i = 0; i < bytes; ++i) {
      if (all[static_cast<size_t>(rank) * bytes + i] != byte_of(rank, i)) {
        return error(Code::kInternal, "byte %zu of rank %d is wrong", i, rank);
      }
    }
  }
  return Status::ok();
}

/// A whole job: join, exchanges of several sizes, barriers, node map.
Status whole_job(const Settings& settings, const nvshmemx_uniqueid_t& id, int rank, int size) {
  std::unique_ptr<Bootstrap> boot;
  HEDDLE_RETURN_IF_ERROR(make_uid_bootstrap(settings, id, rank, size, &boot));
  if (boot->rank() != rank || boot->size() != size || std::string(boot->name()) != "uid") {
    return error(Code::kInternal, "rank or size is wrong");
  }
  for (size_t bytes : {size_t{1}, size_t{300}, size_t{0}, size_t{70000}}) {
    HEDDLE_RETURN_IF_ERROR(exchange(*boot, bytes).in(format("%zu bytes", bytes)));
    HEDDLE_RETURN_IF_ERROR(boot->barrier(Deadline::in(20)));
  }
  for (int other = 0; other < size; ++other) {
    if (boot->node_of(other) != 0) return error(Code::kInternal, "rank %d is on node %d", other, boot->node_of(other));
  }
  if (boot->node_of(size) != -1 || boot->node_of(-1) != -1) return error(Code::kInternal, "a stranger has a node");
  return Status::ok();
}

/// A connection to the rendezvous of `id` made by hand.
class RawClient {
 public:
  explicit RawClient(const nvshmemx_uniqueid_t& id) {
    std::memcpy(&content_, id.internal, sizeof content_);
    fd_ = OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(content_.port);
    std::memcpy(&to.sin_addr, content_.ip, 4);
    timeval limit = {10, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = connect(fd_.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  bool connected() const { return connected_; }
  void show_secret(bool right = true) {
    if (!right) content_.secret[15] ^= 1;
    send_bytes(content_.secret, sizeof content_.secret);
  }
  void send_bytes(const void* bytes, size_t count) { (void)!::send(fd_.get(), bytes, count, MSG_NOSIGNAL); }
  void join(int rank, int size) {
    JoinMessage message;
    message.rank = rank;
    message.size = size;
    RendezvousHeader header;
    header.op = static_cast<uint16_t>(RendezvousOp::kJoin);
    header.length = sizeof message;
    send_bytes(&header, sizeof header);
    send_bytes(&message, sizeof message);
  }
  /// True when the other side ends the connection within 10 s.
  bool is_dropped() {
    char byte;
    const ssize_t got = recv(fd_.get(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  void close() { fd_.reset(); }

 private:
  UniqueIdContent content_;
  OwnedFd fd_;
  bool connected_ = false;
};

}  // namespace

TEST_CASE("a unique id brings ranks together") {
  const Residue residue;
  Settings settings = loopback();
  const bool ipv6 = GENERATE(false, true);
  if (ipv6) {
    if (access("/proc/net/if_inet6", F_OK) != 0) {
      WARN("skipped for IPv6: this kernel has none");
      return;
    }
    settings = Settings();
    settings.timeout = 20;
    settings.session_id = "[::1]:0";
  }
  const int size = GENERATE(1, 2, 5);
  INFO(size << " ranks, " << (ipv6 ? "IPv6" : "IPv4"));
  nvshmemx_uniqueid_t id = {};
  REQUIRE(create_unique_id(settings, &id).text() == "");
  CHECK(id.version == NVSHMEMX_UNIQUEID_VERSION);
  UniqueIdContent content;
  std::memcpy(&content, id.internal, sizeof content);
  CHECK(content.family == (ipv6 ? AF_INET6 : AF_INET));
  for (const Status& status : on_ranks(size, [&](int rank) { return whole_job(settings, id, rank, size); })) {
    CHECK(status.text() == "");
  }
  CHECK(residue.is_gone());
}

TEST_CASE("many ids at once and one after the other leave nothing") {
  const Residue residue;
  const Settings settings = loopback();
  std::vector<nvshmemx_uniqueid_t> ids(8);
  for (nvshmemx_uniqueid_t& id : ids) REQUIRE(create_unique_id(settings, &id).is_ok());
  CHECK(std::memcmp(ids[0].internal, ids[1].internal, sizeof ids[0].internal) != 0);
  for (int round = 0; round < 4; ++round) {
    const auto job = [&](int k) { return whole_job(settings, ids[static_cast<size_t>(k) / 2], k % 2, 2); };
    for (const Status& status : on_ranks(16, job)) CHECK(status.text() == "");
    for (nvshmemx_uniqueid_t& id : ids) REQUIRE(create_unique_id(settings, &id).is_ok());
  }
  for (const Status& status :
       on_ranks(8, [&](int k) { return whole_job(settings, ids[static_cast<size_t>(k)], 0, 1); })) {
    CHECK(status.text() == "");
  }
  CHECK(residue.is_gone());
}

TEST_CASE("strangers without the secret are dropped, and the job goes on") {
  char log_name[] = "/tmp/test_bootstrap-XXXXXX";
  const OwnedFd log_file(mkstemp(log_name));
  REQUIRE(log_file.valid());
  Settings logged;
  logged.debug_file = log_name;
  REQUIRE(configure_log(logged, -1).is_ok());

  const Settings settings = loopback();
  nvshmemx_uniqueid_t id = {};
  REQUIRE(create_unique_id(settings, &id).is_ok());
  RawClient silent(id), wrong(id), wordy(id), leaver(id);
  REQUIRE((silent.connected() && wrong.connected() && wordy.connected() && leaver.connected()));
  wrong.show_secret(false);
  CHECK(wrong.is_dropped());
  const std::string request(100000, 'G');
  wordy.send_bytes(request.data(), request.size());
  CHECK(wordy.is_dropped());
  leaver.close();
  for (const Status& status : on_ranks(2, [&](int rank) { return whole_job(settings, id, rank, 2); })) {
    CHECK(status.text() == "");
  }
  CHECK(silent.is_dropped());  // with the job

  char text[4096] = {};
  const ssize_t length = pread(log_file.get(), text, sizeof text - 1, 0);
  REQUIRE(length > 0);
  CHECK(contains(text, "wrong secret"));
  CHECK(std::count(text, text + length, '\n') == 1);  // one warning for both
  unlink(log_name);
}

TEST_CASE("ranks that contradict each other are all told") {
  const Settings settings = loopback();
  nvshmemx_uniqueid_t id = {};
  REQUIRE(create_unique_id(settings, &id).is_ok());
  std::function<Status(int)> body;
  std::string said;
  SECTION("the same rank twice") {
    body = [&](int k) {
      std::unique_ptr<Bootstrap> boot;
      return make_uid_bootstrap(settings, id, k == 2 ? 1 : k, 4, &boot);  // rank 3 never comes
    };
    said = "two processes joined as rank 1 of 4";
  }
  SECTION("another number of ranks") {
    body = [&](int k) {
      std::unique_ptr<Bootstrap> boot;
      return make_uid_bootstrap(settings, id, k, k == 2 ? 5 : 4, &boot);
    };
    said = "pass the same nranks everywhere";
  }
  SECTION("a rank out of range") {
    body = [&](int k) {
      std::unique_ptr<Bootstrap> boot;
      return make_uid_bootstrap(settings, id, k == 2 ? 4 : k, 4, &boot);
    };
    said = "joined as rank 4 of 4";
  }
  SECTION("a negative rank") {
    body = [&](int k) {
      std::unique_ptr<Bootstrap> boot;
      return make_uid_bootstrap(settings, id, k == 2 ? -1 : k, 4, &boot);
    };
    said = "joined as rank -1 of 4";
  }
  const auto begun = std::chrono::steady_clock::now();
  for (const Status& status : on_ranks(3, body)) {
    // One that comes when the others have gone finds the rendezvous closed.
    INFO(status.text());
    CHECK(!status.is_ok());
    CHECK((contains(status.text(), said) || status.code() == Code::kPeerLost));
  }
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(10));
}

TEST_CASE("who is missing when the deadline passes is named") {
  const Settings settings = loopback(0.4);
  nvshmemx_uniqueid_t id = {};
  REQUIRE(create_unique_id(settings, &id).is_ok());
  const auto begun = std::chrono::steady_clock::now();
  SECTION("while joining") {
    const auto results = on_ranks(2, [&](int k) {
      std::unique_ptr<Bootstrap> boot;
      return make_uid_bootstrap(settings, id, 2 * k, 4, &boot);
    });
    for (const Status& status : results) {
      CHECK(status.code() == Code::kTimeout);
      CHECK(contains(status.text(), "ranks 1, 3 of 4 did not join"));
    }
  }
  SECTION("in an exchange") {
    const auto results = on_ranks(3, [&](int rank) -> Status {
      std::unique_ptr<Bootstrap> boot;
      Settings patient = settings;
      patient.timeout = 20;
      HEDDLE_RETURN_IF_ERROR(make_uid_bootstrap(patient, id, rank, 3, &boot));
      HEDDLE_RETURN_IF_ERROR(exchange(*boot, 8));
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
      const Status status = exchange(*boot, 8, Deadline::in(0.4));
      // Out of step now, so the next one fails too, with the same word.
      if (exchange(*boot, 8, Deadline::in(0.4)).text() != status.text()) return Status::ok();
      return status;
    });
    for (const Status& status : results) {  // the late one is told the same
      CHECK(status.code() == Code::kTimeout);
      CHECK(contains(status.text(), "rank 1 of 3 did not come"));
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  CHECK(took.count() > 0.39);
  CHECK(took.count() < 8);
}

TEST_CASE("a rank that dies is named to the others") {
  const Settings settings = loopback();
  nvshmemx_uniqueid_t id = {};
  REQUIRE(create_unique_id(settings, &id).is_ok());
  RawClient dying(id);
  dying.show_secret();
  dying.join(1, 3);
  const bool while_joining = GENERATE(true, false);
  const auto results = on_ranks(3, [&](int k) -> Status {
    if (k == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      dying.close();
      return Status::ok();
    }
    if (k == 2 && while_joining) return Status::ok();
    std::unique_ptr<Bootstrap> boot;
    HEDDLE_RETURN_IF_ERROR(make_uid_bootstrap(settings, id, k, 3, &boot));
    return exchange(*boot, 16);
  });
  for (size_t k : {size_t{0}, size_t{2}}) {
    if (k == 2 && while_joining) continue;
    CHECK(results[k].code() == Code::kPeerLost);
    CHECK(contains(results[k].text(), "rank 1"));
  }
}

TEST_CASE("a rank that leaves early, aborts, differs or talks nonsense ends the exchange for all") {
  const Settings settings = loopback();
  nvshmemx_uniqueid_t id = {};
  REQUIRE(create_unique_id(settings, &id).is_ok());
  const auto job = [&](const std::function<Status(Bootstrap&)>& odd) {
    return on_ranks(3, [&](int rank) -> Status {
      std::unique_ptr<Bootstrap> boot;
      HEDDLE_RETURN_IF_ERROR(make_uid_bootstrap(settings, id, rank, 3, &boot));
      return rank == 1 ? odd(*boot) : exchange(*boot, 16);
    });
  };
  SECTION("leaves") {
    const auto results = job([](Bootstrap&) { return Status::ok(); });
    for (size_t k : {size_t{0}, size_t{2}}) CHECK(contains(results[k].text(), "rank 1 has left the job"));
  }
  SECTION("aborts") {
    const auto results = job([](Bootstrap& boot) {
      boot.abort(9, "enough");
      return boot.barrier(Deadline::in(5));
    });
    for (const Status& status : results) {
      CHECK(status.code() == Code::kPeerLost);
      CHECK(contains(status.text(), "rank 1"));
      CHECK(contains(status.text(), "exit code 9, enough"));
    }
  }
  SECTION("differs") {
    for (const Status& status : job([](Bootstrap& boot) { return exchange(boot, 17); })) {
      CHECK(status.code() == Code::kSymmetry);
      CHECK(contains(status.text(), "rank 1 gathers 17"));
    }
  }
  SECTION("asks for too much") {
    const auto results = job([](Bootstrap& boot) {
      std::vector<char> big(kMaxRendezvousRecord + 1);
      return boot.allgather(big.data(), big.size(), nullptr, Deadline::in(5));
    });
    CHECK(results[1].code() == Code::kInvalidValue);
    CHECK(!results[0].is_ok());
  }
  SECTION("talks nonsense") {
    RawClient raw(id);
    raw.show_secret();
    const std::string nonsense(64, 'x');
    raw.send_bytes(nonsense.data(), nonsense.size());
    std::unique_ptr<Bootstrap> boot;
    const Status status = make_uid_bootstrap(settings, id, 0, 2, &boot);
    CHECK(!status.is_ok());
    CHECK((contains(status.text(), "broken message") || status.code() == Code::kPeerLost));
  }
}

TEST_CASE("an id that is no id is refused") {
  const Settings settings = loopback();
  std::unique_ptr<Bootstrap> boot;
  nvshmemx_uniqueid_t id = {};
  CHECK(make_uid_bootstrap(settings, id, 0, 1, &boot).code() == Code::kInvalidValue);
  id = NVSHMEMX_UNIQUEID_INITIALIZER;
  CHECK(contains(make_uid_bootstrap(settings, id, 0, 1, &boot).text(), "the unique id is empty"));
  nvshmemx_uniqueid_t good = {};
  REQUIRE(create_unique_id(settings, &good).is_ok());
  id = good;
  id.version = 3;
  CHECK(contains(make_uid_bootstrap(settings, id, 0, 1, &boot).text(), "has version 0x3"));
  id = good;
  id.internal[120] = 1;
  CHECK(contains(make_uid_bootstrap(settings, id, 0, 1, &boot).text(), "damaged"));
  id = good;
  id.internal[0] ^= 1;
  CHECK(make_uid_bootstrap(settings, id, 0, 1, &boot).code() == Code::kInvalidValue);
  CHECK(boot == nullptr);
  CHECK(whole_job(settings, good, 0, 1).text() == "");
}

TEST_CASE("an id serves one job") {
  const Settings settings = loopback(5);
  nvshmemx_uniqueid_t id = {};
  REQUIRE(create_unique_id(settings, &id).is_ok());
  std::unique_ptr<Bootstrap> first, second;
  REQUIRE(make_uid_bootstrap(settings, id, 0, 1, &first).is_ok());
  const Status during = make_uid_bootstrap(settings, id, 0, 1, &second);
  CHECK(during.code() == Code::kInvalidValue);
  CHECK(contains(during.text(), "has been used"));
  CHECK(exchange(*first, 8).text() == "");  // the job that has it is not disturbed
  first.reset();
  Status after;
  for (int i = 0; i < 100; ++i) {  // the rendezvous ends a moment after the bye
    after = make_uid_bootstrap(settings, id, 0, 1, &second);
    if (after.code() == Code::kPeerLost) break;
  }
  CHECK(after.code() == Code::kPeerLost);
  CHECK(contains(after.text(), "one job"));
  CHECK(second == nullptr);
}

TEST_CASE("settings say where an id listens") {
  nvshmemx_uniqueid_t id = {};
  Settings settings;
  SECTION("an unknown interface") {
    settings.socket_ifname = "nosuchif0";
    const Status status = create_unique_id(settings, &id);
    CHECK(status.code() == Code::kInvalidValue);
    CHECK(contains(status.text(), "nosuchif0"));
    CHECK(contains(status.text(), " lo"));
  }
  SECTION("an unknown family") {
    settings.socket_family = "AF_IPX";
    CHECK(contains(create_unique_id(settings, &id).text(), "\"AF_IPX\""));
  }
  SECTION("malformed session ids") {
    for (const char* text : {"127.0.0.1", ":80", "127.0.0.1:", "::1:80", "127.0.0.1:http", "127.0.0.1:99999",
                             "0.0.0.0:0", "[::]:0", "300.1.2.3.4:5", "192.0.2.1:0"}) {
      settings.session_id = text;
      const Status status = create_unique_id(settings, &id);
      INFO(text << ": " << status.text());
      CHECK(status.code() == Code::kInvalidValue);
      CHECK(contains(status.text(), std::string("\"") + text + "\""));
    }
  }
  SECTION("a session id gives the address and the port") {
    settings.session_id = "127.0.0.1:0";
    REQUIRE(create_unique_id(settings, &id).is_ok());
    UniqueIdContent content;
    std::memcpy(&content, id.internal, sizeof content);
    CHECK(content.port != 0);
    const unsigned char expected[4] = {127, 0, 0, 1};
    CHECK(std::memcmp(content.ip, expected, 4) == 0);
    settings.session_id = "127.0.0.1:" + std::to_string(content.port);
    nvshmemx_uniqueid_t other = {};
    CHECK(contains(create_unique_id(settings, &other).text(), "in use"));
    CHECK(whole_job(settings, id, 0, 1).text() == "");
  }
}
