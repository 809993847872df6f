#include "runtime/sockets.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

namespace heddle {
namespace {

constexpr int kSocketFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

socklen_t unix_address(const char* name, sockaddr_un* out) {
  *out = {};
  out->sun_family = AF_UNIX;
  const size_t length = strnlen(name, sizeof ControlAddress::unix_name);
  // A leading NUL makes the name abstract; the length, not a terminator, ends it.
  std::memcpy(out->sun_path + 1, name, length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

socklen_t inet_address(const ControlAddress& address, uint32_t local_scope, sockaddr_storage* out) {
  *out = {};
  if (address.family == AF_INET) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(out);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    std::memcpy(&v4->sin_addr, address.ip, sizeof v4->sin_addr);
    return sizeof *v4;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(out);
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(address.port);
  std::memcpy(&v6->sin6_addr, address.ip, sizeof v6->sin6_addr);
  // Interface numbers mean something on one host only, so our own counts.
  if (IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) v6->sin6_scope_id = local_scope != 0 ? local_scope : address.scope;
  return sizeof *v6;
}

struct IfaddrsFree {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

// How good an interface address is when none was named: lower is better, negative is unusable.
int rank_of(const ifaddrs& entry, int family, bool named) {
  if (entry.ifa_addr == nullptr) return -1;
  const int its = entry.ifa_addr->sa_family;
  if (its != AF_INET && its != AF_INET6) return -1;
  if (family != AF_UNSPEC && family != its) return -1;
  if (!(entry.ifa_flags & IFF_UP) || (!named && !(entry.ifa_flags & IFF_RUNNING))) return -1;
  const bool v6 = its == AF_INET6;
  const bool link_local =
      v6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr);
  return (entry.ifa_flags & IFF_LOOPBACK ? 4 : 0) + (link_local ? 2 : 0) + (v6 ? 1 : 0);
}

Status choose_interface(const Settings& settings, ControlAddress* address) {
  int family = AF_UNSPEC;
  if (settings.socket_family == "AF_INET") {
    family = AF_INET;
  } else if (settings.socket_family == "AF_INET6") {
    family = AF_INET6;
  } else if (!settings.socket_family.empty() && settings.socket_family != "AF_UNSPEC") {
    return error(Code::kInvalidValue,
                 "NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY=\"%s\" is none of AF_INET, AF_INET6 and AF_UNSPEC",
                 settings.socket_family.c_str());
  }
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return error_errno(Code::kInternal, errno, "cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, IfaddrsFree> list(raw);
  const std::string& name = settings.socket_ifname;
  const ifaddrs* best = nullptr;
  int best_rank = -1;
  std::string known;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const int rank = rank_of(*entry, family, !name.empty());
    if (rank < 0) continue;
    if ((known + " ").find(std::string(" ") + entry->ifa_name + " ") == std::string::npos) {
      known += std::string(" ") + entry->ifa_name;
    }
    if (!name.empty() && name != entry->ifa_name) continue;
    if (best != nullptr && rank >= best_rank) continue;
    best = entry;
    best_rank = rank;
  }
  if (best == nullptr) {
    return error(Code::kInvalidValue,
                 "no network interface for TCP: NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME=\"%s\", "
                 "NVSHMEM_BOOTSTRAP_UID_SOCK_FAMILY=\"%s\"; interfaces that are up with such an address:%s",
                 name.c_str(), settings.socket_family.c_str(), known.empty() ? " none" : known.c_str());
  }
  address->family = best->ifa_addr->sa_family;
  if (address->family == AF_INET) {
    std::memcpy(address->ip, &reinterpret_cast<const sockaddr_in*>(best->ifa_addr)->sin_addr, 4);
  } else {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(best->ifa_addr);
    std::memcpy(address->ip, &v6->sin6_addr, 16);
    address->scope = v6->sin6_scope_id;
  }
  return Status::ok();
}

int start(OwnedFd fd, const sockaddr* address, socklen_t length, OwnedFd* socket) {
  if (!fd.valid()) return errno;
  int err = 0;
  while (::connect(fd.get(), address, length) != 0 && (err = errno) == EINTR) {
  }
  if (err == EISCONN || err == EALREADY) err = err == EISCONN ? 0 : EINPROGRESS;  // the call before the signal did it
  if (err == 0 || err == EINPROGRESS) *socket = std::move(fd);
  return err;
}

}  // namespace

Status random_bytes(void* out, size_t bytes) {
  const ssize_t got = getrandom(out, bytes, 0);
  if (got == static_cast<ssize_t>(bytes)) return Status::ok();
  return error_errno(Code::kInternal, got < 0 ? errno : EIO, "cannot get %zu random bytes from the kernel", bytes);
}

Status listen_unix(ControlAddress* address, OwnedFd* listener) {
  unsigned char random[16];
  HEDDLE_RETURN_IF_ERROR(random_bytes(random, sizeof random));
  std::string name = "heddle-";
  for (unsigned char byte : random) name += format("%02x", byte);
  std::memcpy(address->unix_name, name.c_str(), name.size() + 1);
  OwnedFd fd(::socket(AF_UNIX, kSocketFlags, 0));
  if (!fd.valid()) return error_errno(Code::kInternal, errno, "cannot make a Unix socket");
  sockaddr_un un;
  const socklen_t length = unix_address(address->unix_name, &un);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&un), length) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return error_errno(Code::kInternal, errno, "cannot listen on abstract Unix socket \"%s\"", name.c_str());
  }
  *listener = std::move(fd);
  return Status::ok();
}

Status listen_tcp(const Settings& settings, ControlAddress* address, OwnedFd* listener) {
  ControlAddress chosen = *address;
  HEDDLE_RETURN_IF_ERROR(choose_interface(settings, &chosen));
  OwnedFd fd(::socket(chosen.family, kSocketFlags, 0));
  if (!fd.valid()) return error_errno(Code::kInternal, errno, "cannot make a TCP socket");
  sockaddr_storage where;
  chosen.port = 0;
  socklen_t length = inet_address(chosen, chosen.scope, &where);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&where), length) != 0 || ::listen(fd.get(), SOMAXCONN) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where), &length) != 0) {
    return error_errno(Code::kInternal, errno, "cannot listen on TCP address %s", address_text(chosen).c_str());
  }
  chosen.port = ntohs(chosen.family == AF_INET ? reinterpret_cast<sockaddr_in*>(&where)->sin_port
                                               : reinterpret_cast<sockaddr_in6*>(&where)->sin6_port);
  *address = chosen;
  *listener = std::move(fd);
  return Status::ok();
}

int dial_unix(const ControlAddress& address, OwnedFd* socket) {
  sockaddr_un un;
  const socklen_t length = unix_address(address.unix_name, &un);
  return start(OwnedFd(::socket(AF_UNIX, kSocketFlags, 0)), reinterpret_cast<sockaddr*>(&un), length, socket);
}

int dial_tcp(const ControlAddress& address, uint32_t local_scope, OwnedFd* socket) {
  if (address.family != AF_INET && address.family != AF_INET6) return EAFNOSUPPORT;
  sockaddr_storage where;
  const socklen_t length = inet_address(address, local_scope, &where);
  OwnedFd fd(::socket(address.family, kSocketFlags, 0));
  if (fd.valid()) tune_tcp(fd.get());
  return start(std::move(fd), reinterpret_cast<sockaddr*>(&where), length, socket);
}

int dial_outcome(int socket) {
  int err = 0;
  socklen_t length = sizeof err;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &err, &length) == 0 ? err : errno;
}

int64_t peer_uid(int socket) {
  ucred who{};
  socklen_t length = sizeof who;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) return -1;
  return static_cast<int64_t>(who.uid);
}

void tune_tcp(int socket) {
  const auto set = [socket](int level, int option, int value) {
    (void)::setsockopt(socket, level, option, &value, sizeof value);  // tuning only: works without
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

std::string address_text(const ControlAddress& address) {
  if (address.family == 0) return "a Unix socket";
  char text[INET6_ADDRSTRLEN] = "?";
  ::inet_ntop(address.family, address.ip, text, sizeof text);
  return format(address.family == AF_INET6 ? "[%s]:%u" : "%s:%u", text, address.port);
}

}  // namespace heddle
