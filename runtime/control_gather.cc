#include "runtime/control_gather.h"

#include <algorithm>
#include <cstring>

namespace heddle {
namespace {

// How long a member whose deadline passed, or who saw a loss, still waits for PE 0's verdict, which names the cause.
constexpr auto kTimeoutGrace = std::chrono::milliseconds(1000);
constexpr auto kLossGrace = std::chrono::milliseconds(500);
constexpr size_t kMaxEarly = 64;          // rounds that a member may be ahead
constexpr size_t kRememberedRounds = 16;  // failed rounds whose verdict late arrivals get
constexpr size_t kMaxText = kMaxFrameBytes - sizeof(GatheredBody);

bool before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }  // right also when numbers wrap

}  // namespace

std::string name_pes(const std::vector<int>& pes) {
  constexpr size_t kShown = 8;
  const size_t shown = pes.size() <= kShown ? pes.size() : kShown - 1;
  const size_t more = pes.size() - shown;
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == pes.size() ? " and " : ", ";
    text += format("PE %d", pes[i]);
  }
  return more == 0 ? text : text + format(" and %zu more PEs", more);
}

Gather::Gather(int my_pe, int n_pes, Send send)
    : my_pe_(my_pe), n_pes_(n_pes), send_(std::move(send)), arrived_(my_pe == 0 ? n_pes : 0) {
  if (my_pe == 0) next_sequence_.assign(n_pes, 1);
}

Status Gather::run(const std::string& tag, const void* mine, size_t bytes, void* all, Deadline deadline) {
  if (bytes > kMaxBytes || tag.size() > kMaxTag) {
    return error(Code::kInvalidValue, "allgather of %zu bytes with a tag of %zu characters; the limits are %zu and %zu",
                 bytes, tag.size(), kMaxBytes, kMaxTag);
  }
  if (n_pes_ == 1) {
    if (bytes > 0) std::memcpy(all, mine, bytes);
    return Status::ok();
  }
  std::lock_guard<std::mutex> call(call_mutex_);
  std::unique_lock<std::mutex> lock(mutex_);
  if (!lost_.is_ok()) return lost_;
  answer_ = Answer();
  answer_.sequence = ++calls_;
  answer_.expected = bytes * n_pes_;
  const int timeout_ms = deadline.poll_ms();
  const double seconds = timeout_ms / 1000.0;
  const auto* data = static_cast<const unsigned char*>(mine);
  if (my_pe_ == 0) {
    Contribution own{calls_, tag, {}, deadline.at(), seconds};
    if (bytes > 0) own.data.assign(data, data + bytes);
    add(0, std::move(own));
  } else if (!hub_left_) {
    const GatherBody body{timeout_ms, static_cast<uint32_t>(tag.size()), static_cast<uint32_t>(bytes)};
    const Status sent =
        send_(0, make_frame(FrameOp::kGather, calls_, {{&body, sizeof body}, {tag.data(), tag.size()}, {data, bytes}}));
    // PE 0 is gone: what its end-of-file says is the better text, and about to come.
    if (!sent.is_ok() && sent.code() != Code::kPeerLost) return sent;
  }
  HEDDLE_RETURN_IF_ERROR(await_answer(lock, tag, deadline, seconds));
  if (!answer_.status.is_ok()) return answer_.status;
  if (bytes > 0) std::memcpy(all, answer_.data.data(), answer_.expected);
  return Status::ok();
}

Status Gather::await_answer(std::unique_lock<std::mutex>& lock, const std::string& tag, Deadline deadline,
                            double seconds) {
  const auto never = Clock::time_point::max();
  const auto own_end = deadline.is_none() ? never : my_pe_ == 0 ? deadline.at() : deadline.at() + kTimeoutGrace;
  while (!answer_.done) {
    if (hub_lost_) return lost_;
    if (hub_left_) {
      if (!lost_.is_ok()) return lost_;  // that is why it left
      return error(Code::kSymmetry, "PE 0 has left (nvshmem_finalize) while PE %d is in %s", my_pe_, tag.c_str());
    }
    const bool lost = !lost_.is_ok();
    const auto until = lost ? std::min(own_end, lost_at_ + kLossGrace) : own_end;
    if (until == never) {
      changed_.wait(lock);
      continue;
    }
    if (Clock::now() < until) {
      changed_.wait_until(lock, until);
      continue;
    }
    if (lost) return lost_;
    if (my_pe_ == 0) {
      expire_locked();
      continue;
    }
    return error(Code::kTimeout, "%s: no answer from PE 0, which collects for all PEs, within %.3g s", tag.c_str(),
                 seconds);
  }
  return Status::ok();
}

Status Gather::on_gather(int pe, uint32_t sequence, const unsigned char* body, size_t bytes) {
  GatherBody head;
  if (my_pe_ != 0) return error(Code::kInvalidValue, "a contribution that belongs to PE 0");
  if (bytes < sizeof head) return error(Code::kInvalidValue, "a contribution of only %zu bytes", bytes);
  std::memcpy(&head, body, sizeof head);
  if (head.tag_bytes > kMaxTag || head.data_bytes > kMaxBytes ||
      bytes != sizeof head + head.tag_bytes + head.data_bytes) {
    return error(Code::kInvalidValue, "a contribution of %zu bytes that claims %u of tag and %u of data", bytes,
                 head.tag_bytes, head.data_bytes);
  }
  Contribution contribution;
  contribution.sequence = sequence;
  const unsigned char* at = body + sizeof head;
  contribution.tag.assign(reinterpret_cast<const char*>(at), head.tag_bytes);
  contribution.data.assign(at + head.tag_bytes, at + head.tag_bytes + head.data_bytes);
  if (head.timeout_ms >= 0) {
    contribution.expires = Clock::now() + std::chrono::milliseconds(head.timeout_ms);
    contribution.seconds = head.timeout_ms / 1000.0;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (sequence != next_sequence_[pe] || arrived_[pe].size() >= kMaxEarly) {
    return error(Code::kInvalidValue, "a contribution to round %u where %u is due", sequence, next_sequence_[pe]);
  }
  ++next_sequence_[pe];
  add(pe, std::move(contribution));
  return Status::ok();
}

int Gather::lost_pe_in(const unsigned char* body, size_t bytes) {
  GatheredBody head;
  if (bytes < sizeof head) return -1;
  std::memcpy(&head, body, sizeof head);
  return head.code == static_cast<int32_t>(Code::kPeerLost) ? head.lost_pe : -1;
}

Status Gather::on_gathered(int pe, uint32_t sequence, const unsigned char* body, size_t bytes) {
  GatheredBody head;
  if (pe != 0) return error(Code::kInvalidValue, "an answer that only PE 0 gives");
  if (bytes < sizeof head) return error(Code::kInvalidValue, "an answer of only %zu bytes", bytes);
  std::memcpy(&head, body, sizeof head);
  const unsigned char* slice = body + sizeof head;
  const size_t slice_bytes = bytes - sizeof head;
  std::lock_guard<std::mutex> lock(mutex_);
  if (sequence != answer_.sequence || answer_.done) return Status::ok();  // this PE gave that round up
  if (head.code != static_cast<int32_t>(Code::kOk)) {
    answer_.status =
        Status(static_cast<Code>(head.code), std::string(reinterpret_cast<const char*>(slice), slice_bytes));
    answer_.done = true;
    changed_.notify_all();
    return Status::ok();
  }
  if (head.total != answer_.expected || head.offset != answer_.data.size() ||
      head.offset + slice_bytes > answer_.expected) {
    return error(Code::kInvalidValue, "an answer with bytes %u to %zu of %u, where byte %zu of %zu is due", head.offset,
                 head.offset + slice_bytes, head.total, answer_.data.size(), answer_.expected);
  }
  answer_.data.insert(answer_.data.end(), slice, slice + slice_bytes);
  if (answer_.data.size() == answer_.expected) {
    answer_.done = true;
    changed_.notify_all();
  }
  return Status::ok();
}

void Gather::on_lost(int pe, const Status& cause) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (lost_.is_ok()) {
    lost_ = cause;
    lost_pe_ = pe;
    lost_at_ = Clock::now();
  }
  if (pe == 0) hub_lost_ = true;
  if (my_pe_ == 0) settle();
  changed_.notify_all();
}

void Gather::on_left(int pe) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (pe == 0) hub_left_ = true;
  if (my_pe_ == 0) {
    left_.push_back(pe);
    settle();
  }
  changed_.notify_all();
}

Gather::Clock::time_point Gather::next_expiry() {
  std::lock_guard<std::mutex> lock(mutex_);
  return expires_;
}

void Gather::expire() {
  std::lock_guard<std::mutex> lock(mutex_);
  expire_locked();
}

// ---- the hub

void Gather::add(int pe, Contribution contribution) {
  if (!lost_.is_ok()) return answer_failure(pe, contribution.sequence, lost_);
  if (before(contribution.sequence, round_)) {
    for (const auto& [sequence, verdict] : failed_rounds_) {
      if (sequence == contribution.sequence) return answer_failure(pe, sequence, verdict);
    }
    return answer_failure(
        pe, contribution.sequence,
        error(Code::kTimeout, "PE %d came to %s after the others had given it up", pe, contribution.tag.c_str()));
  }
  arrived_[pe].push_back(std::move(contribution));
  if (arrived_[pe].size() > 1) return;
  join_round(pe);
  settle();
}

void Gather::join_round(int pe) {
  const Contribution& its = arrived_[pe].front();
  ++n_arrived_;
  expires_ = std::min(expires_, its.expires);
  if (first_arrived_ < 0) {
    first_arrived_ = pe;
    return;
  }
  const Contribution& first = arrived_[first_arrived_].front();
  if (mismatched_ < 0 && (its.tag != first.tag || its.data.size() != first.data.size())) mismatched_ = pe;
}

void Gather::settle() {
  Status verdict;
  while (judge(&verdict)) finish(verdict);
}

bool Gather::judge(Status* verdict) const {
  *verdict = Status::ok();
  if (n_arrived_ == 0) return false;
  if (!lost_.is_ok()) return *verdict = lost_, true;
  if (mismatched_ >= 0) return *verdict = mismatch_text(), true;
  for (int pe : left_) {
    if (!arrived_[pe].empty()) continue;
    *verdict = error(Code::kSymmetry, "PE %d has left (nvshmem_finalize) while PE %d is in %s", pe, first_arrived_,
                     arrived_[first_arrived_].front().tag.c_str());
    return true;
  }
  return n_arrived_ == n_pes_;
}

Status Gather::mismatch_text() const {
  const int a = std::min(first_arrived_, mismatched_);
  const int b = std::max(first_arrived_, mismatched_);
  const Contribution& one = arrived_[a].front();
  const Contribution& other = arrived_[b].front();
  if (one.tag != other.tag) {
    return error(Code::kSymmetry, "PE %d is in %s, PE %d in %s; every PE must make the same calls in the same order", a,
                 one.tag.c_str(), b, other.tag.c_str());
  }
  return error(Code::kSymmetry, "%s: PE %d brings %zu bytes, PE %d %zu bytes", one.tag.c_str(), a, one.data.size(), b,
               other.data.size());
}

void Gather::finish(const Status& verdict) {
  const Blob result = verdict.is_ok() ? encode_result() : nullptr;
  for (int pe = 0; pe < n_pes_; ++pe) {
    if (arrived_[pe].empty()) continue;
    if (!verdict.is_ok()) {
      answer_failure(pe, round_, verdict);
    } else if (pe != my_pe_) {
      (void)send_(pe, result);  // a peer that is gone shows by its end-of-file
    } else if (answer_.sequence == round_) {
      for (const auto& each : arrived_) {
        answer_.data.insert(answer_.data.end(), each.front().data.begin(), each.front().data.end());
      }
      answer_.done = true;
      changed_.notify_all();
    }
  }
  for (auto& each : arrived_) {
    if (!each.empty()) each.pop_front();
  }
  if (!verdict.is_ok()) {
    failed_rounds_.emplace_back(round_, verdict);
    if (failed_rounds_.size() > kRememberedRounds) failed_rounds_.pop_front();
  }
  ++round_;
  n_arrived_ = 0;
  first_arrived_ = mismatched_ = -1;
  expires_ = Clock::time_point::max();
  for (int pe = 0; pe < n_pes_; ++pe) {
    if (!arrived_[pe].empty()) join_round(pe);
  }
}

void Gather::expire_locked() {
  if (expires_ > Clock::now()) return;
  std::vector<int> missing;
  const Contribution* expired = nullptr;
  for (int pe = 0; pe < n_pes_; ++pe) {
    if (arrived_[pe].empty()) {
      missing.push_back(pe);
    } else if (arrived_[pe].front().expires == expires_) {
      expired = &arrived_[pe].front();
    }
  }
  finish(error(Code::kTimeout, "%s %s not arrived in %s within %.3g s", name_pes(missing).c_str(),
               missing.size() == 1 ? "has" : "have", expired->tag.c_str(), expired->seconds));
  settle();
}

void Gather::answer_failure(int pe, uint32_t sequence, const Status& verdict) {
  if (pe != my_pe_) {
    GatheredBody body;
    body.code = static_cast<int32_t>(verdict.code());
    if (verdict.code() == Code::kPeerLost) body.lost_pe = lost_pe_;
    const size_t length = std::min(verdict.text().size(), kMaxText);
    (void)send_(pe, make_frame(FrameOp::kGathered, sequence, {{&body, sizeof body}, {verdict.text().data(), length}}));
  } else if (answer_.sequence == sequence) {
    answer_.status = verdict;
    answer_.done = true;
    changed_.notify_all();
  }
}

Blob Gather::encode_result() const {
  const size_t each = arrived_[0].front().data.size();
  const size_t total = each * n_pes_;
  auto frames = std::make_shared<std::vector<unsigned char>>();
  // Whole contributions per frame, as many as fit.
  const int per_frame = each == 0 ? n_pes_ : static_cast<int>(kMaxText / each);
  std::vector<unsigned char> slice;
  for (int pe = 0; pe < n_pes_; ++pe) {
    const auto& data = arrived_[pe].front().data;
    slice.insert(slice.end(), data.begin(), data.end());
    if ((pe + 1) % per_frame != 0 && pe + 1 != n_pes_) continue;
    const size_t offset = (pe + 1) * each - slice.size();
    const GatheredBody body{0, -1, static_cast<uint32_t>(total), static_cast<uint32_t>(offset)};
    append_frame(frames.get(), FrameOp::kGathered, round_, {{&body, sizeof body}, {slice.data(), slice.size()}});
    slice.clear();
  }
  return frames;
}

}  // namespace heddle
