// The symmetric heap grows and shrinks with what is allocated, on all PEs alike. Small chunks make it grow often: run
// it with NVSHMEM_SYMMETRIC_SIZE=64M and NVSHMEM_CUMEM_GRANULARITY of at most 1M. Argument: random steps (default 400).
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;

int me, n;
size_t chunk;

using Figures = struct heddle_heap_info;  // the function has the same name

Figures figures() {
  Figures info{};
  info.size = sizeof info;
  check::that(heddle_heap_info(&info) == 0, "heddle_heap_info");
  return info;
}

struct Block {
  unsigned char* memory;
  size_t bytes;
  int pattern;
};

/// All that was taken since `before` is back; one empty chunk may stay, for the next to come.
bool returned(const Figures& before, const Figures& now) {
  return now.in_use == before.in_use && now.blocks == before.blocks && now.physical <= before.physical + chunk;
}

unsigned char byte_of(int pattern, int writer, size_t at) {
  return static_cast<unsigned char>(static_cast<size_t>(pattern * 31 + writer * 57) + at * 13);
}

/// Fills the block on the right neighbour; the left one fills ours.
void fill(const Block& block) {
  std::vector<unsigned char> bytes(block.bytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_of(block.pattern, me, i);
  nvshmem_putmem(block.memory, bytes.data(), bytes.size(), (me + 1) % n);
}

bool intact(const Block& block) {
  for (size_t i = 0; i < block.bytes; ++i) {
    if (block.memory[i] != byte_of(block.pattern, (me + n - 1) % n, i)) return false;
  }
  return true;
}

/// Blocks that span chunks, freed in another order; then nothing is held that was not held before.
void test_spanning_blocks() {
  const Figures before = figures();
  std::vector<Block> blocks;
  for (size_t bytes : {3 * kMiB, size_t{1}, 5 * kMiB + 77, size_t{70000}, 8 * kMiB, size_t{4096}}) {
    auto* memory = static_cast<unsigned char*>(nvshmem_malloc(bytes));
    if (!check::that(memory != nullptr, "block of " + std::to_string(bytes) + " bytes")) return;
    blocks.push_back({memory, bytes, static_cast<int>(blocks.size())});
    fill(blocks.back());
  }
  nvshmem_barrier_all();
  const Figures full = figures();
  check::that(full.blocks == before.blocks + 6 && full.in_use >= before.in_use + 16 * kMiB, "figures of a full heap");
  check::that(full.physical >= full.in_use, "memory behind what is in use");
  for (const Block& block : blocks) check::that(intact(block), "bytes of block " + std::to_string(block.pattern));
  nvshmem_barrier_all();
  for (size_t i : {2, 0, 5, 4, 1, 3}) {
    nvshmem_free(blocks[i].memory);
    blocks[i].memory = nullptr;
    for (const Block& block : blocks) {
      if (block.memory != nullptr) check::that(intact(block), "bytes of a block beside a freed one");
    }
  }
  check::that(returned(before, figures()), "memory is returned after blocks that span chunks");
}

/// More than there is: NULL everywhere, and the heap is as usable as before.
void test_exhaustion() {
  const Figures before = figures();
  heddle_clear_error();
  check::that(nvshmem_malloc(before.limit + 1) == nullptr, "more than the limit is refused");
  check::that(std::strstr(heddle_last_error(), "raise NVSHMEM_SYMMETRIC_SIZE") != nullptr, "with its remedy");
  std::vector<Block> blocks;
  for (;;) {
    auto* memory = static_cast<unsigned char*>(nvshmem_malloc(3 * kMiB));
    if (memory == nullptr) break;
    blocks.push_back({memory, 3 * kMiB, static_cast<int>(blocks.size())});
    fill(blocks.back());
  }
  nvshmem_barrier_all();
  check::that(blocks.size() == before.largest_free / (3 * kMiB),
              "as many blocks as fit: " + std::to_string(blocks.size()));
  auto* small = nvshmem_malloc(4096);
  check::that(small != nullptr, "a small block after a large one was refused");
  for (const Block& block : blocks) check::that(intact(block), "bytes of a full heap");
  nvshmem_barrier_all();
  nvshmem_free(small);
  while (!blocks.empty()) nvshmem_free(blocks.back().memory), blocks.pop_back();
  auto* whole = static_cast<unsigned char*>(nvshmem_malloc(before.largest_free));
  check::that(whole != nullptr, "the largest free block as one");
  if (whole != nullptr) {
    const Block block{whole, before.largest_free, 7};
    fill(block);
    nvshmem_barrier_all();
    check::that(intact(block), "bytes of the largest block");
    nvshmem_barrier_all();
    nvshmem_free(whole);
  }
  check::that(returned(before, figures()), "memory is returned after exhaustion");
}

/// Random allocations and frees, the same on all PEs; offsets are agreed, so a put by address hits its block.
void test_random_steps(int steps) {
  const Figures before = figures();
  std::mt19937_64 random(12345);
  std::vector<Block> blocks;
  for (int step = 0; step < steps; ++step) {
    if (!blocks.empty() && random() % 5 < 2) {
      const size_t index = random() % blocks.size();
      nvshmem_barrier_all();  // the left neighbour's put has arrived
      check::that(intact(blocks[index]), "bytes in step " + std::to_string(step));
      nvshmem_free(blocks[index].memory);
      blocks.erase(blocks.begin() + static_cast<long>(index));
      continue;
    }
    const size_t bytes = 1 + random() % (random() % 16 == 0 ? 3 * kMiB : 20000);
    const size_t alignment = size_t{1} << (random() % 14);
    auto* memory =
        static_cast<unsigned char*>(random() % 2 == 0 ? nvshmem_malloc(bytes) : nvshmem_align(alignment, bytes));
    if (memory == nullptr) {
      check::that(figures().largest_free < bytes + alignment, "refused only what does not fit");
      continue;
    }
    blocks.push_back({memory, bytes, step});
    fill(blocks.back());
  }
  nvshmem_barrier_all();
  for (const Block& block : blocks) check::that(intact(block), "bytes at the end");
  nvshmem_barrier_all();
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(99));
  for (const Block& block : blocks) nvshmem_free(block.memory);
  check::that(returned(before, figures()), "memory is returned after many steps");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kib = argc > 1 ? argv[1] : "1024";
  chunk = std::stoul(kib) << 10;
  setenv("NVSHMEM_SYMMETRIC_SIZE", "64M", 1);
  setenv("NVSHMEM_CUMEM_GRANULARITY", (kib + "K").c_str(), 1);
  nvshmem_init();
  if (nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED) return 2;
  me = nvshmem_my_pe(), n = nvshmem_n_pes();
  test_spanning_blocks();
  test_exhaustion();
  test_random_steps(argc > 2 ? std::atoi(argv[2]) : 400);
  return check::finish("growth");
}
