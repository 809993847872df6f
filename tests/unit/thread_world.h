// Worlds whose PEs are threads of one process: the whole runtime but the launcher, cheap enough for sanitizers.
#pragma once

#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/world.h"

namespace heddle::test {

/// The meeting place of the threads of one job.
class ThreadJob {
 public:
  explicit ThreadJob(int size) : size_(size) {}
  int size() const { return size_; }

  Status allgather(int rank, const void* mine, size_t bytes, void* all, Deadline deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (arrived_ == 0) data_.assign(static_cast<size_t>(size_) * bytes, 0);
    std::memcpy(data_.data() + static_cast<size_t>(rank) * bytes, mine, bytes);
    const uint64_t round = round_;
    if (++arrived_ == size_) {
      result_ = data_;
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    } else {
      const auto done = [&] { return round_ != round; };
      if (deadline.is_none()) {
        changed_.wait(lock, done);
      } else if (!changed_.wait_until(lock, deadline.at(), done)) {
        return error(Code::kTimeout, "%d of %d ranks did not arrive", size_ - arrived_, size_);
      }
    }
    std::memcpy(all, result_.data(), result_.size());
    return Status::ok();
  }

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<char> data_, result_;
  int arrived_ = 0;
  uint64_t round_ = 0;
};

class ThreadBootstrap final : public Bootstrap {
 public:
  ThreadBootstrap(ThreadJob& job, int rank) : job_(job), rank_(rank) {}
  const char* name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return job_.size(); }
  int node_of(int) const override { return 0; }
  Status allgather(const void* mine, size_t bytes, void* all, Deadline deadline) override {
    return job_.allgather(rank_, mine, bytes, all, deadline);
  }
  Status barrier(Deadline deadline) override {
    char mine = 0;
    std::vector<char> all(static_cast<size_t>(size()));
    return allgather(&mine, 1, all.data(), deadline);
  }
  void abort(int, const std::string&) override {}

 private:
  ThreadJob& job_;
  const int rank_;
};

/// Settings for tests: small heaps, and a bound on every wait, so that a bug cannot hang.
inline Settings test_settings(std::vector<std::string> more = {}) {
  std::vector<std::string> list = {"NVSHMEM_SYMMETRIC_SIZE=16M", "NVSHMEM_CUMEM_GRANULARITY=1M", "HEDDLE_FABRIC=host",
                                   "HEDDLE_TIMEOUT=60", "HEDDLE_WAIT_TIMEOUT=60"};
  list.insert(list.begin(), more.begin(), more.end());
  Settings settings;
  std::vector<std::string> warnings;
  const Status status = Settings::from_list(list, &settings, &warnings);
  if (!status.is_ok() || !warnings.empty()) std::abort();
  return settings;
}

/// Runs `body` as every PE of a job of threads, one for each of `settings`, between join and finalize. The statuses of
/// join, body and finalize, by PE: the first that failed. `gpus`: what each PE asks for as cuda_device_id; by default
/// nothing.
inline std::vector<Status> run_world(const std::vector<Settings>& settings, const std::function<Status(World&)>& body,
                                     const std::vector<int>& gpus = {}) {
  const int n_pes = static_cast<int>(settings.size());
  ThreadJob job(n_pes);
  std::vector<Status> statuses(static_cast<size_t>(n_pes));
  std::vector<std::thread> threads;
  for (int pe = 0; pe < n_pes; ++pe) {
    threads.emplace_back([&, pe] {
      std::unique_ptr<World> world;
      Status& status = statuses[static_cast<size_t>(pe)];
      const int gpu = gpus.empty() ? -1 : gpus[static_cast<size_t>(pe)];
      status = World::join(settings[static_cast<size_t>(pe)], std::make_unique<ThreadBootstrap>(job, pe), &world, gpu);
      if (!status.is_ok()) return;
      status = body(*world);
      const Status finalized = world->finalize();
      if (status.is_ok()) status = finalized;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

/// The same with one set of settings for all PEs.
inline std::vector<Status> run_world(int n_pes, const Settings& settings, const std::function<Status(World&)>& body,
                                     const std::vector<int>& gpus = {}) {
  return run_world(std::vector<Settings>(static_cast<size_t>(n_pes), settings), body, gpus);
}

}  // namespace heddle::test
