// Processes that no launcher started join by a unique id, which travels in a file: by_id RANK RANKS FILE
//
// Joins, inits again with the same and with other parameters, finalizes, and joins a second job, which has one PE
// fewer.
#include <chrono>
#include <fstream>
#include <thread>

#include "check.h"

namespace {

bool write_id(const std::string& file, const nvshmemx_uniqueid_t& id) {
  const std::string draft = file + ".draft";
  std::ofstream out(draft, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&id), sizeof id);
  out.close();
  return out && std::rename(draft.c_str(), file.c_str()) == 0;  // readers see all of it or nothing
}

bool read_id(const std::string& file, nvshmemx_uniqueid_t* id) {
  for (int tries = 0; tries < 3000; ++tries) {
    std::ifstream in(file, std::ios::binary);
    if (in && in.read(reinterpret_cast<char*>(id), sizeof *id)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::fprintf(stderr, "by_id: no id in %s after 30 s\n", file.c_str());
  return false;
}

int join(int rank, int ranks, nvshmemx_uniqueid_t* id) {
  nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
  if (nvshmemx_set_attr_uniqueid_args(rank, ranks, id, &attributes) != 0) return -1;
  return nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attributes);
}

void ring(int rank, int ranks) {
  check::that(nvshmem_my_pe() == rank && nvshmem_n_pes() == ranks, "PE and number of PEs");
  auto* word = static_cast<int*>(nvshmem_calloc(1, sizeof(int)));
  if (!check::that(word != nullptr, "heap")) return;
  nvshmem_int_p(word, rank + 1, (rank + 1) % ranks);
  nvshmem_barrier_all();
  check::that(*word == (rank + ranks - 1) % ranks + 1, "number of the left neighbour");
  nvshmem_free(word);
}

bool run(int rank, int ranks, const std::string& file) {
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  const bool have = rank == 0 ? nvshmemx_get_uniqueid(&id) == 0 && write_id(file, id) : read_id(file, &id);
  if (!check::that(have, "unique id") || !check::that(join(rank, ranks, &id) == 0, "join")) return false;
  ring(rank, ranks);

  check::that(join(rank, ranks, &id) == 0, "the same again");
  nvshmem_init();
  heddle_clear_error();
  check::that(join(rank, ranks + 1, &id) == NVSHMEMX_ERROR_INVALID_VALUE, "other parameters are refused");
  const std::string text = heddle_last_error();
  const std::string asked = "rank " + std::to_string(rank) + " of " + std::to_string(ranks + 1);
  check::that(text.find("has joined rank") != std::string::npos && text.find(asked) != std::string::npos,
              "naming both: " + text);
  nvshmem_finalize();
  nvshmem_finalize();
  ring(rank, ranks);  // two of three inits are undone: the world is still there
  nvshmem_barrier_all();
  nvshmem_finalize();
  check::that(nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED, "the last finalize ends the world");
  return check::failed == 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: by_id RANK RANKS FILE\n"), 2;
  const int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]);
  const std::string file = argv[3];
  if (!run(rank, ranks, file)) return 1;
  if (ranks > 1) {
    // A second job of the same processes without the last one.
    if (rank == ranks - 1) return 0;
    if (!run(rank, ranks - 1, file + ".second")) return 1;
  }
  return 0;
}
