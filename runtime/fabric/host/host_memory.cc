#include "runtime/fabric/host/host_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <fstream>
#include <sstream>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U
#endif

namespace heddle::host {
namespace {

/// The number behind `key` in a file of "key number" lines, e.g. "MemAvailable:" in /proc/meminfo.
bool read_field(const std::string& path, const std::string& key, uint64_t* value) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    if (words >> name && name == key && words >> *value) return true;
  }
  return false;
}

/// The one number in a file; false for "max".
bool read_number(const std::string& path, uint64_t* value) {
  std::ifstream file(path);
  return static_cast<bool>(file >> *value);
}

/// Path of this process's cgroup of version 2, "" when it has none.
std::string own_cgroup(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("0::/", 0) == 0) return line.substr(3);
  }
  return {};
}

}  // namespace

uint64_t page_bytes() {
  static const auto kBytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return kBytes;
}

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory available;
  auto lower_to = [&available](uint64_t bytes, const std::string& limit) {
    if (bytes < available.bytes) available = {bytes, limit};
  };
  uint64_t kib = 0;
  if (read_field(root + "/proc/meminfo", "MemAvailable:", &kib)) lower_to(kib * 1024, "MemAvailable of /proc/meminfo");
  for (std::string group = own_cgroup(root); !group.empty();) {
    const std::string folder = "/sys/fs/cgroup" + (group == "/" ? "" : group);
    uint64_t most = 0, current = 0;
    if (read_number(root + folder + "/memory.max", &most) && read_number(root + folder + "/memory.current", &current)) {
      // File pages count as in use but make room when asked to; shared memory is not among these two.
      uint64_t inactive = 0, active = 0;
      read_field(root + folder + "/memory.stat", "inactive_file", &inactive);
      read_field(root + folder + "/memory.stat", "active_file", &active);
      const uint64_t kept = current > inactive + active ? current - inactive - active : 0;
      lower_to(most > kept ? most - kept : 0, "memory.max of cgroup " + group);
    }
    if (group == "/") break;
    group.resize(group.find_last_of('/'));
    if (group.empty()) group = "/";
  }
  return available;
}

Status make_memory(uint64_t bytes, OwnedFd* fd) {
  const AvailableMemory available = available_memory();
  if (bytes > available.bytes) {
    return error(Code::kOutOfMemory,
                 "asked %" PRIu64 " bytes of host memory, available are %" PRIu64
                 " (%s); ask for less, free some, or run fewer PEs on this host",
                 bytes, available.bytes, available.limit.c_str());
  }
  OwnedFd made(memfd_create("heddle", MFD_CLOEXEC));
  // Where vm.memfd_noexec is 2, the kernel only makes memory that can never be executed.
  if (!made.valid() && errno == EACCES) made = OwnedFd(memfd_create("heddle", MFD_CLOEXEC | MFD_NOEXEC_SEAL));
  if (!made.valid()) {
    const int err = errno;
    const Code code = err == ENOMEM || err == EMFILE || err == ENFILE ? Code::kOutOfMemory : Code::kInternal;
    return error_errno(code, err, "memfd_create for %" PRIu64 " bytes of shared memory%s", bytes,
                       err == EMFILE ? "; raise the limit of open files (ulimit -n)" : "");
  }
  if (ftruncate(made.get(), static_cast<off_t>(bytes)) != 0) {
    return error_errno(Code::kOutOfMemory, errno, "making shared memory %" PRIu64 " bytes long; available are %" PRIu64,
                       bytes, available.bytes);
  }
  *fd = std::move(made);
  return Status::ok();
}

Status reserve_addresses(uint64_t bytes, uint64_t alignment, std::byte** base) {
  const uint64_t with_slack = bytes + alignment;
  void* const mapping = with_slack < bytes
                            ? MAP_FAILED
                            : mmap(nullptr, with_slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return error_errno(Code::kOutOfMemory, with_slack < bytes ? ENOMEM : errno,
                       "mmap of %" PRIu64 " bytes of addresses", bytes);
  }
  // What lies before and behind the aligned range goes back, so that the range alone names the reservation.
  const auto start = reinterpret_cast<uintptr_t>(mapping);
  const uint64_t before = (alignment - start % alignment) % alignment;
  *base = static_cast<std::byte*>(mapping) + before;
  if (before > 0) (void)munmap(mapping, before);
  (void)munmap(*base + bytes, alignment - before);
  return Status::ok();
}

void release_addresses(std::byte* base, uint64_t bytes) { (void)munmap(base, bytes); }

Status map_memory(std::byte* address, uint64_t bytes, int fd, uint64_t memory_offset) {
  struct stat file {};
  if (fstat(fd, &file) != 0) {
    return error_errno(Code::kInvalidValue, errno, "looking at descriptor %d of shared memory", fd);
  }
  const auto file_bytes = static_cast<uint64_t>(file.st_size);
  if (!S_ISREG(file.st_mode) || memory_offset > file_bytes || bytes > file_bytes - memory_offset) {
    return error(Code::kInvalidValue,
                 "descriptor %d is no shared memory that holds %" PRIu64 " bytes at offset %" PRIu64 " (it has %" PRIu64
                 ")",
                 fd, bytes, memory_offset, file_bytes);
  }
  if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(memory_offset)) ==
      MAP_FAILED) {
    const int err = errno;
    // A failed fixed mapping may have dropped the reservation, and then anything could be mapped there.
    (void)unmap_memory(address, bytes);
    return error_errno(err == ENOMEM ? Code::kOutOfMemory : Code::kInternal, err,
                       "mapping %" PRIu64 " bytes of shared memory at %p%s", bytes, static_cast<void*>(address),
                       err == ENOMEM ? "; raise vm.max_map_count or the limit of address space (ulimit -v)" : "");
  }
  // Only a wish: most kernels give huge pages to shared memory when shmem_enabled says "advise".
  (void)madvise(address, bytes, MADV_HUGEPAGE);
  return Status::ok();
}

Status unmap_memory(std::byte* address, uint64_t bytes) {
  if (mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    return error_errno(Code::kInternal, errno, "reserving %" PRIu64 " bytes at %p again", bytes,
                       static_cast<void*>(address));
  }
  return Status::ok();
}

}  // namespace heddle::host
