// SPDX-License-Identifier: Apache-2.0
// Addresses to listen on and those of clients.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

namespace meshloom::control {

struct HostPort {
  std::string host;
  int port = 0;
};
/// Throws InvalidArgument naming `what` for text that is not host:port.
HostPort parse_host_port(const std::string& text, const std::string& what);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// In the byte order of the host.
int port_of(const SocketAddress& address);

/// Where to listen: every address that a name means.
struct ListenAddress {
  std::string text;  ///< as the user gave it
  std::vector<SocketAddress> addresses;
};
/// What a user writes for no address: whoever comes, comes by a Unix socket.
inline constexpr const char* kNowhere = "none";

/// `text` is host:port, IPv6 in brackets, or kNowhere. Throws InvalidArgument naming `what`, and
/// FailedPrecondition (CANNOT_LISTEN) if the name means no address.
ListenAddress resolve_listen_address(const std::string& text, const std::string& what);

/// Whether it is kNowhere.
bool is_nowhere(const ListenAddress& listen);

/// Whether only processes of this host can reach it: every address is one of 127.0.0.0/8 or ::1,
/// whatever its name.
bool is_loopback(const ListenAddress& listen);

/// What counts as one client: an IPv4 address, or an IPv6 network of 64 bits, which is what one
/// host may choose from; "unix" of a Unix socket.
std::string client_of(const SocketAddress& address);
/// The same for the text that gRPC gives of a peer, such as "ipv4:127.0.0.1:4711".
std::string client_of_peer(const std::string& peer);

}  // namespace meshloom::control
