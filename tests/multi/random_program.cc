// A random program of puts, gets, atomics and signals, checked against a sequential model.
//
// Every PE draws the same random numbers, so every PE can run the whole program on its model of all PEs' memories. Each
// PE's memory is cut into one slice per writer, which makes every fetched value and every byte predictable, and a few
// words that all PEs add to. Arguments: operations in all (default 1000000), seed (default 1).
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"

namespace {

constexpr size_t kSlice = 4096;  // bytes per writer
constexpr size_t kShared = 16;   // words that everybody adds to
constexpr int kOperationsPerPhase = 500;

struct Model {
  std::vector<std::vector<unsigned char>> slices;  // [target * n + writer]
  std::vector<std::vector<uint64_t>> shared;       // [target]
};

class Program {
 public:
  Program(long operations, uint64_t seed) : seed_(seed) {
    me_ = nvshmem_my_pe();
    n_ = nvshmem_n_pes();
    phases_ = operations / (static_cast<long>(kOperationsPerPhase) * n_) + 1;
    const auto n = static_cast<size_t>(n_);
    memory_ = static_cast<unsigned char*>(nvshmem_calloc(n, kSlice));
    shared_ = static_cast<uint64_t*>(nvshmem_calloc(kShared, 8));
    model_.slices.assign(n * n, std::vector<unsigned char>(kSlice, 0));
    model_.shared.assign(n, std::vector<uint64_t>(kShared, 0));
  }

  void run() {
    if (!check::that(memory_ != nullptr && shared_ != nullptr, "heap for the random program")) return;
    for (long phase = 0; phase < phases_ && check::failed == 0; ++phase) {
      for (int pe = 0; pe < n_; ++pe) {
        random_.seed(seed_ * 1000003 + static_cast<uint64_t>(phase) * 977 + static_cast<uint64_t>(pe));
        for (int i = 0; i < kOperationsPerPhase; ++i) step(pe);
      }
      nvshmem_barrier_all();
      compare(phase);
      nvshmem_barrier_all();
    }
    nvshmem_free(memory_);
    nvshmem_free(shared_);
  }

 private:
  uint64_t draw(uint64_t below) { return random_() % below; }

  // One operation of `writer`; carried out when that is this PE, and on the model in any case.
  void step(int writer) {
    const int target = static_cast<int>(draw(static_cast<uint64_t>(n_)));
    const auto index = static_cast<size_t>(target) * static_cast<size_t>(n_) + static_cast<size_t>(writer);
    std::vector<unsigned char>& model = model_.slices[index];
    unsigned char* slice = memory_ + static_cast<size_t>(writer) * kSlice;
    const bool mine = writer == me_;
    const uint64_t kind = draw(12);
    const size_t length = 1 + draw(draw(8) == 0 ? 2000 : 64);
    const size_t at = draw(kSlice - length);
    const size_t word = draw(kSlice / 8);
    const uint64_t value = random_();
    auto* words = reinterpret_cast<uint64_t*>(slice);
    uint64_t old = 0;
    std::memcpy(&old, &model[word * 8], 8);
    const auto set_word = [&](uint64_t now) { std::memcpy(&model[word * 8], &now, 8); };
    const auto fetched = [&](uint64_t got, const char* what) {
      if (got != old)
        check::that(false, std::string(what) + " returned another value than the model's");
      else
        ++check::passed;
    };
    switch (kind) {
      case 0:
      case 1: {
        unsigned char bytes[2048];
        for (size_t i = 0; i < length; ++i) bytes[i] = static_cast<unsigned char>(value + i * 7);
        std::memcpy(&model[at], bytes, length);
        if (mine && kind == 0) nvshmem_putmem(slice + at, bytes, length, target);
        if (mine && kind == 1) nvshmem_putmem_nbi(slice + at, bytes, length, target);
        if (mine) nvshmem_fence();  // later puts may hit the same bytes
        break;
      }
      case 2: {
        unsigned char bytes[2048] = {};
        if (mine) nvshmem_quiet();
        if (mine) nvshmem_getmem(bytes, slice + at, length, target);
        if (mine)
          check::that(std::memcmp(bytes, &model[at], length) == 0, "get of " + std::to_string(length) + " bytes");
        break;
      }
      case 3:
        set_word(value);
        if (mine) nvshmem_uint64_p(words + word, value, target), nvshmem_fence();
        break;
      case 4:
        if (mine) nvshmem_quiet(), fetched(nvshmem_uint64_g(words + word, target), "g");
        break;
      case 5:
        set_word(old + value);
        if (mine) nvshmem_quiet(), fetched(nvshmem_uint64_atomic_fetch_add(words + word, value, target), "fetch_add");
        break;
      case 6:
        set_word(value);
        if (mine) nvshmem_quiet(), fetched(nvshmem_uint64_atomic_swap(words + word, value, target), "swap");
        break;
      case 7: {
        const uint64_t compare = draw(2) == 0 ? old : value;
        if (compare == old) set_word(~value);
        if (mine) {
          nvshmem_quiet();
          fetched(nvshmem_uint64_atomic_compare_swap(words + word, compare, ~value, target), "compare_swap");
        }
        break;
      }
      case 8:
        set_word(old ^ value);
        if (mine) nvshmem_quiet(), fetched(nvshmem_uint64_atomic_fetch_xor(words + word, value, target), "fetch_xor");
        break;
      case 9: {
        const size_t slot = draw(kShared);
        model_.shared[static_cast<size_t>(target)][slot] += value;
        if (mine) nvshmem_uint64_atomic_add(shared_ + slot, value, target);
        break;
      }
      case 10: {
        const size_t slot = draw(kShared);
        model_.shared[static_cast<size_t>(target)][slot] += value;
        if (mine) nvshmemx_signal_op(shared_ + slot, value, NVSHMEM_SIGNAL_ADD, target);
        break;
      }
      default: {
        const size_t slot = draw(kShared);
        model_.shared[static_cast<size_t>(target)][slot] += value;
        set_word(value);
        if (mine) {
          nvshmem_uint64_put_signal(words + word, &value, 1, shared_ + slot, value, NVSHMEM_SIGNAL_ADD, target);
          nvshmem_fence();
        }
        break;
      }
    }
  }

  void compare(long phase) {
    const auto me = static_cast<size_t>(me_), n = static_cast<size_t>(n_);
    for (size_t writer = 0; writer < n; ++writer) {
      const bool same = std::memcmp(memory_ + writer * kSlice, model_.slices[me * n + writer].data(), kSlice) == 0;
      check::that(same, "slice of writer " + std::to_string(writer) + " after phase " + std::to_string(phase));
    }
    check::that(std::memcmp(shared_, model_.shared[me].data(), kShared * 8) == 0,
                "shared words after phase " + std::to_string(phase));
  }

  const uint64_t seed_;
  int me_ = 0, n_ = 1;
  long phases_ = 0;
  unsigned char* memory_ = nullptr;
  uint64_t* shared_ = nullptr;
  Model model_;
  std::mt19937_64 random_;
};

}  // namespace

int main(int argc, char** argv) {
  nvshmem_init();
  if (nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED) return 2;
  Program program(argc > 1 ? std::atol(argv[1]) : 1000000, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  program.run();
  return check::finish("random_program");
}
