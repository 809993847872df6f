// Wrong use of the API: every call ends with an error whose text says what is wrong, and the job goes on. Any number of
// PEs; needs NVSHMEM_SYMMETRIC_SIZE=64M.
//
//   bad_input              all of it
//   bad_input unfinished   leaves without nvshmem_finalize: one warning
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>

#include "../multi/check.h"

namespace {

using check::that;

int me, n;

/// The last error's text after `call` holds every one of `words`.
void fails(const std::string& what, const std::function<void()>& call, std::initializer_list<const char*> words) {
  heddle_clear_error();
  call();
  const std::string text = heddle_last_error();
  that(!text.empty(), what + ": an error");
  for (const char* word : words) {
    that(text.find(word) != std::string::npos, what + ": no \"" + word + "\" in \"" + text + "\"");
  }
  heddle_clear_error();
}

void succeeds(const std::string& what, const std::function<bool()>& call) {
  heddle_clear_error();
  that(call(), what);
  that(heddle_last_error()[0] == '\0', what + ": no error");
}

/// Lines that `call` writes to stderr.
int lines_on_stderr(const std::function<void()>& call) {
  std::FILE* file = std::tmpfile();
  if (file == nullptr) return -1;
  std::fflush(stderr);
  const int saved = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  call();
  std::fflush(stderr);
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::rewind(file);
  int lines = 0;
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) lines += c == '\n' ? 1 : 0;
  std::fclose(file);
  return lines;
}

/// One of each kind of call; `when` is what their texts must say.
void outside_a_world(const char* when) {
  static int word = 5;
  static uint64_t signal = 0;
  int provided = -1, active = -1;
  nvshmemx_region_handle_t region = 0;
  that(nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED, "init_status outside");
  fails("malloc", [] { that(nvshmem_malloc(8) == nullptr, "malloc outside"); }, {"nvshmem_malloc", when});
  fails("calloc", [] { that(nvshmem_calloc(8, 8) == nullptr, "calloc outside"); }, {"nvshmem_calloc", when});
  fails("align", [] { that(nvshmem_align(8, 8) == nullptr, "align outside"); }, {"nvshmem_align", when});
  fails("free", [] { nvshmem_free(&word); }, {"nvshmem_free", when});
  fails("ptr", [] { that(nvshmem_ptr(&word, 0) == nullptr, "ptr outside"); }, {"nvshmem_ptr", when});
  fails("my_pe", [] { that(nvshmem_my_pe() == -1, "my_pe outside"); }, {"nvshmem_my_pe", when});
  fails("n_pes", [] { that(nvshmem_n_pes() == -1, "n_pes outside"); }, {"nvshmem_n_pes", when});
  fails("p", [] { nvshmem_int_p(&word, 1, 0); }, {"nvshmem_int_p", when});
  fails("g", [] { that(nvshmem_int_g(&word, 0) == 0, "g outside"); }, {"nvshmem_int_g", when});
  fails("put", [] { nvshmem_putmem(&word, &word, 4, 0); }, {"nvshmem_putmem", when});
  fails("get", [] { nvshmem_float_get(nullptr, nullptr, 4, 0); }, {"nvshmem_float_get", when});
  fails("iput", [] { nvshmem_int_iput(&word, &word, 1, 1, 1, 0); }, {"nvshmem_int_iput", when});
  fails("atomic", [] { that(nvshmem_int_atomic_fetch_add(&word, 1, 0) == 0, "atomic outside"); },
        {"nvshmem_int_atomic_fetch_add", when});
  fails("put_signal", [] { nvshmem_int_put_signal(&word, &word, 1, &signal, 1, NVSHMEM_SIGNAL_SET, 0); },
        {"nvshmem_int_put_signal", when});
  fails("signal_op", [] { nvshmemx_signal_op(&signal, 1, NVSHMEM_SIGNAL_SET, 0); }, {"nvshmemx_signal_op", when});
  fails("counted put", [] { that(nvshmemx_putmem_signal_counted_nbi(&word, &word, 16, &signal, 0) == 7, "its code"); },
        {"nvshmemx_putmem_signal_counted_nbi", when});
  fails("wait", [] { nvshmem_int_wait_until(&word, NVSHMEM_CMP_EQ, 77); }, {"nvshmem_int_wait_until", when});
  fails("test", [] { that(nvshmem_int_test_any(&word, 1, nullptr, NVSHMEM_CMP_EQ, 5) == SIZE_MAX, "test outside"); },
        {"nvshmem_int_test_any", when});
  fails("fence", nvshmem_fence, {"nvshmem_fence", when});
  fails("quiet", nvshmem_quiet, {"nvshmem_quiet", when});
  fails("flush", nvshmemx_flush, {"nvshmemx_flush", when});
  fails("barrier_all", nvshmem_barrier_all, {"nvshmem_barrier_all", when});
  fails("barrier", [] { that(nvshmem_barrier(NVSHMEM_TEAM_WORLD) == NVSHMEMX_ERROR_INTERNAL, "barrier outside"); },
        {"nvshmem_barrier", when});
  fails("team_n_pes", [] { that(nvshmem_team_n_pes(NVSHMEM_TEAM_WORLD) == -1, "team outside"); }, {when});
  fails("query_thread", [&] { nvshmem_query_thread(&provided); }, {"nvshmem_query_thread", when});
  nvshmemx_qp_handle_t* queues = nullptr;
  fails("qp_create", [&] { that(nvshmemx_qp_create(1, &queues) == NVSHMEMX_ERROR_INTERNAL, "qp_create outside"); },
        {"nvshmemx_qp_create", when});
  that(queues == nullptr, "no queues outside");
  fails("region", [&] { that(nvshmemx_region_start(&region, nullptr) == NVSHMEMX_ERROR_INTERNAL, "region outside"); },
        {"nvshmemx_region_start", when});
  fails("region", [&] { that(nvshmemx_region_is_active(0, &active) == NVSHMEMX_ERROR_INTERNAL, "region outside"); },
        {when});
  fails("buffer", [] { that(nvshmemx_buffer_register(&word, 4) == NVSHMEMX_ERROR_INTERNAL, "buffer outside"); },
        {when});
  fails("finalize", nvshmem_finalize, {"nvshmem_finalize", when});
  that(word == 5 && signal == 0, "nothing was written outside a world");
  that(heddle_fabric_name()[0] == '\0', "no fabric outside");
  // A loop of calls is one line in the log, and still an error each time.
  const int lines = lines_on_stderr([] {
    for (int i = 0; i < 1000; ++i) nvshmem_double_p(nullptr, 1.0, 0);
  });
  that(lines == 1, "1000 calls outside wrote " + std::to_string(lines) + " lines");
  fails("p again", [] { nvshmem_double_p(nullptr, 1.0, 0); }, {"nvshmem_double_p", when});
}

void failing_inits() {
  nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  const auto init = [&](unsigned flags, nvshmemx_init_attr_t* attributes, int code) {
    return [=] { that(nvshmemx_init_attr(flags, attributes) == code, "code of init_attr " + std::to_string(flags)); };
  };
  const int invalid = NVSHMEMX_ERROR_INVALID_VALUE, unsupported = NVSHMEMX_ERROR_NOT_SUPPORTED;
  fails("both flags", init(NVSHMEMX_INIT_WITH_MPI_COMM | NVSHMEMX_INIT_WITH_UNIQUEID, &attr, invalid), {"0xa"});
  fails("unknown flags", init(64, &attr, invalid), {"0x40"});
  fails("SHMEM", init(NVSHMEMX_INIT_WITH_SHMEM, &attr, unsupported), {"NVSHMEMX_INIT_WITH_SHMEM"});
  fails("threads", init(NVSHMEMX_INIT_THREAD_PES, &attr, unsupported), {"NVSHMEMX_INIT_THREAD_PES"});
  fails("no attributes", init(NVSHMEMX_INIT_WITH_UNIQUEID, nullptr, invalid), {"NULL"});
  fails("no communicator", init(NVSHMEMX_INIT_WITH_MPI_COMM, &attr, invalid), {"mpi_comm is NULL"});
  fails("no id", init(NVSHMEMX_INIT_WITH_UNIQUEID, &attr, invalid), {"unique id is NULL"});
  // Programs set mpi_comm in a structure that was never initialised: its version word says nothing.
  attr.version = 4711;
  fails("version", init(NVSHMEMX_INIT_WITH_MPI_COMM, &attr, invalid), {"mpi_comm is NULL"});
  attr.args.uid_args.id = &id;
  attr.args.uid_args.myrank = 3;
  attr.args.uid_args.nranks = 3;
  fails("rank", init(NVSHMEMX_INIT_WITH_UNIQUEID, &attr, invalid), {"rank 3 of 3"});
  id.version = 12;
  fails("id version", init(NVSHMEMX_INIT_WITH_UNIQUEID, &attr, invalid), {"12", "nvshmemx_get_uniqueid"});
  fails("set_attr", [&] { that(nvshmemx_set_attr_uniqueid_args(0, 1, &id, nullptr) == invalid, "set_attr"); },
        {"NULL"});
  fails("set_attr", [&] { that(nvshmemx_set_attr_mpi_comm_args(nullptr, &attr) == invalid, "set_attr"); }, {"NULL"});
  fails("get_uniqueid", [&] { that(nvshmemx_get_uniqueid(nullptr) == invalid, "get_uniqueid"); }, {"NULL"});
  fails("init_thread",
        [] {
          int level;
          that(nvshmem_init_thread(9, &level) == NVSHMEMX_ERROR_INVALID_VALUE, "code");
        },
        {"9"});
  fails("init_thread", [] { that(nvshmem_init_thread(0, nullptr) == NVSHMEMX_ERROR_INVALID_VALUE, "code"); }, {"NULL"});

  // The first failure is repeated by later calls, until an init succeeds.
  fails("malloc after failures", [] { nvshmem_malloc(8); },
        {"before nvshmem_init", "an earlier nvshmemx_init_attr failed: ", "0xa"});
}

void malformed_setting() {
  const std::string good = std::getenv("NVSHMEM_SYMMETRIC_SIZE") ? std::getenv("NVSHMEM_SYMMETRIC_SIZE") : "64M";
  setenv("NVSHMEM_SYMMETRIC_SIZE", "12Q", 1);
  fails("malformed setting", nvshmem_init, {"nvshmem_init", "NVSHMEM_SYMMETRIC_SIZE", "12Q"});
  that(nvshmemx_init_status() == NVSHMEM_STATUS_NOT_INITIALIZED, "init_status after a failed init");
  fails("malloc after it", [] { nvshmem_malloc(8); }, {"an earlier nvshmem_init failed: ", "12Q"});
  setenv("NVSHMEM_SYMMETRIC_SIZE", good.c_str(), 1);
}

void second_inits() {
  nvshmemx_uniqueid_t id;
  nvshmemx_init_attr_t attr = NVSHMEMX_INIT_ATTR_INITIALIZER;
  succeeds("get_uniqueid in a world", [&] { return nvshmemx_get_uniqueid(&id) == 0; });
  succeeds("set_attr", [&] { return nvshmemx_set_attr_uniqueid_args(1, 77, &id, &attr) == 0; });
  fails("a second init for another job",
        [&] { that(nvshmemx_init_attr(NVSHMEMX_INIT_WITH_UNIQUEID, &attr) == NVSHMEMX_ERROR_INVALID_VALUE, "code"); },
        {"the launcher's job", "rank 1 of 77", "unique id #"});
  that(nvshmem_my_pe() == me && nvshmem_n_pes() == n, "the world stays as it was");
}

void bad_memory_calls() {
  fails("calloc overflow", [] { that(nvshmem_calloc(SIZE_MAX / 2, 3) == nullptr, "calloc"); },
        {"nvshmem_calloc", "9223372036854775807", "3", "SIZE_MAX"});
  fails("align 0", [] { that(nvshmem_align(0, 8) == nullptr, "align 0"); }, {"nvshmem_align", "alignment 0"});
  fails("align 24", [] { that(nvshmem_align(24, 8) == nullptr, "align 24"); }, {"alignment 24", "power of two"});
  fails("align 1T", [] { that(nvshmem_align(size_t{1} << 40, 8) == nullptr, "align"); }, {"1099511627776"});
  fails("heap exhausted", [] { that(nvshmem_malloc(size_t{1} << 30) == nullptr, "malloc"); },
        {"nvshmem_malloc", "1073741824", "limit", "NVSHMEM_SYMMETRIC_SIZE"});
  fails("malloc of everything", [] { that(nvshmem_malloc(SIZE_MAX) == nullptr, "malloc"); }, {"18446744073709551615"});

  auto* block = static_cast<char*>(nvshmem_malloc(1000));
  auto* other = static_cast<char*>(nvshmem_malloc(1000));
  that(block != nullptr && other != nullptr, "malloc still works");
  int local = 0;
  fails("free of a foreign address", [&] { nvshmem_free(&local); }, {"nvshmem_free", "outside the symmetric heap"});
  fails("free of the middle of a block", [&] { nvshmem_free(block + 256); }, {"not the start of a live block"});
  succeeds("free of NULL", [] { return nvshmem_free(nullptr), true; });
  if (n > 1) {
    fails("free of different blocks", [&] { nvshmem_free(me == 0 ? block : other); }, {"offset", "PE 0", "PE 1"});
    fails("sizes that differ", [] { that(nvshmem_malloc(me == 0 ? 64 : 128) == nullptr, "malloc"); },
          {"64", "128", "PE 0", "PE 1"});
    fails("arguments that are wrong on one PE only",
          [] { that(nvshmem_calloc(me == 1 ? SIZE_MAX : 16, 16) == nullptr, "calloc"); }, {"PE 1", "SIZE_MAX"});
    fails("different calls", [] { me == 0 ? nvshmem_malloc(64) : nvshmem_calloc(64, 1); },
          {"nvshmem_malloc", "nvshmem_calloc"});
  }
  succeeds("free", [&] { return nvshmem_free(block), true; });
  fails("free twice", [&] { nvshmem_free(block); }, {"not the start of a live block"});
  succeeds("free of the other", [&] { return nvshmem_free(other), true; });

  struct heddle_heap_info info = {};
  fails("heap_info", [] { that(heddle_heap_info(nullptr) == NVSHMEMX_ERROR_INVALID_VALUE, "code"); }, {"NULL"});
  fails("heap_info", [&] { that(heddle_heap_info(&info) == NVSHMEMX_ERROR_INVALID_VALUE, "code"); }, {"size"});
}

void bad_data_calls() {
  auto* block = static_cast<int*>(nvshmem_calloc(64, sizeof(int)));
  auto* signal = static_cast<uint64_t*>(nvshmem_calloc(64, sizeof(uint64_t)));
  if (!that(block != nullptr && signal != nullptr, "malloc still works")) return;
  static int local[64];
  static uint64_t local_signal = 3;
  const std::string range = "0 to " + std::to_string(n - 1);
  const std::string pe = "PE " + std::to_string(n);
  fails("p to PE n", [&] { nvshmem_int_p(block, 1, n); }, {"nvshmem_int_p", pe.c_str(), range.c_str()});
  fails("g of PE -1", [&] { that(nvshmem_int_g(block, -1) == 0, "g"); }, {"nvshmem_int_g", "PE -1"});
  fails("put to PE n", [&] { nvshmem_put32(block, local, 1, n); }, {"nvshmem_put32", pe.c_str()});
  fails("fetch_inc at PE n", [&] { nvshmem_int_atomic_fetch_inc(block, n); }, {"nvshmem_int_atomic_fetch_inc"});
  fails("half add at PE n", [&] { nvshmemx_half_atomic_add(reinterpret_cast<__half*>(block), __half(), n); },
        {"nvshmemx_half_atomic_add", pe.c_str()});
  fails("signal_op at PE n", [&] { nvshmemx_signal_op(signal, 1, NVSHMEM_SIGNAL_ADD, n); }, {"nvshmemx_signal_op"});
  fails("put outside the heap", [] { nvshmem_int_put(local, local, 4, 0); },
        {"nvshmem_int_put", "(16 bytes)", "symmetric heap", "nvshmem_malloc"});
  fails("get outside the heap", [] { nvshmem_double_get(nullptr, nullptr, 4, 0); },
        {"nvshmem_double_get", "(32 bytes)"});
  fails("atomic outside the heap", [] { nvshmem_int_atomic_set(local, 4, 0); }, {"nvshmem_int_atomic_set"});
  fails("put past the heap", [&] { nvshmem_putmem(block, local, size_t{1} << 40, 0); }, {"1099511627776"});
  fails("a count that overflows", [&] { nvshmem_int_put(block, local, SIZE_MAX / 4 + 2, 0); }, {"nvshmem_int_put"});
  fails("stride 0", [&] { nvshmem_int_iput(block, local, 0, 1, 4, 0); }, {"nvshmem_int_iput", "stride", "0"});
  fails("stride -2", [&] { nvshmem_int_iget(local, block, 1, -2, 4, 0); }, {"nvshmem_int_iget", "-2"});
  fails("strides past the heap", [&] { nvshmem_iput64(block, local, 1 << 30, 1, 5, 0); }, {"nvshmem_iput64"});
  fails("strides past all addresses", [&] { nvshmem_iput64(block, local, PTRDIFF_MAX, 1, SIZE_MAX, 0); },
        {"nvshmem_iput64", "more than all addresses"});
  fails("signal operation", [&] { nvshmem_int_put_signal(block, local, 1, signal, 1, 77, 0); },
        {"nvshmem_int_put_signal", "77", "NVSHMEM_SIGNAL_SET"});
  fails("signal operation", [&] { nvshmemx_signal_op(signal, 1, 0, 0); }, {"nvshmemx_signal_op", "0"});
  fails("signal outside the heap",
        [&] { nvshmem_int_put_signal(block, local, 1, &local_signal, 1, NVSHMEM_SIGNAL_SET, 0); }, {"symmetric heap"});
  fails("signal_fetch outside the heap", [] { that(nvshmem_signal_fetch(&local_signal) == 0, "signal_fetch"); },
        {"nvshmem_signal_fetch", "symmetric heap"});
  const auto counted = [&](void* dest, size_t bytes, uint64_t* counter) {
    return [=] {
      that(nvshmemx_putmem_signal_counted_nbi(dest, block, bytes, counter, 0) == NVSHMEMX_ERROR_INVALID_VALUE, "code");
    };
  };
  fails("counted put of 15 bytes", counted(block, 15, signal), {"15", "multiples of 16"});
  fails("counter off its place", counted(block, 16, signal + 1), {"256"});
  fails("counter inside the data", counted(signal, 16, signal), {"inside the destination"});
  for (int i = 0; i < 64; ++i) that(block[i] == 0 && signal[i] == 0, "nothing was written");

  fails("comparison 6", [&] { nvshmem_int_wait_until(block, 6, 1); },
        {"nvshmem_int_wait_until", "6", "NVSHMEM_CMP_EQ"});
  fails("comparison -1", [&] { that(nvshmem_int_test(block, -1, 1) == 0, "test"); }, {"nvshmem_int_test", "-1"});
  fails("comparison 9", [&] { that(nvshmem_signal_wait_until(signal, 9, 1) == 0, "wait"); }, {"9"});
  fails("wait outside the heap", [] { nvshmem_int_wait_until_all(local, 64, nullptr, NVSHMEM_CMP_EQ, 1); },
        {"nvshmem_int_wait_until_all", "(256 bytes)"});
  fails("wait for too many",
        [&] { that(nvshmem_int_wait_until_any(block, SIZE_MAX / 2, nullptr, NVSHMEM_CMP_EQ, 1) == SIZE_MAX, "any"); },
        {"symmetric heap"});
  fails("wait for NULL values",
        [&] { that(nvshmem_int_wait_until_some_vector(block, 2, nullptr, nullptr, 0, nullptr) == 0, "some"); },
        {"cmp_values is NULL"});
  size_t* no_indices = nullptr;
  fails("wait without indices",
        [&] { that(nvshmem_int_test_some(block, 2, no_indices, nullptr, NVSHMEM_CMP_EQ, 0) == 0, "some"); },
        {"indices is NULL"});
  succeeds("right calls after it", [&] {
    nvshmem_int_p(block, 1, me);
    nvshmem_barrier_all();
    return *block == 1;
  });
  nvshmem_free(signal);
  nvshmem_free(block);
}

void bad_calls_of_the_rest() {
  const int invalid = NVSHMEMX_ERROR_INVALID_VALUE;
  static char buffer[64];
  const auto registered = [=](void* addr, size_t length) {
    return [=] { that(nvshmemx_buffer_register(addr, length) == invalid, "code of buffer_register"); };
  };
  fails("register NULL", registered(nullptr, 8), {"nvshmemx_buffer_register"});
  fails("register 0 bytes", registered(buffer, 0), {"+0 bytes"});
  fails("register past the end", registered(buffer, SIZE_MAX), {"last address"});
  succeeds("register", [] { return nvshmemx_buffer_register(buffer + 8, 16) == 0; });
  char first[32];
  std::snprintf(first, sizeof first, "%p", static_cast<void*>(buffer + 8));
  fails("register over the start", registered(buffer, 9), {"overlaps", first, "+16 bytes"});
  fails("register over the end", registered(buffer + 23, 9), {"overlaps", first});
  fails("register inside", registered(buffer + 10, 2), {"overlaps", first});
  fails("unregister inside", [=] { that(nvshmemx_buffer_unregister(buffer + 9) == invalid, "code"); }, {"starts at"});
  fails("unregister twice",
        [=] {
          that(nvshmemx_buffer_unregister(buffer + 8) == 0 && nvshmemx_buffer_unregister(buffer + 8) == invalid, "");
        },
        {"starts at", first});
  fails("register symmetric NULL", [] { nvshmemx_buffer_register_symmetric(nullptr, 8, 0); }, {"empty"});
  fails("register symmetric", [] { that(nvshmemx_buffer_register_symmetric(buffer, 64, 0) == nullptr, "NULL"); },
        {"nvshmemx_buffer_register_symmetric", "CUDA VMM", "host"});
  fails("register symmetric with flags",
        [] { that(nvshmemx_buffer_register_symmetric(buffer, 64, 2) == nullptr, "NULL"); }, {"flags 2", "pass 0"});
  fails("register symmetric at an address",
        [] { nvshmemx_buffer_register_symmetric_at_preferred_address(buffer, 64, buffer, 0); }, {"CUDA VMM"});
  fails("unregister symmetric",
        [] { that(nvshmemx_buffer_unregister_symmetric(buffer, 64) == NVSHMEMX_ERROR_NOT_SUPPORTED, "code"); },
        {"CUDA VMM"});

  nvshmemx_region_attrs_t attrs = NVSHMEMX_REGION_ATTRS_INITIALIZER;
  nvshmemx_region_handle_t region = 0;
  attrs.hints = 6;
  fails("region hints", [&] { that(nvshmemx_region_start(&region, &attrs) == invalid, "code"); }, {"0x6"});
  fails("region handle", [&] { that(nvshmemx_region_start(nullptr, nullptr) == invalid, "code"); }, {"NULL"});
  fails("region active", [&] { that(nvshmemx_region_is_active(0, nullptr) == invalid, "code"); }, {"NULL"});
  fails("region stop", [&] { that(nvshmemx_region_stop(99) == invalid, "code"); }, {"99"});
  succeeds("region start", [&] { return nvshmemx_region_start(&region, nullptr) == 0; });
  nvshmemx_region_handle_t inner = 0;
  fails("a region inside a region", [&] { that(nvshmemx_region_start(&inner, nullptr) == invalid, "code"); }, {"open"});
  succeeds("region stop", [&] { return nvshmemx_region_stop(region) == 0; });
  fails("region stop twice", [&] { that(nvshmemx_region_stop(region) == invalid, "code"); }, {"nvshmemx_region_stop"});

  nvshmemx_qp_handle_t here = 0;
  nvshmemx_qp_handle_t* queues = &here;
  fails("minus one queue", [&] { that(nvshmemx_qp_create(-1, &queues) == invalid, "code"); }, {"num_qps", "-1"});
  that(queues == nullptr, "no queues: no array");
  queues = &here;
  fails("more queues than anybody needs", [&] { that(nvshmemx_qp_create(INT_MAX, &queues) == invalid, "code"); },
        {"num_qps", "2147483647", "65536"});
  that(queues == nullptr, "too many queues: no array");
  succeeds("as many queues as there can be", [&] { return nvshmemx_qp_create(65536, &queues) == 0; });
  std::free(queues);
  fails("queues to nowhere", [=] { that(nvshmemx_qp_create(1, nullptr) == invalid, "code"); },
        {"out_qp_array", "NULL"});

  fails("team 42", [] { that(nvshmem_team_n_pes(42) == -1, "team_n_pes"); }, {"nvshmem_team_n_pes", "42"});
  fails("team 7", [] { that(nvshmem_team_my_pe(7) == -1, "team_my_pe"); }, {"team 7"});
  fails("barrier of no team", [=] { that(nvshmem_barrier(NVSHMEM_TEAM_INVALID) == invalid, "code"); }, {"team -1"});
  that(nvshmem_team_translate_pe(NVSHMEM_TEAM_WORLD, n, NVSHMEM_TEAM_WORLD) == -1, "translation of PE n");
  fails("query_thread", [] { nvshmem_query_thread(nullptr); }, {"NULL"});
  nvshmem_info_get_version(nullptr, nullptr);
  nvshmem_info_get_name(nullptr);
  nvshmemx_vendor_get_version_info(nullptr, nullptr, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "unfinished") == 0) {
    nvshmem_init();
    std::printf("PE %d leaves\n", nvshmem_my_pe());
    return 0;
  }
  outside_a_world("called before nvshmem_init");
  failing_inits();
  nvshmem_init();
  if (nvshmemx_init_status() != NVSHMEM_STATUS_IS_INITIALIZED) {
    std::fprintf(stderr, "nvshmem_init failed: %s\n", heddle_last_error());
    return 1;
  }
  nvshmem_finalize();
  outside_a_world("called after nvshmem_finalize");
  malformed_setting();
  succeeds("init after finalize", [] {
    nvshmem_init();
    return nvshmemx_init_status() == NVSHMEM_STATUS_IS_INITIALIZED;
  });
  me = nvshmem_my_pe();
  n = nvshmem_n_pes();
  second_inits();
  bad_memory_calls();
  bad_data_calls();
  bad_calls_of_the_rest();
  return check::finish("bad_input");
}
