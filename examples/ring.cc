// Passes a token once round the ring of PEs. Each PE puts it into its right neighbour's memory, with a signal.
#include <nvshmem.h>

#include <cstdint>
#include <cstdio>

int main() {
  nvshmem_init();
  if (nvshmemx_init_status() < NVSHMEM_STATUS_IS_INITIALIZED) return 1;  // logged, but it ends no process by itself
  const int me = nvshmem_my_pe();
  const int right = (me + 1) % nvshmem_n_pes();

  // Symmetric memory: every PE has its own copy, and any PE can reach it by this PE's address and a PE number.
  int* token = static_cast<int*>(nvshmem_calloc(1, sizeof(int)));
  uint64_t* arrived = static_cast<uint64_t*>(nvshmem_calloc(1, sizeof(uint64_t)));
  if (token == nullptr || arrived == nullptr) nvshmem_global_exit(1);

  if (me != 0) nvshmem_signal_wait_until(arrived, NVSHMEM_CMP_EQ, 1);
  const int next = nvshmem_int_g(token, me) + 1;  // the heap may be GPU memory: the CPU asks for values
  nvshmem_int_put_signal(token, &next, 1, arrived, 1, NVSHMEM_SIGNAL_SET, right);
  if (me == 0) {
    nvshmem_signal_wait_until(arrived, NVSHMEM_CMP_EQ, 1);
    std::printf("the token visited %d PEs\n", nvshmem_int_g(token, me));
  }

  nvshmem_free(arrived);
  nvshmem_free(token);
  nvshmem_finalize();
}
