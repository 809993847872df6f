// Plain memory of two processes without any library: what every figure is compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace perftest {

/// Where another process finds a mapping: its process id and descriptor, in one word that a put can carry.
using MappingName = uint64_t;

/// memfd memory mapped shared and writable, at an address that is a multiple of kAlign: the same kind of memory as a
/// symmetric heap in host memory.
class SharedMapping {
 public:
  static constexpr size_t kAlign = 2u << 20;

  SharedMapping() = default;
  ~SharedMapping();
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  /// Makes `bytes` of new memory, every page touched. False: error() says why.
  bool create(size_t bytes);
  /// Maps the `bytes` that another process of this host and user made under `name`, which must still have them.
  bool open(MappingName name, size_t bytes);

  MappingName name() const;
  std::byte* data() const { return data_; }
  const std::string& error() const { return error_; }

 private:
  bool map(size_t bytes);
  bool failed(const char* what);

  int fd_ = -1;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::string error_;
};

/// Fills `bytes` with a pattern that differs in (almost) every byte for every seed.
void fill_pattern(void* memory, size_t bytes, uint64_t seed);
/// Offset of the first byte that differs from fill_pattern's; `bytes` when all are right.
size_t find_wrong_byte(const void* memory, size_t bytes, uint64_t seed);

/// Puts the calling thread on the core that is `index` modulo the allowed ones. False when the system refuses.
/// `cores` becomes the number of allowed cores.
bool bind_to_core(int index, int* cores);

}  // namespace perftest
