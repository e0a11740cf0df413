//===- rendezvous.cpp - Processes that run a plan together ----------------===//

#include "runtime/rendezvous.h"

#include "runtime/error.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace megalith::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// A message is larger only if something else than a rank speaks.
constexpr uint64_t kMostBytes = uint64_t(1) << 32;

std::string reason() {
  return std::strerror(errno);
}

/// Whether the socket can be read (or written) before the time is over.
bool isReady(int socket, short events, Clock::time_point end) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0)
      return false;
    pollfd entry = {socket, events, 0};
    const int found = ::poll(&entry, 1, int(left));
    if (found > 0)
      return true;
    if (found < 0 && errno != EINTR)
      return false;
  }
}

bool sendAll(int socket, const void *data, uint64_t bytes, Clock::time_point end) {
  auto *at = static_cast<const char *>(data);
  while (bytes) {
    if (!isReady(socket, POLLOUT, end))
      return false;
    const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0 && errno != EINTR)
      return false;
    at += std::max<ssize_t>(sent, 0);
    bytes -= uint64_t(std::max<ssize_t>(sent, 0));
  }
  return true;
}

bool receiveAll(int socket, void *data, uint64_t bytes, Clock::time_point end) {
  auto *at = static_cast<char *>(data);
  while (bytes) {
    if (!isReady(socket, POLLIN, end))
      return false;
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got == 0 || (got < 0 && errno != EINTR))
      return false;
    at += std::max<ssize_t>(got, 0);
    bytes -= uint64_t(std::max<ssize_t>(got, 0));
  }
  return true;
}

bool sendText(int socket, llvm::StringRef text, Clock::time_point end) {
  const uint64_t bytes = text.size();
  return sendAll(socket, &bytes, sizeof bytes, end) && sendAll(socket, text.data(), bytes, end);
}

bool receiveText(int socket, std::string &text, Clock::time_point end) {
  uint64_t bytes = 0;
  if (!receiveAll(socket, &bytes, sizeof bytes, end) || bytes > kMostBytes)
    return false;
  text.resize(bytes);
  return receiveAll(socket, text.data(), bytes, end);
}

Clock::time_point deadline() {
  return Clock::now() + std::chrono::seconds(Rendezvous::kSeconds);
}

/// The number in an environment variable.
llvm::Expected<int64_t> number(const char *name, int64_t least, int64_t most) {
  const char *text = std::getenv(name);
  int64_t value = 0;
  if (!text || llvm::StringRef(text).getAsInteger(10, value) || value < least || value > most)
    return problem("environment variable {0}: expected a number from {1} to {2} but got {3}; start "
                   "the processes with torchrun, or set it as torchrun does",
                   name, least, most, text ? "'" + std::string(text) + "'" : "nothing");
  return value;
}

} // namespace

bool Rendezvous::isAsked() {
  const char *text = std::getenv("WORLD_SIZE");
  return text && std::atoi(text) > 1;
}

llvm::Expected<std::unique_ptr<Rendezvous>> Rendezvous::fromEnvironment() {
  auto ranks = number("WORLD_SIZE", 1, 1024);
  if (!ranks)
    return ranks.takeError();
  auto rank = number("RANK", 0, *ranks - 1);
  if (!rank)
    return rank.takeError();
  auto local = number("LOCAL_RANK", 0, *ranks - 1);
  if (!local)
    return local.takeError();
  const bool hasOwnPort = std::getenv("MEGALITH_PORT") != nullptr;
  auto port = number(hasOwnPort ? "MEGALITH_PORT" : "MASTER_PORT", 1, 65534);
  if (!port)
    return port.takeError();
  const char *host = std::getenv("MASTER_ADDR");
  if (!host)
    return problem("environment variable MASTER_ADDR: expected the machine of rank 0 but got "
                   "nothing; start the processes with torchrun, or set it as torchrun does");
  return open(*rank, *ranks, *local, host, int(*port) + (hasOwnPort ? 0 : 1));
}

llvm::Expected<std::unique_ptr<Rendezvous>>
Rendezvous::open(int64_t rank, int64_t ranks, int64_t localRank, std::string host, int port) {
  std::unique_ptr<Rendezvous> made(new Rendezvous(rank, ranks, localRank));
  if (llvm::Error error = rank == 0 ? made->listen(port) : made->connect(host, port))
    return error;
  return made;
}

Rendezvous::~Rendezvous() {
  for (int socket : sockets)
    if (socket >= 0)
      ::close(socket);
}

llvm::Error Rendezvous::listen(int port) {
  sockets.assign(size_t(allRanks), -1);
  const int listener = ::socket(AF_INET6, SOCK_STREAM, 0);
  const int on = 1, off = 0;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_any;
  address.sin6_port = htons(uint16_t(port));
  if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) ||
      ::listen(listener, int(allRanks))) {
    llvm::Error error =
        problem("rank 0: cannot listen on port {0}: {1}; choose another MASTER_PORT "
                "or MEGALITH_PORT for all ranks",
                port, reason());
    ::close(listener);
    return error;
  }
  const Clock::time_point end = deadline();
  for (int64_t missing = allRanks - 1; missing > 0;) {
    if (!isReady(listener, POLLIN, end)) {
      ::close(listener);
      return problem("rank 0: {0} of {1} other ranks did not come within {2} s", missing,
                     allRanks - 1, kSeconds);
    }
    const int socket = ::accept(listener, nullptr, nullptr);
    // Whatever else knocks at the port is sent away.
    uint64_t rank = 0;
    if (socket < 0)
      continue;
    if (!receiveAll(socket, &rank, sizeof rank, Clock::now() + std::chrono::seconds(2)) ||
        rank == 0 || rank >= uint64_t(allRanks) || sockets[rank] >= 0) {
      ::close(socket);
      continue;
    }
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockets[rank] = socket;
    --missing;
  }
  ::close(listener);
  return llvm::Error::success();
}

llvm::Error Rendezvous::connect(const std::string &host, int port) {
  const Clock::time_point end = deadline();
  std::string why = "nobody listens there";
  while (Clock::now() < end) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int failed =
            ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found))
      return problem("rank {0}: MASTER_ADDR {1}: {2}", ownRank, host, ::gai_strerror(failed));
    int socket = -1;
    for (addrinfo *at = found; at && socket < 0; at = at->ai_next) {
      socket = ::socket(at->ai_family, at->ai_socktype, at->ai_protocol);
      if (socket >= 0 && ::connect(socket, at->ai_addr, at->ai_addrlen)) {
        why = reason();
        ::close(socket);
        socket = -1;
      }
    }
    ::freeaddrinfo(found);
    const uint64_t rank = uint64_t(ownRank);
    if (socket >= 0 && sendAll(socket, &rank, sizeof rank, end)) {
      const int on = 1;
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      sockets.assign(1, socket);
      return llvm::Error::success();
    }
    if (socket >= 0)
      ::close(socket);
    std::this_thread::sleep_for(std::chrono::milliseconds(50)); // rank 0 may not be there yet
  }
  return problem("rank {0}: rank 0 at {1}, port {2} did not answer within {3} s: {4}", ownRank,
                 host, port, kSeconds, why);
}

llvm::Expected<std::vector<std::string>> Rendezvous::gather(llvm::StringRef what,
                                                            llvm::StringRef own) {
  std::vector<std::string> all(static_cast<size_t>(allRanks));
  all[size_t(ownRank)] = own.str();
  const Clock::time_point end = deadline();
  auto lost = [&](int64_t rank) {
    return problem("rank {0}: {1}: rank {2} is gone, or did not come within {3} s; its own message "
                   "says why",
                   ownRank, what, rank, kSeconds);
  };
  if (ownRank != 0) {
    std::string agreed;
    if (!sendText(sockets[0], what, end) || !sendText(sockets[0], own, end) ||
        !receiveText(sockets[0], agreed, end))
      return lost(0);
    if (!agreed.empty())
      return problem("rank {0}: {1}", ownRank, agreed);
    for (int64_t rank = 0; rank < allRanks; ++rank)
      if (!receiveText(sockets[0], all[size_t(rank)], end))
        return lost(0);
    return all;
  }
  std::string disagreed;
  for (int64_t rank = 1; rank < allRanks; ++rank) {
    std::string theirs;
    if (!receiveText(sockets[size_t(rank)], theirs, end) ||
        !receiveText(sockets[size_t(rank)], all[size_t(rank)], end))
      return lost(rank);
    if (theirs != what)
      disagreed =
          llvm::formatv("rank 0 is at '{0}', rank {1} at '{2}': all ranks must run the same", what,
                        rank, theirs)
              .str();
  }
  for (int64_t rank = 1; rank < allRanks; ++rank) {
    if (!sendText(sockets[size_t(rank)], disagreed, end))
      return lost(rank);
    for (const std::string &text : all)
      if (disagreed.empty() && !sendText(sockets[size_t(rank)], text, end))
        return lost(rank);
  }
  if (!disagreed.empty())
    return problem("{0}", disagreed);
  return all;
}

llvm::Error Rendezvous::meet(llvm::StringRef what) {
  return gather(what, "").takeError();
}

} // namespace megalith::runtime
