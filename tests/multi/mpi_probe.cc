// Uses the bootstrap over MPI as nvshmemx_init_attr does, under whatever started it.
//
//   mpi_probe ok            before MPI_Init, a null communicator, the world, halves of it, many cycles, after
//   MPI_Finalize mpi_probe late RANK     RANK comes to an exchange after the others' deadline: they must time out, and
//   name it mpi_probe absent RANK   RANK never makes a bootstrap: the others must time out mpi_probe uneven RANK   RANK
//   gathers another number of bytes: the others must fail, and name it
#define OMPI_SKIP_MPICXX 1  // only the C interface
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "bootstrap/bootstrap.h"
#include "keep_libraries.h"

using namespace heddle;

namespace {

int my_rank = -1;

bool complain(const std::string& text) {
  std::fprintf(stderr, "mpi_probe: rank %d: %s\n", my_rank, text.c_str());
  return false;
}

bool expect(const Status& status, Code code, const std::string& part) {
  if (status.code() == code && status.text().find(part) != std::string::npos) return true;
  return complain(format("expected %s with \"%s\", got %s: %s", code_name(code), part.c_str(), code_name(status.code()),
                         status.text().c_str()));
}

bool works(const Settings& settings, MPI_Comm comm) {
  int rank = 0, size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  std::unique_ptr<Bootstrap> boot;
  if (!expect(make_mpi_bootstrap(settings, &comm, &boot), Code::kOk, "")) return false;
  if (boot->rank() != rank || boot->size() != size) return complain("wrong rank or size");
  for (size_t bytes : {size_t{1}, size_t{300}, size_t{0}, size_t{200000}}) {
    std::vector<unsigned char> mine(bytes), all(bytes * static_cast<size_t>(size), 0xee);
    const auto byte_of = [](int from, size_t i) { return static_cast<unsigned char>(from * 31 + static_cast<int>(i)); };
    for (size_t i = 0; i < bytes; ++i) mine[i] = byte_of(rank, i);
    if (!expect(boot->allgather(mine.data(), bytes, all.data(), Deadline::in(60)), Code::kOk, "")) return false;
    for (int from = 0; from < size; ++from) {
      for (size_t i = 0; i < bytes; ++i) {
        if (all[static_cast<size_t>(from) * bytes + i] != byte_of(from, i)) return complain("a byte is wrong");
      }
    }
    if (!expect(boot->barrier(Deadline::in(60)), Code::kOk, "")) return false;
  }
  for (int other = 0; other < size; ++other) {
    if (boot->node_of(other) != 0) return complain("not all on one node");
  }
  return boot->node_of(size) == -1 || complain("a stranger has a node");
}

bool run(const std::string& mode, int chosen) {
  Settings settings;
  settings.timeout = 60;
  std::unique_ptr<Bootstrap> boot;
  MPI_Comm world = MPI_COMM_WORLD, null = MPI_COMM_NULL;
  if (mode == "ok") {
    bool right = expect(make_mpi_bootstrap(settings, nullptr, &boot), Code::kInvalidValue, "null pointer");
    right &= expect(make_mpi_bootstrap(settings, &null, &boot), Code::kInvalidValue, "MPI_COMM_NULL");
    right = right && works(settings, MPI_COMM_WORLD);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, my_rank % 2, -my_rank, &half);  // ranks in reverse order
    for (int cycle = 0; cycle < 20 && right; ++cycle) right = works(settings, half);
    MPI_Comm_free(&half);
    return right && works(settings, MPI_COMM_WORLD);
  }
  if (mode == "absent") {
    settings.timeout = 0.5;
    if (my_rank == chosen) {
      // Coming later, it finds the duplicate made and nobody there.
      std::this_thread::sleep_for(std::chrono::milliseconds(4000));
      return !make_mpi_bootstrap(settings, &world, &boot).is_ok() || complain("joined those who had given up");
    }
    return expect(make_mpi_bootstrap(settings, &world, &boot), Code::kTimeout, "has not called");
  }
  if (!expect(make_mpi_bootstrap(settings, &world, &boot), Code::kOk, "")) return false;
  const std::string named = "rank " + std::to_string(chosen);
  char mine[64] = {};
  std::vector<char> all(64 * static_cast<size_t>(boot->size()));
  if (mode == "late") {
    if (my_rank == chosen) {
      // The others' messages are there, so for this rank alone all is well.
      std::this_thread::sleep_for(std::chrono::milliseconds(4000));
      return expect(boot->allgather(mine, 64, all.data(), Deadline::in(20)), Code::kOk, "");
    }
    const auto begun = std::chrono::steady_clock::now();
    const Status status = boot->allgather(mine, 64, all.data(), Deadline::in(0.5));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
    if (took.count() < 0.5 || took.count() > 3.9) return complain(format("0.5 s took %.2f s", took.count()));
    // Out of step now: the next one fails at once.
    return expect(status, Code::kTimeout, "nothing from " + named) &&
           expect(boot->barrier(Deadline::in(0.5)), Code::kTimeout, named);
  }
  if (mode == "uneven") {
    const Status status = boot->allgather(mine, my_rank == chosen ? 32 : 64, all.data(), Deadline::in(20));
    return expect(status, Code::kSymmetry, my_rank == chosen ? "rank " : named);
  }
  return complain("unknown mode " + mode);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "ok";
  const int chosen = argc > 2 ? std::atoi(argv[2]) : 0;
  Settings settings;
  std::unique_ptr<Bootstrap> boot;
  MPI_Comm world = MPI_COMM_WORLD;
  bool right = expect(make_mpi_bootstrap(settings, &world, &boot), Code::kInvalidValue, "call MPI_Init before");
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &my_rank);
  right &= run(mode, chosen);
  MPI_Finalize();
  right &= expect(make_mpi_bootstrap(settings, &world, &boot), Code::kInvalidValue, "finalised already") || my_rank < 0;
  return right ? 0 : 1;
}
