// A user's program: one PE that puts to itself through the installed headers and library.
#include <nvshmem.h>
#include <nvshmemx.h>

#include <cstdio>

int main() {
  nvshmem_init();
  int* cell = static_cast<int*>(nvshmem_calloc(1, sizeof(int)));
  if (cell == nullptr) return std::fprintf(stderr, "nvshmem_calloc gave NULL\n"), 1;
  nvshmem_int_p(cell, 42, nvshmem_my_pe());
  nvshmem_barrier_all();
  const int value = nvshmem_int_g(cell, nvshmem_my_pe());
  const int pes = nvshmem_n_pes();
  nvshmem_free(cell);
  nvshmem_finalize();
  if (value != 42 || pes != 1) return std::fprintf(stderr, "read %d on %d PEs, not 42 on 1\n", value, pes), 1;
  return std::puts("consumer: 42") < 0;
}
