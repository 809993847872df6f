// An MPI program joins by communicators: the world, halves of it in reverse order, the world again.
#define OMPI_SKIP_MPICXX 1  // only the C interface
#include <mpi.h>

#include "check.h"
#include "keep_libraries.h"

namespace {

int join(MPI_Comm comm) {
  nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
  if (nvshmemx_set_attr_mpi_comm_args(&comm, &attributes) != 0) return -1;
  return nvshmemx_init_attr(NVSHMEMX_INIT_WITH_MPI_COMM, &attributes);
}

void use(MPI_Comm comm, MPI_Comm other) {
  int rank = -1, size = -1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  if (!check::that(join(comm) == 0, "join")) return;
  check::that(nvshmem_my_pe() == rank && nvshmem_n_pes() == size, "PEs are the ranks of the communicator");
  auto* word = static_cast<int*>(nvshmem_calloc(1, sizeof(int)));
  if (check::that(word != nullptr, "heap")) {
    nvshmem_int_p(word, rank + 1, (rank + 1) % size);
    nvshmem_barrier_all();
    check::that(*word == (rank + size - 1) % size + 1, "number of the left neighbour");
    MPI_Barrier(comm);  // MPI goes on as before
    nvshmem_free(word);
  }
  check::that(join(comm) == 0, "the same again");
  heddle_clear_error();
  check::that(join(other) == NVSHMEMX_ERROR_INVALID_VALUE, "another communicator is refused");
  check::that(std::string(heddle_last_error()).find("has joined the MPI communicator") != std::string::npos,
              "with the reason");
  nvshmem_finalize();
  nvshmem_finalize();
  check::that(nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED, "the last finalize ends the world");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
  for (int cycle = 0; cycle < 5; ++cycle) {
    use(MPI_COMM_WORLD, half);
    use(half, MPI_COMM_WORLD);
  }
  MPI_Comm_free(&half);
  long counts[2] = {check::passed, check::failed}, totals[2] = {};
  MPI_Reduce(counts, totals, 2, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) std::printf("by_mpi: %ld passed, %ld failed\n", totals[0], totals[1]);
  MPI_Finalize();
  return check::failed == 0 ? 0 : 1;
}
