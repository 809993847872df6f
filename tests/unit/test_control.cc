// The control channel with threads as PEs: connecting, collectives, messages and descriptors, orderly and other ends.
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <mutex>

#include "tests/unit/control_job.h"

using namespace control_test;

TEST_CASE("PEs connect and gather", "[control]") {
  const CapturedLog log;
  const int n = GENERATE(1, 2, 3, 5, 8);
  Job job(n);
  job.connect_all();
  require_ok(each_pe(n, [&](int pe) { return job.gather_int(pe, "first"); }));
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{4096}}) {
    std::vector<std::vector<unsigned char>> all(n, std::vector<unsigned char>(bytes * n));
    require_ok(each_pe(n, [&](int pe) {
      const std::vector<unsigned char> mine(bytes, static_cast<unsigned char>(pe + 1));
      return job[pe].allgather("bytes", mine.data(), bytes, all[pe].data(), Deadline::in(60));
    }));
    for (int pe = 0; pe < n; ++pe) {
      for (int from = 0; from < n; ++from) {
        const std::vector<unsigned char> slice(all[pe].begin() + static_cast<ptrdiff_t>(from * bytes),
                                               all[pe].begin() + static_cast<ptrdiff_t>((from + 1) * bytes));
        REQUIRE(slice == std::vector<unsigned char>(bytes, static_cast<unsigned char>(from + 1)));
      }
    }
  }
  job.leave_all();
  for (int pe = 0; pe < n; ++pe) CHECK(job[pe].poison().load() == 0);
  CHECK(log.lines() == 0);
}

TEST_CASE("64 PEs connect and gather in one process", "[control]") {
  const int n = allow_fds(6000) ? 64 : 20;
  Job job(n);
  job.connect_all();
  for (int round = 0; round < 5; ++round) {
    require_ok(each_pe(n, [&](int pe) { return job.gather_int(pe, "all", 60); }));
  }
  std::vector<std::vector<char>> all(n, std::vector<char>(4096 * n));
  require_ok(each_pe(n, [&](int pe) {
    const std::vector<char> mine(4096, static_cast<char>(pe));
    return job[pe].allgather("large", mine.data(), mine.size(), all[pe].data(), Deadline::in(60));
  }));
  for (int pe = 0; pe < n; ++pe) {
    for (int i = 0; i < 4096 * n; ++i) {
      if (all[pe][i] != static_cast<char>(i / 4096)) FAIL("PE " << pe << " has a wrong byte at " << i);
    }
  }
  job.leave_all();
}

TEST_CASE("A thousand gathers keep their contents apart", "[control]") {
  Job job(3);
  job.connect_all();
  require_ok(each_pe(3, [&](int pe) {
    for (int round = 0; round < 1000; ++round) {
      const int mine = round * 10 + pe;
      int all[3] = {};
      HEDDLE_RETURN_IF_ERROR(job[pe].allgather("round", &mine, sizeof mine, all, Deadline::in(60)));
      for (int i = 0; i < 3; ++i) {
        if (all[i] != round * 10 + i) return error(Code::kInternal, "round %d: %d from PE %d", round, all[i], i);
      }
    }
    return Status::ok();
  }));
  job.leave_all();
}

TEST_CASE("The time of one gather", "[.][latency]") {
  Job job(2);
  job.connect_all();
  const auto start = Clock::now();
  const int rounds = 20000;
  require_ok(each_pe(2, [&](int pe) {
    for (int i = 0; i < rounds; ++i) HEDDLE_RETURN_IF_ERROR(job.gather_int(pe, "time", 60));
    return Status::ok();
  }));
  WARN("allgather on 2 PEs: " << seconds_since(start) / rounds * 1e6 << " us");
  job.leave_all();
}

TEST_CASE("PEs agree on a status", "[control]") {
  Job job(4);
  job.connect_all();
  require_ok(each_pe(4, [&](int pe) { return job[pe].agree("all well", Status::ok(), Deadline::in(60)); }));
  const auto failed = each_pe(4, [&](int pe) {
    const Status mine = pe == 1   ? error(Code::kOutOfMemory, "no room for 4096 bytes")
                        : pe == 3 ? error(Code::kInternal, "something else")
                                  : Status::ok();
    return job[pe].agree("one fails", mine, Deadline::in(60));
  });
  for (const Status& status : failed) {
    REQUIRE(status.code() == Code::kOutOfMemory);
    REQUIRE(status.text() == "PE 1: no room for 4096 bytes");
  }
  require_ok(each_pe(4, [&](int pe) { return job[pe].agree("well again", Status::ok(), Deadline::in(60)); }));
  job.leave_all();
}

TEST_CASE("Different calls fail on every PE and name both", "[control]") {
  Job job(3);
  job.connect_all();
  const auto statuses =
      each_pe(3, [&](int pe) { return job.gather_int(pe, pe == 1 ? "nvshmem_finalize" : "nvshmem_malloc(4096)"); });
  for (const Status& status : statuses) {
    REQUIRE(status.code() == Code::kSymmetry);
    REQUIRE(status.text().find("PE 1") != std::string::npos);
    REQUIRE(status.text().find("in nvshmem_finalize") != std::string::npos);
    REQUIRE(status.text().find("in nvshmem_malloc(4096)") != std::string::npos);
    REQUIRE(status.text() == statuses[0].text());
  }
  const auto sizes = each_pe(3, [&](int pe) {
    const char mine[16] = {};
    char all[48];
    return job[pe].allgather("sizes", mine, pe == 2 ? 16 : 8, all, Deadline::in(60));
  });
  for (const Status& status : sizes) require_text(status, Code::kSymmetry, "PE 2 16 bytes");
  require_ok(each_pe(3, [&](int pe) { return job.gather_int(pe, "together again", 60); }));
  job.leave_all();
}

TEST_CASE("Limits of a gather are errors", "[control]") {
  Job job(1);
  char all[8192];
  require_text(job[0].allgather("big", all, 4097, all, Deadline::none()), Code::kInvalidValue, "4097");
  job.connect_all();
  require_text(job[0].allgather(std::string(1025, 'x'), all, 1, all, Deadline::none()), Code::kInvalidValue, "1025");
  Job unconnected(2);
  require_text(unconnected.gather_int(0, "early"), Code::kNotInitialized, "early");
  require_text(unconnected[0].make_courier()->post(1, "x", 1, -1), Code::kNotInitialized, "not connected");
}

TEST_CASE("A missing PE is named when the deadline has passed", "[control]") {
  Job job(4);
  const auto start = Clock::now();
  const auto statuses = each_pe(4, [&](int pe) { return pe >= 2 ? Status() : job.connect(pe, 0.4); });
  CHECK(seconds_since(start) < 5);
  require_text(statuses[0], Code::kTimeout, "PE 2 and PE 3 have not connected to PE 0 within 0.4 s");
  require_text(statuses[1], Code::kTimeout, "PE 2 and PE 3 have not connected to PE 1 within 0.4 s");
}

TEST_CASE("A PE that ended before it connected is noticed and named", "[control]") {
  const int victim = GENERATE(0, 1, 2);
  Job job(3);
  job.channels[victim].reset();
  const auto start = Clock::now();
  const auto statuses = each_pe(3, [&](int pe) {
    if (pe == victim) return Status();
    const Status status = job.connect(pe, 60);
    job.channels[pe].reset();  // as a PE whose init failed
    return status;
  });
  CHECK(seconds_since(start) < 3);
  bool named = false;
  for (int pe = 0; pe < 3; ++pe) {
    if (pe == victim) continue;
    INFO("PE " << pe << ": " << statuses[pe].text());
    REQUIRE(statuses[pe].code() == Code::kPeerLost);
    named = named || statuses[pe].text().find(format("PE %d (pid %d)", victim, 1000 + victim)) != std::string::npos;
  }
  CHECK(named);
}

TEST_CASE("A PE missing from a gather is named to all when the earliest deadline has passed", "[control]") {
  const int missing = GENERATE(0, 1, 2);
  Job job(3);
  job.connect_all();
  std::atomic<int> failed{0};
  const auto statuses = each_pe(3, [&](int pe) {
    if (pe == missing && !eventually([&] { return failed == 2; })) return error(Code::kInternal, "nobody failed");
    const Status status = job.gather_int(pe, "the step", pe == missing ? 60 : pe == 1 ? 0.3 : 0.4);
    ++failed;
    return status;
  });
  const std::string text = format("PE %d has not arrived in the step within", missing);
  for (const Status& status : statuses) require_text(status, Code::kTimeout, text);
  require_ok(each_pe(3, [&](int pe) { return job.gather_int(pe, "the next step", 60); }));
  job.leave_all();
}

TEST_CASE("A death ends every wait within a second", "[control]") {
  const int victim = GENERATE(0, 1, 2);
  Job job(3);
  std::mutex mutex;
  std::vector<PeerLoss> told[3];
  for (int pe = 0; pe < 3; ++pe) {
    job[pe].on_loss([&, pe](const PeerLoss& loss) {
      std::lock_guard<std::mutex> lock(mutex);
      told[pe].push_back(loss);
    });
  }
  job.connect_all();
  std::atomic<int> waiting{0};
  double waited[3] = {};
  Clock::time_point died;
  const auto statuses = each_pe(3, [&](int pe) {
    if (pe == victim) {
      eventually([&] { return waiting == 2; });
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      died = Clock::now();
      job.channels[pe].reset();
      return Status();
    }
    ++waiting;
    const Status status = job.gather_int(pe, "the wait");
    waited[pe] = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    return status;
  });
  const std::string text = format("PE %d (pid %d) ended without nvshmem_finalize", victim, 1000 + victim);
  for (int pe = 0; pe < 3; ++pe) {
    if (pe == victim) continue;
    require_text(statuses[pe], Code::kPeerLost, text);
    CHECK(waited[pe] - std::chrono::duration<double>(died.time_since_epoch()).count() < 1.0);
    CHECK(job[pe].poison().load() == static_cast<uint32_t>(victim) + 1);
    CHECK(job[pe].loss().pe == victim);
    CHECK(job[pe].loss().text.find(text) == 0);
    CHECK(eventually([&] {
      std::lock_guard<std::mutex> lock(mutex);
      return told[pe].size() == 1 && told[pe][0].pe == victim;
    }));
    require_text(job.gather_int(pe, "later"), Code::kPeerLost, text);
    require_text(job[pe].make_courier()->post(victim, "x", 1, -1), Code::kPeerLost, format("PE %d", victim));
  }
}

TEST_CASE("A killed process is noticed by the others", "[control]") {
  Job job(3);
  pid_t children[3];
  for (int pe = 0; pe < 3; ++pe) {
    children[pe] = fork();
    REQUIRE(children[pe] >= 0);
    if (children[pe] != 0) continue;
    for (int other = 0; other < 3; ++other) {
      if (other != pe) job.channels[other].reset();
    }
    if (!job.connect(pe).is_ok() || !job.gather_int(pe, "connected", 60).is_ok()) _exit(1);
    if (pe == 1) kill(getpid(), SIGKILL);
    const auto start = Clock::now();
    const Status status = job.gather_int(pe, "the wait");
    const bool right = status.code() == Code::kPeerLost && job[pe].poison().load() == 2 && seconds_since(start) < 5 &&
                       status.text().find("PE 1 (pid 1001) ended without nvshmem_finalize") == 0;
    _exit(right ? 0 : 2);
  }
  for (int pe = 0; pe < 3; ++pe) {
    int status = 0;
    REQUIRE(waitpid(children[pe], &status, 0) == children[pe]);
    if (pe == 1) {
      CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    } else {
      CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    }
  }
}

TEST_CASE("A loss before the handler came is told when it comes", "[control]") {
  Job job(2);
  job.connect_all();
  job.channels[1].reset();
  REQUIRE(eventually([&] { return job[0].poison().load() == 2; }));
  std::atomic<int> told{-1};
  job[0].on_loss([&](const PeerLoss& loss) { told = loss.pe; });
  CHECK(eventually([&] { return told == 1; }));
  job[0].on_loss(nullptr);
}

TEST_CASE("An orderly leave is no loss", "[control]") {
  Job job(3);
  std::atomic<int> told{0};
  for (int pe = 0; pe < 3; ++pe) job[pe].on_loss([&](const PeerLoss&) { ++told; });
  job.connect_all();
  require_ok(each_pe(3, [&](int pe) {
    HEDDLE_RETURN_IF_ERROR(job.gather_int(pe, "finalize"));
    job[pe].leave();
    job[pe].leave();
    return Status::ok();
  }));
  for (int pe = 0; pe < 3; ++pe) {
    CHECK(job[pe].poison().load() == 0);
    CHECK(job[pe].loss().pe == -1);
    require_text(job.gather_int(pe, "late"), Code::kNotInitialized, "late");
  }
  CHECK(told == 0);
}

TEST_CASE("Leaving while others gather fails theirs, and does not wait for the dead", "[control]") {
  const int leaver = GENERATE(0, 1);
  Job job(3);
  job.connect_all();
  const auto statuses = each_pe(3, [&](int pe) {
    if (pe != leaver) return job.gather_int(pe, "nvshmem_barrier_all");
    const auto start = Clock::now();
    job[pe].leave();
    return seconds_since(start) < 5 ? Status() : error(Code::kTimeout, "leave took long");
  });
  REQUIRE(statuses[leaver].is_ok());
  for (int pe = 0; pe < 3; ++pe) {
    if (pe == leaver) continue;
    require_text(statuses[pe], Code::kSymmetry, format("PE %d has left (nvshmem_finalize) while", leaver));
    require_text(job[pe].make_courier()->post(leaver, "x", 1, -1), Code::kPeerLost, format("PE %d has left", leaver));
    CHECK(job[pe].poison().load() == 0);
  }
}

TEST_CASE("Who leaves because of a loss hands the cause on: the others name the lost PE, not the one that left",
          "[control]") {
  const int leaver = GENERATE(0, 1);
  for (int round = 0; round < 25; ++round) {
    Job job(3);
    job.connect_all();
    const int waiter = 1 - leaver;
    const std::vector<Status> statuses = each_pe(3, [&](int pe) -> Status {
      if (pe == 2) return job.channels[2].reset(), Status();
      Status status;
      if (pe == waiter) status = job.gather_int(pe, "nvshmem_finalize", 20);
      while (job[pe].loss().pe < 0) std::this_thread::yield();
      return job[pe].leave(), status;
    });
    CAPTURE(leaver, round);
    require_text(statuses[static_cast<size_t>(waiter)], Code::kPeerLost, "PE 2 (pid 1002) ended");
  }
}

TEST_CASE("send_exit reaches every peer's handler", "[control]") {
  Job job(3);
  std::atomic<int> seen[3] = {};
  for (int pe = 0; pe < 3; ++pe) {
    job[pe].on_exit([&, pe](int from, int code) { seen[pe] = from * 1000 + code; });
  }
  job.connect_all();
  job[2].send_exit(17);
  CHECK(eventually([&] { return seen[0] == 2017 && seen[1] == 2017; }));
  CHECK(seen[2] == 0);
  job.leave_all();
}

TEST_CASE("Without a handler send_exit ends the peer's process", "[control]") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Job job(2);
    each_pe(2, [&](int pe) {
      if (!job.connect(pe).is_ok()) _exit(99);
      if (pe == 0) job[0].send_exit(23);
      std::this_thread::sleep_for(std::chrono::seconds(20));
      return Status();
    });
    _exit(98);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 23);
}

TEST_CASE("No descriptor is left over", "[control]") {
  { const CapturedLog log; }
  const int before = open_fds();
  {
    Job job(4, true, {0, 0, 1, 1}, test_settings({"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=lo"}));
    job.connect_all();
    auto courier = job[0].make_courier();
    REQUIRE(courier->post(1, "kept", 4, text_fd("never received").get()).is_ok());
    require_ok(each_pe(4, [&](int pe) { return job.gather_int(pe, "all", 60); }));
    courier.reset();
    job.channels[3].reset();
    REQUIRE(eventually([&] { return job[0].poison().load() == 4; }));
    job[0].leave();
  }
  CHECK(open_fds() == before);
}
