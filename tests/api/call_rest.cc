// The names that are there once: set-up, queries, memory, signals, order, teams, regions, queues; part of
// call_every_name.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../multi/check.h"

namespace {

using check::that;

int me, n, right, left;

void test_queries() {
  int major = 0, minor = 0, patch = 0;
  char name[NVSHMEM_MAX_NAME_LEN] = {};
  nvshmem_info_get_version(&major, &minor);
  that(major == NVSHMEM_MAJOR_VERSION && minor == NVSHMEM_MINOR_VERSION, "info_get_version");
  nvshmem_info_get_name(name);
  that(std::strcmp(name, NVSHMEM_VENDOR_STRING) == 0, "info_get_name");
  nvshmemx_vendor_get_version_info(&major, &minor, &patch);
  that(major == NVSHMEM_VENDOR_MAJOR_VERSION && minor == NVSHMEM_VENDOR_MINOR_VERSION &&
           patch == NVSHMEM_VENDOR_PATCH_VERSION,
       "vendor_get_version_info");
  that(nvshmemx_ask_smem(NVSHMEMX_SMEM_RECOMMENDED) > nvshmemx_ask_smem(NVSHMEMX_SMEM_MINIMUM) &&
           nvshmemx_ask_smem(NVSHMEMX_SMEM_MINIMUM) > nvshmemx_ask_smem(NVSHMEMX_SMEM_BARRIERS_ONLY),
       "ask_smem");
  that(std::strcmp(nvshmemx_status_string(NVSHMEMX_ERROR_SYMMETRY), "NVSHMEMX_ERROR_SYMMETRY") == 0, "status_string");
  that(std::strcmp(nvshmemx_status_string(-3), "NVSHMEMX_ERROR_<unknown>") == 0, "status_string of no status");
  that(std::strcmp(heddle_version(), HEDDLE_VERSION_STRING) == 0, "heddle_version");
  that(std::strlen(heddle_fabric_name()) > 0, "heddle_fabric_name");
  that(n >= 1 && me >= 0 && me < n, "my_pe, n_pes");
}

void test_memory() {
  struct heddle_heap_info before = {}, after = {};
  before.size = after.size = sizeof before;
  that(heddle_heap_info(&before) == 0 && before.limit > 0 && before.physical > 0, "heap_info");
  auto* aligned = static_cast<char*>(nvshmem_align(4096, 100));
  that(aligned != nullptr && reinterpret_cast<uintptr_t>(aligned) % 4096 == 0, "align");
  auto* zeroed = static_cast<char*>(nvshmem_calloc(1000, 3));
  bool zero = zeroed != nullptr;
  for (int i = 0; zero && i < 3000; ++i) zero = zeroed[i] == 0;
  that(zero, "calloc zeroes");
  that(nvshmem_malloc(0) == nullptr && std::strlen(heddle_last_error()) == 0, "malloc of 0 bytes is no error");
  that(heddle_heap_info(&after) == 0 && after.blocks == before.blocks + 2 && after.in_use >= before.in_use + 3100 &&
           after.internal > 0,
       "heap_info counts blocks");
  struct {
    size_t size;
    uint64_t limit;
    uint64_t guard;
  } old_program = {2 * sizeof(uint64_t), 0, 12345};
  that(heddle_heap_info(reinterpret_cast<struct heddle_heap_info*>(&old_program)) == 0 &&
           old_program.limit == after.limit && old_program.guard == 12345,
       "heap_info fills no more than the program has");

  // A host PE reaches every heap that is mapped by plain stores.
  that(nvshmem_ptr(aligned, me) == aligned, "ptr to itself");
  if (auto* there = static_cast<char*>(nvshmem_ptr(aligned + 3, right)); there != nullptr)
    *there = static_cast<char>(me);
  nvshmem_barrier_all();
  if (nvshmem_ptr(aligned, left) != nullptr) that(aligned[3] == static_cast<char>(left), "a store through ptr");
  that(nvshmem_ptr(aligned, n) == nullptr && nvshmem_ptr(&before, me) == nullptr, "ptr to nothing");
  that(nvshmemx_mc_ptr(NVSHMEM_TEAM_WORLD, aligned) == nullptr, "mc_ptr");
  nvshmem_barrier_all();
  nvshmem_free(zeroed);
  nvshmem_free(aligned);
  nvshmem_free(nullptr);
  that(heddle_heap_info(&after) == 0 && after.blocks == before.blocks && after.in_use == before.in_use, "free");
  that(std::strlen(heddle_last_error()) == 0, "no error so far");
}

void test_registration() {
  char buffer[256];
  that(nvshmemx_buffer_register(buffer, 100) == 0 && nvshmemx_buffer_register(buffer + 100, 100) == 0,
       "buffer_register of neighbours");
  that(nvshmemx_buffer_unregister(buffer) == 0, "buffer_unregister");
  nvshmemx_buffer_unregister_all();
  that(nvshmemx_buffer_register(buffer, 256) == 0, "buffer_unregister_all");
  nvshmemx_buffer_unregister_all();
}

void test_regions() {
  nvshmemx_region_handle_t first = 0, second = 0;
  nvshmemx_region_attrs_t attrs = NVSHMEMX_REGION_ATTRS_INITIALIZER;
  int active = -1;
  that(nvshmemx_region_is_active(0, &active) == 0 && active == 0, "region_is_active without one");
  that(nvshmemx_region_start(&first, nullptr) == 0 && first != 0, "region_start");
  that(nvshmemx_region_is_active(0, &active) == 0 && active == 1, "region_is_active");
  that(nvshmemx_region_is_active(NVSHMEMX_REGION_HINT_BATCH_RMA, &active) == 0 && active == 0, "region without hints");
  that(nvshmemx_region_stop(first) == 0, "region_stop");
  attrs.hints = NVSHMEMX_REGION_HINT_BATCH_RMA;
  that(nvshmemx_region_start(&second, &attrs) == 0 && second != first, "region_start with a hint");
  that(nvshmemx_region_is_active(NVSHMEMX_REGION_HINT_BATCH_RMA, &active) == 0 && active == 1, "region with the hint");
  that(nvshmemx_region_stop(second) == 0, "region_stop of the second");
}

void test_queues() {
  nvshmemx_qp_handle_t* queues = nullptr;
  that(nvshmemx_qp_create(3, &queues) == 0 && queues != nullptr, "qp_create");
  for (int i = 0; i < 3 && queues != nullptr; ++i) that(queues[i] == NVSHMEMX_QP_DEFAULT, "the default queue");
  nvshmemx_qp_handle_t* more = nullptr;
  that(nvshmemx_qp_create(1, &more) == 0 && more != nullptr && more != queues, "qp_create again");
  std::free(more);
  std::free(queues);
  that(nvshmemx_qp_create(0, &queues) == 0 && queues == nullptr, "qp_create of none");
}

void test_signals() {
  auto* word = static_cast<uint64_t*>(nvshmem_calloc(1, sizeof(uint64_t)));
  auto* counter = static_cast<uint64_t*>(nvshmem_calloc(1, sizeof(uint64_t)));
  auto* data = static_cast<unsigned char*>(nvshmem_calloc(64, static_cast<size_t>(n)));
  if (!that(word != nullptr && counter != nullptr && data != nullptr, "memory for signals")) return;
  nvshmemx_signal_op(word, 40, NVSHMEM_SIGNAL_SET, right);
  nvshmem_fence();
  nvshmemx_signal_op(word, 2, NVSHMEM_SIGNAL_ADD, right);
  that(nvshmem_signal_wait_until(word, NVSHMEM_CMP_GT, 40) == 42, "signal_wait_until gives the value");
  that(nvshmem_signal_fetch(word) == 42, "signal_fetch");
  nvshmem_barrier_all();

  // All PEs write to each; the counter says when all bytes are there.
  alignas(16) unsigned char source[64];
  std::memset(source, me + 1, sizeof source);
  bool sent = true;
  for (int pe = 0; pe < n; ++pe) {
    sent = sent && nvshmemx_putmem_signal_counted_nbi(data + 64 * me, source, sizeof source, counter, pe) == 0;
  }
  that(sent, "putmem_signal_counted_nbi");
  nvshmemx_signal_counted_wait_until(counter, 64 * static_cast<uint64_t>(n));
  bool there = true;
  for (int i = 0; i < 64 * n; ++i) there = there && data[i] == i / 64 + 1;
  that(there, "signal_counted_wait_until: the data is there");
  that(nvshmemx_signal_counted_load(counter) == 64 * static_cast<uint64_t>(n), "signal_counted_load");
  nvshmem_barrier_all();
  nvshmemx_signal_counted_reset(counter);
  that(nvshmemx_signal_counted_load(counter) == 0, "signal_counted_reset");
  *counter = UINT64_MAX - 5;
  nvshmemx_signal_counted_wait_until(counter, UINT64_MAX - 10);
  *counter = 3;
  nvshmemx_signal_counted_wait_until(counter, UINT64_MAX - 10);  // has wrapped: returns
  nvshmem_barrier_all();
  nvshmem_free(data);
  nvshmem_free(counter);
  nvshmem_free(word);
}

void test_order() {
  auto* word = static_cast<int*>(nvshmem_calloc(1, sizeof(int)));
  if (!that(word != nullptr, "memory for order")) return;
  for (int round = 1; round <= 20; ++round) {
    nvshmem_int_p(word, round, right);
    nvshmem_fence();
    nvshmemx_flush();
    nvshmem_quiet();
    if (round % 2 == 0) {
      nvshmem_sync_all();  // quiet came before
    } else {
      nvshmem_barrier_all();
    }
    that(*word == round, "a barrier completes puts");
    that(round % 2 == 0 ? nvshmem_barrier(NVSHMEM_TEAM_WORLD) == 0 : nvshmem_team_sync(NVSHMEM_TEAM_WORLD) == 0,
         "barrier and team_sync of the world");
  }
  nvshmem_free(word);
}

void test_teams() {
  that(nvshmem_team_my_pe(NVSHMEM_TEAM_WORLD) == me && nvshmem_team_n_pes(NVSHMEM_TEAM_WORLD) == n, "team WORLD");
  that(nvshmem_team_my_pe(NVSHMEM_TEAM_INVALID) == -1 && nvshmem_team_n_pes(NVSHMEM_TEAM_INVALID) == -1,
       "team INVALID");
  that(nvshmem_team_n_pes(NVSHMEMI_TEAM_SAME_GPU) == 1 && nvshmem_team_n_pes(NVSHMEMI_TEAM_GPU_LEADERS) == n,
       "teams of GPUs, as PEs without one are alone");
  that(nvshmem_team_n_pes(NVSHMEM_TEAM_MC_SHARED) == 1 && nvshmem_team_my_pe(NVSHMEM_TEAM_MC_SHARED) == 0,
       "team MC_SHARED");
  for (nvshmem_team_t team : {nvshmem_team_t{NVSHMEM_TEAM_SHARED}, nvshmem_team_t{NVSHMEMX_TEAM_NODE},
                              nvshmem_team_t{NVSHMEMX_TEAM_SAME_MYPE_NODE}, nvshmem_team_t{NVSHMEMI_TEAM_SAME_GPU},
                              nvshmem_team_t{NVSHMEMI_TEAM_GPU_LEADERS}}) {
    const int mine = nvshmem_team_my_pe(team), size = nvshmem_team_n_pes(team);
    that(mine >= 0 && mine < size && size <= n, "place in team " + std::to_string(team));
    that(nvshmem_team_translate_pe(team, mine, NVSHMEM_TEAM_WORLD) == me, "translation to the world");
    that(nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, me, team) == mine, "translation from the world");
    int before = -1;
    for (int place = 0; place < size; ++place) {
      const int pe = nvshmem_team_translate_pe(team, place, NVSHMEM_TEAM_WORLD);
      that(pe > before && pe < n, "members of a team are in order");
      before = pe;
    }
  }
  that(nvshmem_team_n_pes(NVSHMEMX_TEAM_NODE) * nvshmem_team_n_pes(NVSHMEMX_TEAM_SAME_MYPE_NODE) >= n,
       "node teams cover the world");
  that(nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, right, NVSHMEM_TEAM_MC_SHARED) == (n == 1 ? 0 : -1),
       "translation of a PE outside");
  that(nvshmem_barrier(NVSHMEM_TEAM_MC_SHARED) == 0 && nvshmem_team_sync(NVSHMEM_TEAM_MC_SHARED) == 0,
       "barrier of this PE alone");
}

void test_counted_inits() {
  int provided = -1;
  that(nvshmem_init_thread(NVSHMEM_THREAD_MULTIPLE, &provided) == 0 && provided == NVSHMEM_THREAD_MULTIPLE,
       "init_thread");
  provided = -1;
  nvshmem_query_thread(&provided);
  that(provided == NVSHMEM_THREAD_MULTIPLE, "query_thread");
  that(nvshmemx_init_attr(0, nullptr) == 0 && nvshmemx_hostlib_init_attr(0, nullptr) == 0, "init_attr without flags");
  nvshmemx_hostlib_finalize();
  nvshmem_finalize();
  nvshmem_finalize();
  that(nvshmemx_init_status() == NVSHMEM_STATUS_IS_INITIALIZED && nvshmem_my_pe() == me, "inits are counted");
}

/// The job is left and joined again by a unique id that PE 0 made.
void test_unique_id() {
  nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
  int communicator = 0;
  that(nvshmemx_set_attr_mpi_comm_args(&communicator, &attr) == 0 && attr.mpi_comm == &communicator,
       "set_attr_mpi_comm_args");
  auto* shared = static_cast<nvshmemx_uniqueid_t*>(nvshmem_malloc(sizeof(nvshmemx_uniqueid_t)));
  if (!that(shared != nullptr, "memory for a unique id")) return;
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  if (me == 0) {
    that(nvshmemx_get_uniqueid(&id) == 0, "get_uniqueid");
    *shared = id;
  }
  nvshmem_barrier_all();
  nvshmem_getmem(&id, shared, sizeof id, 0);
  nvshmem_barrier_all();
  nvshmem_free(shared);
  // The order of PEs is turned round, so that the new numbers cannot be the old ones.
  const int rank = n - 1 - me;
  that(nvshmemx_set_attr_uniqueid_args(rank, n, &id, &attr) == 0 && attr.args.uid_args.nranks == n,
       "set_attr_uniqueid_args");
  heddle_clear_error();
  nvshmem_finalize();
  that(nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED, "finalize ends");
  that(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr) == 0, "init_attr with a unique id");
  that(nvshmem_my_pe() == rank && nvshmem_n_pes() == n, "numbers by unique id");
  auto* word = static_cast<int*>(nvshmem_calloc(1, sizeof(int)));
  if (!that(word != nullptr, "calloc in the second world")) return;
  nvshmem_int_p(word, rank + 1, (rank + 1) % n);
  nvshmem_barrier_all();
  that(*word == (rank + n - 1) % n + 1, "a put in the second world");
  nvshmem_free(word);
}

}  // namespace

void test_the_rest() {
  me = nvshmem_my_pe();
  n = nvshmem_n_pes();
  right = (me + 1) % n;
  left = (me + n - 1) % n;
  heddle_clear_error();
  test_queries();
  test_memory();
  test_registration();
  test_regions();
  test_queues();
  test_signals();
  test_order();
  test_teams();
  that(std::strlen(heddle_last_error()) == 0, "no error at the end");
}

void test_second_world() {
  test_counted_inits();
  test_unique_id();
}
