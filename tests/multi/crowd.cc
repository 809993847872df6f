// More PEs than cores.
//
//   crowd ring               a barrier, then everybody puts a number into everybody's right neighbour
//   crowd barriers COUNT     that many barriers; a number put before each is there after it
//   crowd wake COUNT         a token goes round while all others sleep in a wait
#include <chrono>
#include <thread>
#include <vector>

#include "check.h"

namespace {

int me, n;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void ring() {
  auto* word = static_cast<int*>(nvshmem_calloc(1, sizeof(int)));
  if (!check::that(word != nullptr, "heap")) return;
  nvshmem_int_p(word, me + 1, (me + 1) % n);
  nvshmem_barrier_all();
  check::that(*word == (me + n - 1) % n + 1, "number of the left neighbour");
  nvshmem_barrier_all();
  nvshmem_free(word);
}

void barriers(long count) {
  auto* words = static_cast<long*>(nvshmem_calloc(2, sizeof(long)));
  if (!check::that(words != nullptr, "heap")) return;
  for (long i = 1; i <= count; ++i) {
    nvshmem_long_p(&words[i % 2], i, (me + 1) % n);
    nvshmem_barrier_all();
    if (!check::that(words[i % 2] == i, "number put before barrier " + std::to_string(i))) break;
  }
  nvshmem_barrier_all();
  nvshmem_free(words);
}

void wake(int count) {
  auto* word = static_cast<int*>(nvshmem_calloc(1, sizeof(int)));
  if (!check::that(word != nullptr, "heap")) return;
  nvshmem_barrier_all();
  for (int i = 1; i <= count; ++i) {
    // Long enough for the others to be asleep.
    if (me == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (me == 0) nvshmem_int_p(word, i, 1 % n);
    nvshmem_int_wait_until(word, NVSHMEM_CMP_EQ, i);
    if (me != 0) nvshmem_int_p(word, i, (me + 1) % n);
  }
  check::that(*word == count, "last token");
  nvshmem_barrier_all();
  nvshmem_free(word);
}

}  // namespace

int main(int argc, char** argv) {
  const double started = seconds_now();
  const std::string mode = argc > 1 ? argv[1] : "ring";
  const int count = argc > 2 ? std::atoi(argv[2]) : 1000;
  nvshmem_init();
  if (nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED) return 2;
  me = nvshmem_my_pe(), n = nvshmem_n_pes();
  const double joined = seconds_now();
  if (mode == "ring") ring();
  if (mode == "barriers") barriers(count);
  if (mode == "wake") wake(count);
  if (me == 0) {
    std::printf("%d PEs: %s took %.3f s, init before it %.3f s\n", n, mode.c_str(), seconds_now() - joined,
                joined - started);
  }
  return check::finish("crowd");
}
