#include "perftest/common/raw.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace perftest {
namespace {

/// One step of splitmix64.
uint64_t mix(uint64_t value) {
  value += 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

/// The 8 pattern bytes at `index`; cheap, as 64 MiB of it are made and checked.
uint64_t pattern_word(uint64_t base, uint64_t index) { return base ^ (index * 0x9E3779B97F4A7C15u); }

}  // namespace

SharedMapping::~SharedMapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
  if (fd_ >= 0) close(fd_);
}

bool SharedMapping::failed(const char* what) {
  error_ = std::string(what) + ": " + strerror(errno);
  return false;
}

bool SharedMapping::create(size_t bytes) {
  fd_ = memfd_create("perftest", MFD_CLOEXEC);
  if (fd_ < 0) return failed("memfd_create");
  if (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  if (!map(bytes)) return false;
  memset(data_, 0, bytes);
  return true;
}

bool SharedMapping::open(MappingName name, size_t bytes) {
  const std::string path = "/proc/" + std::to_string(name >> 32) + "/fd/" + std::to_string(name & 0xFFFFFFFFu);
  fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd_ < 0) return failed(path.c_str());
  return map(bytes);
}

bool SharedMapping::map(size_t bytes) {
  void* room = mmap(nullptr, bytes + kAlign, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return failed("mmap");
  auto* start = static_cast<std::byte*>(room);
  const size_t skip = (kAlign - reinterpret_cast<uintptr_t>(start) % kAlign) % kAlign;
  void* mapped = mmap(start + skip, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_, 0);
  if (mapped == MAP_FAILED) {
    failed("mmap");
    munmap(room, bytes + kAlign);
    return false;
  }
  // The spare ends of the room are given back, so that bytes_ is all there is to unmap.
  if (skip > 0) munmap(start, skip);
  const size_t end = (skip + bytes + 4095) / 4096 * 4096;
  if (bytes + kAlign > end) munmap(start + end, bytes + kAlign - end);
  data_ = static_cast<std::byte*>(mapped);
  bytes_ = bytes;
  (void)madvise(data_, bytes, MADV_HUGEPAGE);  // as the heap does; most systems ignore it for shared memory
  return true;
}

MappingName SharedMapping::name() const { return static_cast<uint64_t>(getpid()) << 32 | static_cast<uint32_t>(fd_); }

void fill_pattern(void* memory, size_t bytes, uint64_t seed) {
  const uint64_t base = mix(seed);
  auto* to = static_cast<std::byte*>(memory);
  size_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    const uint64_t word = pattern_word(base, at);
    memcpy(to + at, &word, 8);
  }
  const uint64_t word = pattern_word(base, at);
  memcpy(to + at, &word, bytes - at);
}

size_t find_wrong_byte(const void* memory, size_t bytes, uint64_t seed) {
  const uint64_t base = mix(seed);
  const auto* from = static_cast<const std::byte*>(memory);
  for (size_t at = 0; at < bytes; at += 8) {
    const size_t here = bytes - at < 8 ? bytes - at : 8;
    const uint64_t word = pattern_word(base, at);
    if (memcmp(from + at, &word, here) == 0) continue;
    size_t wrong = 0;
    while (from[at + wrong] == reinterpret_cast<const std::byte*>(&word)[wrong]) ++wrong;
    return at + wrong;
  }
  return bytes;
}

bool bind_to_core(int index, int* cores) {
  cpu_set_t allowed;
  *cores = 0;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  *cores = CPU_COUNT(&allowed);
  int left = index % *cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || left-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0;
  }
  return false;
}

}  // namespace perftest
