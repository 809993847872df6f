// The fault decorator: what a plan says happens in exactly that call, and a malformed plan is quoted.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/fabric/fault/fault_fabric.h"
#include "tests/catch.h"
#include "tests/unit/fabric_group.h"

using namespace heddle;
using namespace heddle::test;

namespace {

/// One PE on a host fabric with faults: endpoint of one page with memory.
struct Single {
  explicit Single(const std::string& text, int pe = 0) : window(page()) {
    FaultPlan plan;
    must(FaultPlan::parse(text, pe, &plan));
    fabric = std::make_unique<FaultFabric>(make_host_fabric(nullptr), std::move(plan));
  }
  /// 8 calls, whose numbers the tests know, up to the first that fails.
  std::vector<Status> set_up() {
    EndpointProperties properties;
    properties.size = page();
    bool ready = false;
    const std::function<Status()> calls[] = {
        [&] { return fabric->reserve_ids(1, &ids); },
        [&] { return fabric->set_window(ids.base, window.at(0), page()); },
        [&] { return fabric->create(ids.base, properties); },
        [&] { return fabric->query(ids.base, 1, &ready); },
        [&] { return fabric->allocate(page(), &memory); },
        [&] { return fabric->bind(ids.base, 0, memory, 0, page()); },
        [&] { return fabric->signal(ids.base, 0, 0, SignalOp::kSet); },
        [&] { return fabric->quiet(); },
    };
    std::vector<Status> results;
    for (const auto& call : calls) {
      results.push_back(call());
      if (!results.back().is_ok()) break;
    }
    return results;
  }
  uint64_t word(uint64_t offset) const { return *reinterpret_cast<const volatile uint64_t*>(window.at(offset)); }

  Reservation window;
  std::unique_ptr<FaultFabric> fabric;
  EndpointIds ids;
  MemoryId memory = 0;
};

Status parse(const std::string& text, FaultPlan* plan, int pe = 0) { return FaultPlan::parse(text, pe, plan); }

}  // namespace

TEST_CASE("an empty plan changes nothing but the window") {
  Single single("");
  for (const Status& status : single.set_up()) CHECK(status.is_ok());
  CHECK(single.fabric->calls() == 8);
  CHECK(single.fabric->calls(FabricMethod::kBind) == 1);
  CHECK(single.fabric->calls(FabricMethod::kPut) == 0);
  CHECK(single.fabric->window(single.ids.base) == nullptr);
  CHECK_FALSE(single.fabric->capabilities().mapped);
  CHECK(single.fabric->capabilities().native_atomics);
  CHECK(single.fabric->calls() == 8);  // these are not counted
}

TEST_CASE("the n-th call of all fails, and no other") {
  const char* names[] = {"reserve_ids", "set_window", "create", "query", "allocate", "bind", "signal", "quiet"};
  for (size_t n = 1; n <= 8; ++n) {
    Single single("fail=" + std::to_string(n));
    const auto results = single.set_up();
    REQUIRE(results.size() == n);
    const Status failed = results.back();
    CHECK(failed.code() == Code::kInternal);
    CHECK(failed.text() == "fault injected in call " + std::to_string(n) + " (" + names[n - 1] + ")");
  }
  Single single("fail=9");
  for (const Status& status : single.set_up()) CHECK(status.is_ok());
  CHECK_FALSE(single.fabric->fence().is_ok());
  CHECK(single.fabric->fence().is_ok());
}

TEST_CASE("the n-th call of one method fails") {
  Single single("fail=signal:3,fail=fence:1");
  for (const Status& status : single.set_up()) CHECK(status.is_ok());  // one signal
  CHECK(single.fabric->signal(single.ids.base, 0, 7, SignalOp::kSet).is_ok());
  const Status failed = single.fabric->signal(single.ids.base, 0, 8, SignalOp::kSet);
  CHECK(failed.text() == "fault injected in call 3 (signal)");
  CHECK(single.word(0) == 7);  // it did nothing
  CHECK_FALSE(single.fabric->fence().is_ok());
  CHECK(single.fabric->fence().is_ok());
}

TEST_CASE("an item may apply to one PE only") {
  FaultPlan plan;
  REQUIRE(parse("fail=1@pe=2,drop=put:1,delay=any:1us@pe=3,reorder@pe=2", &plan, 2).is_ok());
  CHECK(plan.faults.size() == 2);
  CHECK(plan.reorder);
  REQUIRE(parse("fail=1@pe=2,drop=put:1,delay=any:1us@pe=3,reorder@pe=2", &plan, 1).is_ok());
  CHECK(plan.faults.size() == 1);
  CHECK_FALSE(plan.reorder);
  Single other("fail=1@pe=1", 0), named("fail=1@pe=1", 1);
  CHECK(other.set_up()[0].is_ok());
  CHECK_FALSE(named.set_up()[0].is_ok());
}

TEST_CASE("delays are waited for") {
  Single single("delay=signal:20ms");
  for (const Status& status : single.set_up()) REQUIRE(status.is_ok());
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(single.fabric->signal(single.ids.base, 0, 1, SignalOp::kSet).is_ok());
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(20));
  FaultPlan plan;
  REQUIRE(parse("delay=any:100us", &plan).is_ok());
  CHECK(plan.faults[0].delay == std::chrono::microseconds(100));
  CHECK(plan.faults[0].method == FabricMethod::kAny);
}

TEST_CASE("a dropped operation succeeds and does nothing") {
  Single single("drop=put:2,drop=atomic:1,drop=put_signal:1,drop=put_counted:1,drop=signal:2");
  for (const Status& status : single.set_up()) REQUIRE(status.is_ok());
  const EndpointId id = single.ids.base;
  for (uint64_t value = 1; value <= 2; ++value) CHECK(single.fabric->put(id, 8, &value, 8).is_ok());
  CHECK(single.word(8) == 1);
  const uint64_t three = 3;
  CHECK(single.fabric->put(id, 8, &three, 8).is_ok());
  CHECK(single.word(8) == 3);
  for (const uint64_t expected : {0, 5}) {
    CHECK(single.fabric->atomic(AtomicOp::kAdd, AtomicType::kU64, id, 16, 5, 0, nullptr).is_ok());
    CHECK(single.word(16) == expected);
  }
  for (const uint64_t expected : {0, 1}) {
    CHECK(single.fabric->put_signal(id, 64, &three, 8, 24, 1, SignalOp::kAdd).is_ok());
    CHECK(single.word(24) == expected);
    CHECK(single.word(64) == 3 * expected);
  }
  for (const uint64_t expected : {0, 8}) {
    CHECK(single.fabric->put_counted(id, 72, &three, 8, 256).is_ok());
    CHECK(single.word(256) == expected);
  }
  for (const uint64_t expected : {0, 9}) {
    CHECK(single.fabric->signal(id, 32, 9, SignalOp::kSet).is_ok());
    CHECK(single.word(32) == expected);
  }
}

TEST_CASE("kill ends the process in that call") {
  for (const char* plan : {"kill=4", "kill=query:1"}) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Single single(plan);
      single.set_up();
      _exit(3);
    }
    int state = 0;
    REQUIRE(waitpid(child, &state, 0) == child);
    CHECK(WIFSIGNALED(state));
    CHECK(WTERMSIG(state) == SIGKILL);
  }
}

TEST_CASE("reorder really changes the order, the same for one seed") {
  // 32 puts of 32 numbers to one word between two quiets: the last one to be made stays.
  auto last_of_rounds = [](const std::string& plan) {
    Single single(plan);
    for (const Status& status : single.set_up()) must(status);
    std::vector<uint64_t> last;
    for (int round = 0; round < 20; ++round) {
      for (uint64_t value = 0; value < 32; ++value) must(single.fabric->put(single.ids.base, 8, &value, 8));
      must(single.fabric->quiet());
      last.push_back(single.word(8));
    }
    return last;
  };
  const auto shuffled = last_of_rounds("reorder");
  CHECK(std::set<uint64_t>(shuffled.begin(), shuffled.end()).size() > 5);
  CHECK(last_of_rounds("") == std::vector<uint64_t>(20, 31));
}

TEST_CASE("reorder keeps what a fence promises") {
  Single single("reorder=5");
  for (const Status& status : single.set_up()) REQUIRE(status.is_ok());
  for (int round = 0; round < 20; ++round) {
    for (uint64_t value = 1; value <= 10; ++value) {
      must(single.fabric->put(single.ids.base, 8, &value, 8));
      must(single.fabric->fence());
    }
    must(single.fabric->quiet());
    REQUIRE(single.word(8) == 10);
    uint64_t zero = 0, got = 1;
    must(single.fabric->put(single.ids.base, 8, &zero, 8));
    must(single.fabric->get(single.ids.base, 8, &got, 8));  // a get sees earlier puts
    REQUIRE(got == 0);
  }
}

TEST_CASE("held operations are made without anybody asking, and their failure comes with the next call") {
  Single single("reorder");
  for (const Status& status : single.set_up()) REQUIRE(status.is_ok());
  const auto* word = reinterpret_cast<const uint64_t*>(single.window.at(8));
  REQUIRE(single.fabric->signal(single.ids.base, 8, 4, SignalOp::kSet).is_ok());
  const Deadline deadline = Deadline::in(20);
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != 4) REQUIRE_FALSE(deadline.passed());
  REQUIRE(single.fabric->signal(60000, 8, 4, SignalOp::kSet).is_ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(single.fabric->quiet().code() == Code::kNotReady);
  CHECK(single.fabric->quiet().is_ok());
}

TEST_CASE("held operations are made when 64 are held, and what is held may go with the fabric") {
  Single single("reorder,delay=quiet:1us");
  for (const Status& status : single.set_up()) REQUIRE(status.is_ok());
  for (int i = 0; i < 1000; ++i) must(single.fabric->signal(single.ids.base, 8, 1, SignalOp::kAdd));
  must(single.fabric->quiet());
  CHECK(single.word(8) == 1000);
  must(single.fabric->signal(single.ids.base, 8, 1, SignalOp::kAdd));
  single.fabric.reset();
}

TEST_CASE("malformed plans are quoted") {
  FaultPlan plan;
  plan.seed = 77;
  for (const std::string bad : {"fail",
                                "fail=",
                                "fail=0",
                                "fail=-1",
                                "fail=1x",
                                "fail=nothing:1",
                                "fail=bind:",
                                "fail=bind:x",
                                "fail=bind:1:2",
                                "fail=99999999999999999999",
                                "delay=put",
                                "delay=100us",
                                "delay=put:100",
                                "delay=put:us",
                                "delay=put:1s",
                                "delay=put:9999999999ms",
                                "drop=1",
                                "drop=get:1",
                                "drop=bind:1",
                                "kill",
                                "kill=x",
                                "reorder=",
                                "reorder=x",
                                "explode=1",
                                ",",
                                "fail=1,",
                                ",fail=1",
                                "fail=1@",
                                "fail=1@pe",
                                "fail=1@pe=",
                                "fail=1@pe=x",
                                "fail=1@node=1",
                                " fail=1"}) {
    const Status status = parse("reorder," + bad, &plan);
    INFO(bad << ": " << status.text());
    CHECK(status.code() == Code::kInvalidValue);
    CHECK(status.text().find("HEDDLE_FAULT=\"reorder," + bad + "\"") != std::string::npos);
    CHECK(plan.seed == 77);  // untouched
  }
}
