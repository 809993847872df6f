#include "bootstrap/rendezvous.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "bootstrap/rank_list.h"
#include "runtime/log.h"
#include "runtime/sockets.h"

namespace heddle {
namespace {

constexpr size_t kMaxStrangers = 256;    // connections that have not shown the secret
constexpr double kStrangerSeconds = 10;  // how long one may take to show it

/// One connection.
struct Client {
  enum class State { kStranger, kKnown, kJoined, kRejected };
  OwnedFd fd;
  State state = State::kStranger;
  Deadline patience = Deadline::in(kStrangerSeconds);  // while a stranger
  int rank = -1;
  std::string where;  // its address, for messages
  std::string in, out;
  bool gone = false;     // to be removed
  bool leaving = false;  // has said bye, waits for our answer
};

/// What one rank has brought to the present exchange.
struct Contribution {
  bool here = false;
  uint32_t sequence = 0;
  std::string bytes;
};

Deadline deadline_of(int64_t wait_ms) {
  return wait_ms < 0 ? Deadline::none() : Deadline::in(std::max<double>(static_cast<double>(wait_ms), 1) / 1000);
}

Deadline earlier(Deadline a, Deadline b) { return a.at() < b.at() ? a : b; }

class Server {
 public:
  Server(OwnedFd listener, const UniqueIdContent& content) : listener_(std::move(listener)), content_(content) {
    ControlAddress address;
    address.family = content.family;
    address.port = content.port;
    std::memcpy(address.ip, content.ip, sizeof address.ip);
    here_ = address_text(address);
  }

  void run() {
    while (!over()) step();
  }

 private:
  /// The job has been here and everybody who knew the secret has gone.
  bool over() const {
    if (!failure_.is_ok() || (size_ > 0 && left_ == size_)) {
      return std::none_of(clients_.begin(), clients_.end(),
                          [](const Client& client) { return client.state != Client::State::kStranger; });
    }
    return false;
  }

  void step() {
    std::vector<pollfd> polled;
    Deadline next = step_deadline_;
    const bool accepting = accept_again_.is_none() || accept_again_.passed();
    if (!accepting) next = earlier(next, accept_again_);
    polled.push_back({accepting ? listener_.get() : -1, POLLIN, 0});
    for (Client& client : clients_) {
      polled.push_back({client.fd.get(), static_cast<short>(POLLIN | (client.out.empty() ? 0 : POLLOUT)), 0});
      if (client.state == Client::State::kStranger) next = earlier(next, client.patience);
    }
    const int count = ::poll(polled.data(), polled.size(), next.poll_ms());
    if (count > 0) {
      size_t index = 1;
      for (Client& client : clients_) {  // accept() below only adds at the end
        const short events = polled[index++].revents;
        if (events & POLLOUT) flush(client);
        if (events & (POLLIN | POLLHUP | POLLERR)) receive(client);
      }
      if (polled[0].revents) accept();
    }
    for (Client& client : clients_) {
      if (client.state == Client::State::kStranger && client.patience.passed()) drop(client, "showed no secret");
    }
    if (step_deadline_.passed()) time_out();
    say_bye();
    clients_.remove_if([](const Client& client) { return client.gone; });
  }

  void accept() {
    for (;;) {
      sockaddr_storage from = {};
      socklen_t length = sizeof from;
      OwnedFd fd(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid()) {
        if (errno == EMFILE || errno == ENFILE) {
          fail(error_errno(Code::kOutOfMemory, errno,
                           "the rendezvous at %s cannot accept its %zu-th connection; raise the limit of open files "
                           "(ulimit -n)",
                           here_.c_str(), clients_.size() + 1));
          accept_again_ = Deadline::in(0.1);
        }
        return;
      }
      tune_tcp(fd.get());
      Client client;
      client.fd = std::move(fd);
      char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
      ::getnameinfo(reinterpret_cast<sockaddr*>(&from), length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
      client.where = std::string(host) + " port " + port;
      clients_.push_back(std::move(client));
      size_t strangers = 0;
      for (const Client& each : clients_) strangers += each.state == Client::State::kStranger;
      if (strangers <= kMaxStrangers) continue;
      for (Client& each : clients_) {
        if (each.state != Client::State::kStranger || each.gone) continue;
        drop(each, "was the oldest of too many that showed no secret");
        break;
      }
    }
  }

  /// Ends a connection that is none of ours.
  void drop(Client& client, const char* why) {
    client.gone = true;
    if (warned_) return;
    warned_ = true;
    log(LogLevel::kWarn,
        "the rendezvous at %s dropped a connection from %s, which %s; further ones are dropped silently", here_.c_str(),
        client.where.c_str(), why);
  }

  void receive(Client& client) {
    char bytes[65536];
    while (!client.gone) {
      const bool stranger = client.state == Client::State::kStranger;
      const size_t wanted = stranger ? sizeof content_.secret - client.in.size() : sizeof bytes;
      const ssize_t got = ::recv(client.fd.get(), bytes, wanted, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (got <= 0) return lost(client);
      client.in.append(bytes, static_cast<size_t>(got));
      if (stranger) {
        if (client.in.size() == sizeof content_.secret) admit(client);
      } else {
        handle_frames(client);
      }
    }
  }

  void admit(Client& client) {
    unsigned char difference = 0;  // no early exit: the time taken tells nothing of the secret
    for (size_t i = 0; i < sizeof content_.secret; ++i) {
      difference |= static_cast<unsigned char>(client.in[i]) ^ content_.secret[i];
    }
    client.in.clear();
    if (difference != 0) return drop(client, "showed a wrong secret");
    client.state = Client::State::kKnown;
  }

  /// Marks a connection for removal.
  void retire(Client& client) {
    client.gone = true;
    if (client.state == Client::State::kJoined) members_[static_cast<size_t>(client.rank)] = nullptr;
  }

  /// End of file or an error on a connection.
  void lost(Client& client) {
    retire(client);
    if (client.state != Client::State::kJoined) return;
    fail(error(Code::kPeerLost, "rank %d (%s) ended without leaving the rendezvous at %s", client.rank,
               client.where.c_str(), here_.c_str()));
  }

  void handle_frames(Client& client) {
    size_t at = 0;
    while (!client.gone && client.in.size() - at >= sizeof(RendezvousHeader)) {
      RendezvousHeader header;
      std::memcpy(&header, client.in.data() + at, sizeof header);
      if (header.magic != RendezvousHeader::kMagic || header.length > allowed_length(client, header.op)) {
        retire(client);
        fail(error(Code::kInternal,
                   "the rendezvous at %s got a broken message (magic %08x, operation %u, %u bytes) from %s",
                   here_.c_str(), header.magic, header.op, header.length, client.where.c_str()));
        return;
      }
      if (client.in.size() - at < sizeof header + header.length) break;
      const std::string body = client.in.substr(at + sizeof header, header.length);
      at += sizeof header + header.length;
      handle(client, header, body);
    }
    client.in.erase(0, at);
  }

  static size_t allowed_length(const Client& client, uint16_t op) {
    switch (static_cast<RendezvousOp>(op)) {
      case RendezvousOp::kJoin:
        return sizeof(JoinMessage);
      case RendezvousOp::kGather:
        return client.state == Client::State::kKnown ? 0 : sizeof(GatherMessage) + kMaxRendezvousRecord;
      case RendezvousOp::kAbort:
        return kMaxRendezvousText;
      default:
        return 0;
    }
  }

  void handle(Client& client, const RendezvousHeader& header, const std::string& body) {
    const RendezvousOp op = static_cast<RendezvousOp>(header.op);
    const bool joined = client.state == Client::State::kJoined;
    if (op == RendezvousOp::kBye) {
      leave(client);
    } else if (client.state == Client::State::kRejected) {
      return;  // it has our answer already
    } else if (op == RendezvousOp::kJoin && client.state == Client::State::kKnown &&
               body.size() == sizeof(JoinMessage)) {
      JoinMessage join;
      std::memcpy(&join, body.data(), sizeof join);
      this->join(client, join);
    } else if (op == RendezvousOp::kGather && joined && body.size() >= sizeof(GatherMessage)) {
      GatherMessage message;
      std::memcpy(&message, body.data(), sizeof message);
      gather(client, header.sequence, message, body.substr(sizeof message));
    } else if (op == RendezvousOp::kAbort && joined) {
      fail(error(Code::kPeerLost, "rank %d ended the job: %s", client.rank, body.c_str()));
    } else {
      retire(client);
      fail(error(Code::kInternal, "the rendezvous at %s got operation %u out of turn from %s", here_.c_str(), header.op,
                 client.where.c_str()));
    }
  }

  // ---- joining

  void join(Client& client, const JoinMessage& join) {
    if (size_ > 0 && joined_ == size_) {  // no fault of the job that is running
      return reject(client,
                    error(Code::kInvalidValue,
                          "this unique id has been used: its job of %d ranks has begun already; make a new id by "
                          "nvshmemx_get_uniqueid for every job",
                          size_));
    }
    if (!failure_.is_ok()) return reject(client, failure_);
    const auto refuse = [&](const Status& status) {
      reject(client, status);
      fail(status);
    };
    if (join.size < 1 || join.size > kMaxRendezvousRanks || join.rank < 0 || join.rank >= join.size) {
      return refuse(error(Code::kInvalidValue,
                          "a process at %s joined as rank %d of %d: ranks go from 0 to nranks - 1, and nranks to %d",
                          client.where.c_str(), join.rank, join.size, kMaxRendezvousRanks));
    }
    if (size_ == 0) {
      size_ = join.size;
      first_rank_ = join.rank;
      members_.resize(static_cast<size_t>(size_));
      contributions_.resize(members_.size());
      boot_ids_.resize(members_.size());
    }
    if (join.size != size_) {
      return refuse(error(Code::kInvalidValue,
                          "rank %d says that the job has %d ranks, rank %d says %d: pass the same "
                          "nranks everywhere",
                          first_rank_, size_, join.rank, join.size));
    }
    Client*& member = members_[static_cast<size_t>(join.rank)];
    if (member) {
      return refuse(error(Code::kInvalidValue,
                          "two processes joined as rank %d of %d, from %s and from %s: give every "
                          "process a rank of its own, or a new id to a new job",
                          join.rank, size_, member->where.c_str(), client.where.c_str()));
    }
    member = &client;
    client.rank = join.rank;
    client.state = Client::State::kJoined;
    boot_ids_[static_cast<size_t>(join.rank)].assign(reinterpret_cast<const char*>(join.boot_id), sizeof join.boot_id);
    step_deadline_ = earlier(step_deadline_, deadline_of(join.wait_ms));
    if (++joined_ == size_) welcome();
  }

  void welcome() {
    step_deadline_ = Deadline::none();
    std::map<std::string, int32_t> index;
    std::vector<int32_t> nodes;
    for (const std::string& boot_id : boot_ids_) {
      const bool known = boot_id.find_first_not_of('\0') != std::string::npos;
      nodes.push_back(known ? index.emplace(boot_id, static_cast<int32_t>(index.size())).first->second : -1);
    }
    const std::string body(reinterpret_cast<const char*>(nodes.data()), nodes.size() * sizeof(int32_t));
    for (Client* member : members_) {
      if (member) send(*member, RendezvousOp::kWelcome, 0, body);
    }
  }

  void reject(Client& client, const Status& status) {
    client.state = Client::State::kRejected;
    send_failure(client, status);
  }

  // ---- exchanging

  void gather(Client& client, uint32_t sequence, const GatherMessage& message, std::string bytes) {
    if (!failure_.is_ok()) return;  // it has been told
    Contribution& mine = contributions_[static_cast<size_t>(client.rank)];
    if (joined_ < size_ || mine.here || message.bytes != bytes.size()) {
      return fail(error(Code::kInternal, "rank %d sent an exchange out of turn to the rendezvous at %s", client.rank,
                        here_.c_str()));
    }
    mine = {true, sequence, std::move(bytes)};
    step_deadline_ = earlier(step_deadline_, deadline_of(message.wait_ms));
    if (gone_rank_ >= 0) return gather_after_leave();
    if (++arrived_ < size_) return;
    const Contribution& first = contributions_.front();
    for (size_t rank = 1; rank < contributions_.size(); ++rank) {
      const Contribution& other = contributions_[rank];
      if (other.bytes.size() != first.bytes.size() || other.sequence != first.sequence) {
        return fail(
            error(Code::kSymmetry,
                  "rank 0 gathers %zu bytes in exchange %u where rank %zu gathers %zu in exchange %u: do all ranks "
                  "run the same version of this library and make the same calls?",
                  first.bytes.size(), first.sequence, rank, other.bytes.size(), other.sequence));
      }
    }
    std::string all;
    for (const Contribution& each : contributions_) all += each.bytes;
    const uint32_t number = first.sequence;
    for (Contribution& each : contributions_) each = {};
    arrived_ = 0;
    step_deadline_ = Deadline::none();
    for (Client* member : members_) {
      if (member) send(*member, RendezvousOp::kGathered, number, all);
    }
  }

  void gather_after_leave() {
    fail(error(Code::kPeerLost, "rank %d has left the job, so an exchange among all %d ranks cannot end", gone_rank_,
               size_));
  }

  void leave(Client& client) {
    client.leaving = true;
    if (client.state != Client::State::kJoined) return;
    client.state = Client::State::kRejected;  // nothing more is expected of it
    members_[static_cast<size_t>(client.rank)] = nullptr;
    ++left_;
    gone_rank_ = client.rank;
    if (joined_ < size_) {
      fail(error(Code::kPeerLost, "rank %d left the rendezvous at %s before all %d ranks had joined", client.rank,
                 here_.c_str(), size_));
    } else if (arrived_ > 0) {
      gather_after_leave();
    }
  }

  /// Answers those that leave once nothing is left unsent, so that our process may end after its own rank has left.
  void say_bye() {
    if (std::any_of(clients_.begin(), clients_.end(), [](const Client& c) { return !c.gone && !c.out.empty(); }))
      return;
    for (Client& client : clients_) {
      if (!client.leaving || client.gone) continue;
      client.leaving = false;
      send(client, RendezvousOp::kBye, 0, {});
    }
  }

  // ---- failing

  void time_out() {
    step_deadline_ = Deadline::none();
    std::vector<int> missing;
    const bool joining = joined_ < size_;
    for (int rank = 0; rank < size_; ++rank) {
      const size_t k = static_cast<size_t>(rank);
      if (joining ? members_[k] == nullptr : !contributions_[k].here) missing.push_back(rank);
    }
    fail(error(Code::kTimeout,
               "timed out: %s of %d %s %s; look whether they run, and raise HEDDLE_TIMEOUT if they are only late",
               rank_list(missing).c_str(), size_,
               joining ? "did not join the rendezvous at" : "did not come to an exchange through", here_.c_str()));
  }

  /// The first failure is told to all ranks; it stays for those who come later.
  void fail(Status status) {
    if (!failure_.is_ok()) return;
    failure_ = std::move(status);
    step_deadline_ = Deadline::none();
    for (Client* member : members_) {
      if (member) send_failure(*member, failure_);
    }
  }

  void send_failure(Client& client, const Status& status) {
    const int32_t code = static_cast<int32_t>(status.code());
    std::string body(reinterpret_cast<const char*>(&code), sizeof code);
    body += status.text().substr(0, kMaxRendezvousText);
    send(client, RendezvousOp::kFailed, 0, body);
  }

  void send(Client& client, RendezvousOp op, uint32_t sequence, const std::string& body) {
    RendezvousHeader header;
    header.op = static_cast<uint16_t>(op);
    header.length = static_cast<uint32_t>(body.size());
    header.sequence = sequence;
    client.out.append(reinterpret_cast<const char*>(&header), sizeof header);
    client.out += body;
    flush(client);
  }

  /// Writes what the socket takes; a broken one is noticed by the next read.
  void flush(Client& client) {
    size_t done = 0;
    while (done < client.out.size()) {
      const ssize_t put = ::send(client.fd.get(), client.out.data() + done, client.out.size() - done, MSG_NOSIGNAL);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && errno != EAGAIN && errno != EWOULDBLOCK) done = client.out.size();
      if (put <= 0) break;
      done += static_cast<size_t>(put);
    }
    client.out.erase(0, done);
  }

  OwnedFd listener_;
  UniqueIdContent content_;
  std::string here_;
  std::list<Client> clients_;  // a list: members_ points into it
  bool warned_ = false;
  Deadline accept_again_ = Deadline::none();

  int size_ = 0;  // 0 until the first rank joins
  int joined_ = 0, left_ = 0, arrived_ = 0;
  int first_rank_ = -1;  // who told the size
  int gone_rank_ = -1;   // the last that left in good order
  std::vector<Client*> members_;
  std::vector<std::string> boot_ids_;
  std::vector<Contribution> contributions_;
  Deadline step_deadline_ = Deadline::none();
  Status failure_;
};

}  // namespace

Status listen_for_rendezvous(const Settings& settings, ControlAddress* address, OwnedFd* listener) {
  const std::string& where = settings.session_id;
  if (where.empty()) return listen_tcp(settings, address, listener);
  const auto malformed = [&](const char* why) {
    return error(Code::kInvalidValue,
                 "NVSHMEM_BOOTSTRAP_UID_SESSION_ID=\"%s\" %s; write address:port of this host, [address]:port for IPv6",
                 where.c_str(), why);
  };
  const size_t colon = where.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == where.size()) return malformed("is not address:port");
  std::string host = where.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    return malformed("has no brackets around its IPv6 address");
  }
  // getaddrinfo would take a larger number for its low 16 bits.
  const std::string port = where.substr(colon + 1);
  if (port.find_first_not_of("0123456789") != std::string::npos || port.size() > 5 || std::stoi(port) > 65535) {
    return malformed("has no port from 0 to 65535");
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_family = settings.socket_family == "AF_INET"    ? AF_INET
                    : settings.socket_family == "AF_INET6" ? AF_INET6
                                                           : AF_UNSPEC;
  addrinfo* raw = nullptr;
  if (const int rc = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &raw); rc != 0) {
    return malformed(gai_strerror(rc));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found(raw, freeaddrinfo);
  if (found->ai_family != AF_INET && found->ai_family != AF_INET6) return malformed("is no internet address");
  OwnedFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;  // a port of one's own choice is to be usable again at once
  sockaddr_storage bound = {};
  socklen_t length = sizeof bound;
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd.get(), SOMAXCONN) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return error_errno(Code::kInvalidValue, errno, "cannot listen on NVSHMEM_BOOTSTRAP_UID_SESSION_ID=\"%s\"",
                       where.c_str());
  }
  ControlAddress chosen;
  chosen.family = static_cast<uint16_t>(found->ai_family);
  if (found->ai_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&bound);
    chosen.port = ntohs(v4->sin_port);
    std::memcpy(chosen.ip, &v4->sin_addr, sizeof v4->sin_addr);
  } else {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&bound);
    chosen.port = ntohs(v6->sin6_port);
    chosen.scope = v6->sin6_scope_id;
    std::memcpy(chosen.ip, &v6->sin6_addr, sizeof v6->sin6_addr);
  }
  constexpr unsigned char kAny[16] = {};
  if (std::memcmp(chosen.ip, kAny, sizeof kAny) == 0)
    return malformed("names every interface, and peers need one address");
  *address = chosen;
  *listener = std::move(fd);
  return Status::ok();
}

Status serve_rendezvous(OwnedFd listener, const UniqueIdContent& content) {
  auto server = std::make_unique<Server>(std::move(listener), content);
  // The application's signals are not for this thread.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Status status;
  try {
    std::thread([server = std::move(server)] { server->run(); }).detach();
  } catch (const std::system_error& problem) {
    status = error(Code::kOutOfMemory, "cannot start the thread that serves a unique id: %s", problem.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace heddle
