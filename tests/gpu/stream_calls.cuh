// Every on_stream name behind one table, made from the lists that the library is made from, and memory with a model of
// what must be in it. For programs that check all of the calls.
#pragma once

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/gpu/gpu.cuh"

namespace gpu {

// ---- names

inline std::set<std::string> called;  // names that were used

/// A name and how it is called; asking for the call notes the name.
template <class Function>
struct Call {
  const char* name;
  Function* function;
  template <class... Arguments>
  void operator()(Arguments... arguments) const {
    called.insert(name);
    function(arguments...);
  }
};

using Move = Call<void(void* dest, const void* source, size_t count, int pe, cudaStream_t)>;
using StridedMove =
    Call<void(void* dest, const void* source, ptrdiff_t dst, ptrdiff_t sst, size_t count, int pe, cudaStream_t)>;
using SignalledPut = Call<void(void* dest, const void* source, size_t count, uint64_t* signal, uint64_t value, int op,
                               int pe, cudaStream_t)>;

/// The transfers of one type, size, or of bytes.
struct Transfers {
  const char* name;
  size_t element;
  Move put[2], get[2];  ///< blocking, nbi
  StridedMove iput, iget;
  SignalledPut put_signal[2];
  Call<void(void* dest, const void* value, int pe, cudaStream_t)> p;    ///< no function for sizes and bytes
  Call<void(void* value, const void* source, int pe, cudaStream_t)> g;  ///< the same
};

/// The waits of one type. Values by address.
struct Waits {
  const char* name;
  size_t element;
  bool is_signed;
  Call<void(void* variable, int cmp, const void* value, cudaStream_t)> one;
  Call<void(void* variables, size_t count, const int* status, int cmp, const void* value, cudaStream_t)> all;
  Call<void(void* variables, size_t count, const int* status, int cmp, void* values, cudaStream_t)> vector;
};

#define HEDDLE_MOVE(FUNCTION, TYPE)                                                                                    \
  {                                                                                                                    \
#FUNCTION, [](void* to, const void* from, size_t count, int pe,                                                    \
                  cudaStream_t                                                                                         \
                      stream) { FUNCTION(static_cast<TYPE*>(to), static_cast<const TYPE*>(from), count, pe, stream); } \
  }
#define HEDDLE_STRIDED(FUNCTION, TYPE)                                                                                    \
  {                                                                                                                       \
#FUNCTION,                                                                                                            \
        [](void* to, const void* from, ptrdiff_t dst, ptrdiff_t sst, size_t count, int pe,                                \
           cudaStream_t                                                                                                   \
               stream) { FUNCTION(static_cast<TYPE*>(to), static_cast<const TYPE*>(from), dst, sst, count, pe,            \
                                  stream); } \
  }
#define HEDDLE_SIGNALLED(FUNCTION, TYPE)                                                                     \
  {                                                                                                          \
#FUNCTION, [](void* to, const void* from, size_t count, uint64_t* signal, uint64_t value, int op, int pe,  \
                  cudaStream_t stream) {                                                                       \
      FUNCTION(static_cast<TYPE*>(to), static_cast<const TYPE*>(from), count, signal, value, op, pe, stream);  \
    } \
  }
#define HEDDLE_P(FUNCTION, TYPE)                                                                                    \
  {                                                                                                                 \
#FUNCTION,                                                                                                      \
        [](void* to, const void* value, int pe,                                                                     \
           cudaStream_t stream) { FUNCTION(static_cast<TYPE*>(to), *static_cast<const TYPE*>(value), pe, stream); } \
  }
#define HEDDLE_G(FUNCTION, TYPE)                                                                                       \
  {                                                                                                                    \
#FUNCTION,                                                                                                         \
        [](void* value, const void* from, int pe,                                                                      \
           cudaStream_t stream) { *static_cast<TYPE*>(value) = FUNCTION(static_cast<const TYPE*>(from), pe, stream); } \
  }
#define HEDDLE_OF_TYPE(NAME, TYPE)                                                                               \
  {#NAME,                                                                                                        \
   sizeof(TYPE),                                                                                                 \
   {HEDDLE_MOVE(nvshmemx_##NAME##_put_on_stream, TYPE), HEDDLE_MOVE(nvshmemx_##NAME##_put_nbi_on_stream, TYPE)}, \
   {HEDDLE_MOVE(nvshmemx_##NAME##_get_on_stream, TYPE), HEDDLE_MOVE(nvshmemx_##NAME##_get_nbi_on_stream, TYPE)}, \
   HEDDLE_STRIDED(nvshmemx_##NAME##_iput_on_stream, TYPE),                                                       \
   HEDDLE_STRIDED(nvshmemx_##NAME##_iget_on_stream, TYPE),                                                       \
   {HEDDLE_SIGNALLED(nvshmemx_##NAME##_put_signal_on_stream, TYPE),                                              \
    HEDDLE_SIGNALLED(nvshmemx_##NAME##_put_signal_nbi_on_stream, TYPE)},                                         \
   HEDDLE_P(nvshmemx_##NAME##_p_on_stream, TYPE),                                                                \
   HEDDLE_G(nvshmemx_##NAME##_g_on_stream, TYPE)},
#define HEDDLE_OF_SIZE(BITS)                                                                                   \
  {#BITS,                                                                                                      \
   (BITS) / 8,                                                                                                 \
   {HEDDLE_MOVE(nvshmemx_put##BITS##_on_stream, void), HEDDLE_MOVE(nvshmemx_put##BITS##_nbi_on_stream, void)}, \
   {HEDDLE_MOVE(nvshmemx_get##BITS##_on_stream, void), HEDDLE_MOVE(nvshmemx_get##BITS##_nbi_on_stream, void)}, \
   HEDDLE_STRIDED(nvshmemx_iput##BITS##_on_stream, void),                                                      \
   HEDDLE_STRIDED(nvshmemx_iget##BITS##_on_stream, void),                                                      \
   {HEDDLE_SIGNALLED(nvshmemx_put##BITS##_signal_on_stream, void),                                             \
    HEDDLE_SIGNALLED(nvshmemx_put##BITS##_signal_nbi_on_stream, void)},                                        \
   {},                                                                                                         \
   {}},
#define HEDDLE_OF_WAIT(NAME, TYPE)                                                                                \
  {#NAME,                                                                                                         \
   sizeof(TYPE),                                                                                                  \
   static_cast<TYPE>(-1) < static_cast<TYPE>(1),                                                                  \
   {"nvshmemx_" #NAME "_wait_until_on_stream",                                                                    \
    [](void* variable, int cmp, const void* value, cudaStream_t stream) {                                         \
      nvshmemx_##NAME##_wait_until_on_stream(static_cast<TYPE*>(variable), cmp, *static_cast<const TYPE*>(value), \
                                             stream);                                                             \
    }},                                                                                                           \
   {"nvshmemx_" #NAME "_wait_until_all_on_stream",                                                                \
    [](void* variables, size_t count, const int* status, int cmp, const void* value, cudaStream_t stream) {       \
      nvshmemx_##NAME##_wait_until_all_on_stream(static_cast<TYPE*>(variables), count, status, cmp,               \
                                                 *static_cast<const TYPE*>(value), stream);                       \
    }},                                                                                                           \
   {"nvshmemx_" #NAME "_wait_until_all_vector_on_stream",                                                         \
    [](void* variables, size_t count, const int* status, int cmp, void* values, cudaStream_t stream) {            \
      nvshmemx_##NAME##_wait_until_all_vector_on_stream(static_cast<TYPE*>(variables), count, status, cmp,        \
                                                        static_cast<TYPE*>(values), stream);                      \
    }}},

/// All of them; the last are those of bytes, whose strided calls are those of 8 bits.
inline const std::vector<Transfers>& all_transfers() {
  static const std::vector<Transfers> all = {HEDDLE_RMA_TYPES(HEDDLE_OF_TYPE) HEDDLE_SIZES(HEDDLE_OF_SIZE){
      "mem",
      1,
      {HEDDLE_MOVE(nvshmemx_putmem_on_stream, void), HEDDLE_MOVE(nvshmemx_putmem_nbi_on_stream, void)},
      {HEDDLE_MOVE(nvshmemx_getmem_on_stream, void), HEDDLE_MOVE(nvshmemx_getmem_nbi_on_stream, void)},
      HEDDLE_STRIDED(nvshmemx_iput8_on_stream, void),
      HEDDLE_STRIDED(nvshmemx_iget8_on_stream, void),
      {HEDDLE_SIGNALLED(nvshmemx_putmem_signal_on_stream, void),
       HEDDLE_SIGNALLED(nvshmemx_putmem_signal_nbi_on_stream, void)},
      {},
      {}}};
  return all;
}
inline const std::vector<Waits>& all_waits() {
  static const std::vector<Waits> all = {HEDDLE_WAIT_TYPES(HEDDLE_OF_WAIT)};
  return all;
}

// The names of their own, so that their use is noted too.
inline const Call<void(uint64_t*, uint64_t, int, int, cudaStream_t)> signal_op = {"nvshmemx_signal_op_on_stream",
                                                                                  nvshmemx_signal_op_on_stream};
inline const Call<void(uint64_t*, int, uint64_t, cudaStream_t)> signal_wait_until = {
    "nvshmemx_signal_wait_until_on_stream", nvshmemx_signal_wait_until_on_stream};
inline const Call<void(cudaStream_t)> quiet = {"nvshmemx_quiet_on_stream", nvshmemx_quiet_on_stream};
inline const Call<void(cudaStream_t)> flush = {"nvshmemx_flush_on_stream", nvshmemx_flush_on_stream};
inline const Call<void(cudaStream_t)> barrier_all = {"nvshmemx_barrier_all_on_stream", nvshmemx_barrier_all_on_stream};
inline const Call<void(cudaStream_t)> sync_all = {"nvshmemx_sync_all_on_stream", nvshmemx_sync_all_on_stream};
inline const Call<void(cudaStream_t)> barrier_world = {
    "nvshmemx_barrier_on_stream", [](cudaStream_t stream) {
      that(nvshmemx_barrier_on_stream(NVSHMEM_TEAM_WORLD, stream) == 0, "barrier_on_stream of the world");
    }};
inline const Call<void(cudaStream_t)> sync_world = {
    "nvshmemx_team_sync_on_stream", [](cudaStream_t stream) {
      that(nvshmemx_team_sync_on_stream(NVSHMEM_TEAM_WORLD, stream) == 0, "team_sync_on_stream of the world");
    }};

/// Every name "..._on_stream" of the table of the API has been called.
inline void check_all_called(const char* table) {
  std::ifstream file(table);
  std::string line, missing;
  long names = 0;
  while (std::getline(file, line)) {
    const std::string name = line.substr(0, line.find('\t'));
    const std::string end = "_on_stream";
    if (name.size() < end.size() || name.compare(name.size() - end.size(), end.size(), end) != 0) continue;
    ++names;
    if (called.count(name) == 0) missing += " " + name;
  }
  that(names > 0 && missing.empty(), std::string("names of ") + table + " that were not called:" + missing);
}

// ---- memory and what must be in it

constexpr size_t kGuard = 64;  // bytes around what a call touches that must stay

/// Bytes that PE `pe` sends in step `serial`: good for 8 MiB.
inline const unsigned char* bytes_of(uint64_t serial, int pe) {
  static const std::vector<unsigned char> pool = [] {
    std::vector<unsigned char> all((8u << 20) + 65536);
    std::mt19937 random(1);
    for (auto& byte : all) byte = static_cast<unsigned char>(random() >> 11);
    return all;
  }();
  return pool.data() + (serial * 7919 + static_cast<uint64_t>(pe) * 104729) % 65536;
}

/// Memory of some kind, with its model. Steps of the host are complete on return.
class Area {
 public:
  Area(const char* name, void* at, size_t bytes, bool is_host)
      : name_(name), at_(static_cast<unsigned char*>(at)), is_host_(is_host), model_(bytes) {
    fill(0, model_.data(), bytes);
  }
  const char* name() const { return name_; }
  bool is_pageable() const { return std::strcmp(name_, "pageable") == 0; }
  unsigned char* at(size_t offset) const { return at_ + offset; }
  size_t size() const { return model_.size(); }
  unsigned char* model(size_t offset) { return model_.data() + offset; }

  /// Writes memory and model.
  void fill(size_t offset, const unsigned char* data, size_t bytes) {
    if (data != model(offset)) std::memcpy(model(offset), data, bytes);
    if (is_host_) {
      std::memcpy(at(offset), data, bytes);
    } else {
      // By pinned memory: the driver stages small copies from pageable memory, and does them later.
      static char* const stage = [] {
        void* pinned = nullptr;
        must(cudaMallocHost(&pinned, kStageBytes), "cudaMallocHost");
        return static_cast<char*>(pinned);
      }();
      for (size_t done = 0; done < bytes; done += kStageBytes) {
        const size_t part = std::min(kStageBytes, bytes - done);
        std::memcpy(stage, data + done, part);
        must(cudaMemcpy(at(offset + done), stage, part, cudaMemcpyHostToDevice), "fill");
      }
    }
  }
  /// Whether [offset, offset + bytes) and the guards around it are as the model says.
  bool holds(size_t offset, size_t bytes) {
    const size_t begin = offset < kGuard ? 0 : offset - kGuard;
    const size_t end = std::min(model_.size(), offset + bytes + kGuard);
    if (is_host_) return std::memcmp(at(begin), model(begin), end - begin) == 0;
    got_.resize(end - begin);
    must(cudaMemcpy(got_.data(), at(begin), end - begin, cudaMemcpyDeviceToHost), "look");
    return std::memcmp(got_.data(), model(begin), end - begin) == 0;
  }

 private:
  static constexpr size_t kStageBytes = 1u << 20;

  const char* name_;
  unsigned char* at_;
  bool is_host_;
  std::vector<unsigned char> model_, got_;
};

/// Symmetric memory, and one area of each kind that may be the local side of a transfer.
struct Memory {
  explicit Memory(size_t bytes)
      : box("box", allocate<char>(bytes), bytes, false),
        symmetric(allocate<char>(bytes)),
        pageable(bytes),
        signal(allocate<uint64_t>(8)) {
    must(cudaMalloc(&plain, bytes), "cudaMalloc");
    must(cudaMallocHost(&pinned, bytes), "cudaMallocHost");
    locals.emplace_back("symmetric", symmetric, bytes, false);
    locals.emplace_back("GPU", plain, bytes, false);
    locals.emplace_back("pinned", pinned, bytes, true);
    locals.emplace_back("pageable", pageable.data(), bytes, true);
  }
  ~Memory() {
    nvshmem_barrier_all();
    must(cudaFreeHost(pinned), "cudaFreeHost");
    must(cudaFree(plain), "cudaFree");
    nvshmem_free(signal);
    nvshmem_free(symmetric);
    nvshmem_free(box.at(0));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Area box;
  char* symmetric;
  std::vector<char> pageable;
  uint64_t* signal;
  void *plain = nullptr, *pinned = nullptr;
  std::vector<Area> locals;
};

}  // namespace gpu
