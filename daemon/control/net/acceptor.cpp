// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>

#include "daemon/base/system_message.h"
#include "daemon/control/access/peer_account.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::chrono::milliseconds kPause{20};
constexpr std::chrono::seconds kLogPause{10};
// Of one listener; then a stop is heard and the other listeners have their turn.
constexpr int kMostInARow = 64;

int bound_port(int listener) {
  SocketAddress bound;
  bound.size = sizeof bound.storage;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&bound.storage), &bound.size);
  return port_of(bound);
}

void set_port(SocketAddress* address, int port) {
  const auto number = htons(static_cast<std::uint16_t>(port));
  if (address->storage.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(&address->storage)->sin6_port = number;
  else
    reinterpret_cast<sockaddr_in*>(&address->storage)->sin_port = number;
}

/// Nothing with errno set if the kernel refuses.
base::UniqueFd listen_on(const SocketAddress& address) {
  base::UniqueFd fd(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // [::] takes IPv4 connections too.
  if (address.storage.ss_family == AF_INET6)
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd.get(), address.get(), address.size) == 0 && ::listen(fd.get(), SOMAXCONN) == 0)
    return fd;
  const int error = errno;
  fd.reset();
  errno = error;
  return fd;
}

/// Returns what a refusal to listen means to whoever named the address, where its own words leave
/// it open.
const char* cause_of(int error) {
  switch (error) {
    case EADDRINUSE: return ": the port is taken (by another meshloomd?)";
    case EADDRNOTAVAIL: return ": the address is not one of this host";
    default: return "";
  }
}

base::UniqueFd open_reserve() { return base::UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Acceptor::Acceptor(const ListenAddress& listen, int most_connections, bool watches)
    : slots_("connections", most_connections),
      guard_(watches ? std::make_unique<ConnectionGuard>() : nullptr),
      reserve_(open_reserve()),
      wake_(::eventfd(0, EFD_CLOEXEC)) {
  int error = 0;
  for (SocketAddress address : listen.addresses) {
    if (port_ > 0) set_port(&address, port_);
    base::UniqueFd listener = listen_on(address);
    if (listener) {
      port_ = bound_port(listener.get());
      listeners_.push_back(std::move(listener));
    } else {
      error = errno;
      // A host without IPv6 has names that mean ::1 all the same.
      if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) break;
      error = listeners_.empty() ? error : 0;
    }
  }
  if (error != 0 || (listeners_.empty() && !is_nowhere(listen)))
    throw FailedPrecondition(fmt::format("cannot listen on {}: {}{}", listen.text,
                                         base::system_message(error), cause_of(error)),
                             "CANNOT_LISTEN", {{"address", listen.text}});
  check_internal(reserve_ && wake_, "no descriptor for the acceptor: {}",
                 base::system_message(errno));
}

Acceptor::~Acceptor() { stop(); }

void Acceptor::start(OnConnection on_connection) {
  on_connection_ = std::move(on_connection);
  thread_ = std::thread([this] { run(); });
}

void Acceptor::stop() {
  if (thread_.joinable()) {
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  listeners_.clear();
}

void Acceptor::run() {
  std::vector<pollfd> watched{{wake_.get(), POLLIN, 0}};
  for (const auto& listener : listeners_) watched.push_back({listener.get(), POLLIN, 0});
  while (true) {
    const int time =
        refused_.count > 0 ? static_cast<int>(std::chrono::milliseconds(kLogPause).count()) : -1;
    const int ready = ::poll(watched.data(), static_cast<nfds_t>(watched.size()), time);
    if (watched[0].revents != 0) return;
    if (refused_.count > 0 && Clock::now() - refused_.since >= kLogPause) {
      if (refused_.count > 1) spdlog::warn("{} connections were refused", refused_.count);
      refused_.count = 0;
    }
    for (std::size_t i = 1; i < watched.size() && ready > 0; ++i) {
      if (watched[i].revents == 0) continue;
      for (int taken = 0; taken < kMostInARow && accept_one(watched[i].fd); ++taken) {
      }
    }
  }
}

bool Acceptor::accept_one(int listener) {
  SocketAddress peer;
  peer.size = sizeof peer.storage;
  base::UniqueFd connection(::accept4(listener, reinterpret_cast<sockaddr*>(&peer.storage),
                                      &peer.size, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (connection) {
    admit(listener, std::move(connection), peer);
    return true;
  }
  switch (errno) {
    case EMFILE:
    case ENFILE: refuse_without_descriptor(listener); return true;
    case EAGAIN: return false;
    case ENOBUFS:
    case ENOMEM: std::this_thread::sleep_for(kPause); return false;
    default: return true;  // a connection that has ended while it waited
  }
}

void Acceptor::admit(int listener, base::UniqueFd connection, const SocketAddress& peer) {
  const std::optional<uid_t> account = peer_account(connection.get());
  if (guard_ && guard_->is_barred(client_of(peer))) return;
  const std::string client =
      account ? fmt::format("{} (account {})", client_of(peer), *account) : client_of(peer);
  auto slot = slots_.try_take(client);
  if (!slot) {
    // A flood must not make the search for those that were closed the work of the host.
    if (Clock::now() - last_look_ >= kPause) {
      last_look_ = Clock::now();
      std::erase_if(open_,
                    [](const Connection& item) { return socket_number(item.fd) != item.socket; });
    }
    slot = slots_.try_take(client);
  }
  if (!slot) return note_refusal(client);
  const int on = 1;
  ::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  open_.push_back({connection.get(), socket_number(connection.get()), std::move(*slot)});
  // What TCP tells of a connection, a Unix socket does not.
  if (guard_ && peer.storage.ss_family != AF_UNIX)
    guard_->add(connection.get(), open_.back().socket, peer);
  on_connection_(listener, std::move(connection), account);
}

void Acceptor::refuse_without_descriptor(int listener) {
  reserve_.reset();
  base::UniqueFd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)).reset();
  reserve_ = open_reserve();
  note_refusal("any (no descriptor is left)");
  // Another thread may have taken the descriptor meanwhile.
  if (!reserve_) std::this_thread::sleep_for(kPause);
}

void Acceptor::note_refusal(const std::string& client) {
  if (refused_.count++ > 0) return;
  refused_.since = Clock::now();
  spdlog::warn("a connection from {} is refused: at most {} may be open, {} from one address",
               client, slots_.most(), slots_.most_of_one());
}

}  // namespace meshloom::control
