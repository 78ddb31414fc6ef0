// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/net/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr const char* kUnixClient = "unix";

const in6_addr& ipv6_of(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
}

/// Of an IPv4 address, also one that is written as an IPv6 address; else null.
const unsigned char* ipv4_bytes(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET)
    return reinterpret_cast<const unsigned char*>(
        &reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr);
  if (address.storage.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&ipv6_of(address)))
    return ipv6_of(address).s6_addr + 12;
  return nullptr;
}

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddresses>;

/// Null with `error` set if there is none.
AddressList look_up(const std::string& host, int port, int flags, int* error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  *error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return AddressList(*error == 0 ? found : nullptr);
}

SocketAddress copy_of(const addrinfo& item) {
  SocketAddress address;
  address.size = std::min<socklen_t>(item.ai_addrlen, sizeof address.storage);
  std::memcpy(&address.storage, item.ai_addr, address.size);
  return address;
}

/// The address that gRPC writes so, without asking the resolver; nothing for one with a zone.
std::optional<SocketAddress> plain_address(const std::string& text) {
  SocketAddress address;
  auto* ipv4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* ipv6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &ipv4->sin_addr) == 1) {
    ipv4->sin_family = AF_INET;
    address.size = sizeof *ipv4;
    return address;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &ipv6->sin6_addr) != 1) return std::nullopt;
  ipv6->sin6_family = AF_INET6;
  address.size = sizeof *ipv6;
  return address;
}

}  // namespace

int port_of(const SocketAddress& address) {
  return address.storage.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

HostPort parse_host_port(const std::string& text, const std::string& what) {
  const auto colon = text.rfind(':');
  HostPort parsed;
  bool valid = colon != std::string::npos && colon > 0;
  if (valid) {
    parsed.host = text.substr(0, colon);
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, parsed.port);
    valid = error == std::errc() && rest == end && parsed.port >= 0 && parsed.port <= 65535;
  }
  check(valid, "{} is \"{}\", expected host:port with a port of 0 to 65535", what, text);
  return parsed;
}

ListenAddress resolve_listen_address(const std::string& text, const std::string& what) {
  if (text == kNowhere) return {text, {}};
  const HostPort where = parse_host_port(text, what);
  const std::string& host = where.host;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  int error = 0;
  AddressList list = look_up(name, where.port, AI_PASSIVE, &error);
  // RFC 6761, 6.3: it is the loopback address, even if no file or server says so.
  if (!list && host == "localhost") list = look_up("127.0.0.1", where.port, 0, &error);
  if (!list)
    throw FailedPrecondition(fmt::format("cannot listen on {}: {}", text, ::gai_strerror(error)),
                             "CANNOT_LISTEN", {{"address", text}});
  ListenAddress listen{text, {}};
  for (const addrinfo* item = list.get(); item; item = item->ai_next)
    listen.addresses.push_back(copy_of(*item));
  return listen;
}

bool is_nowhere(const ListenAddress& listen) { return listen.addresses.empty(); }

bool is_loopback(const ListenAddress& listen) {
  return std::all_of(listen.addresses.begin(), listen.addresses.end(), [](const auto& address) {
    if (const unsigned char* bytes = ipv4_bytes(address)) return bytes[0] == 127;
    return address.storage.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&ipv6_of(address)) != 0;
  });
}

std::string client_of(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (const unsigned char* bytes = ipv4_bytes(address))
    return ::inet_ntop(AF_INET, bytes, text, sizeof text);
  if (address.storage.ss_family == AF_UNIX) return kUnixClient;
  if (address.storage.ss_family != AF_INET6) return "unknown";
  in6_addr network{};
  std::memcpy(&network, &ipv6_of(address), 8);
  return fmt::format("{}/64", ::inet_ntop(AF_INET6, &network, text, sizeof text));
}

std::string client_of_peer(const std::string& peer) {
  if (peer.starts_with("unix:")) return kUnixClient;
  // gRPC writes "ipv6:%5B::1%5D:4711", with the brackets of the address as a URI needs them.
  const auto scheme = peer.find(':');
  const auto port = peer.rfind(':');
  if (scheme == std::string::npos || port <= scheme) return "unknown";
  std::string host = peer.substr(scheme + 1, port - scheme - 1);
  for (const char* bracket : {"%5B", "%5D", "[", "]"})
    if (const auto at = host.find(bracket); at != std::string::npos)
      host.erase(at, std::strlen(bracket));
  if (const auto address = plain_address(host)) return client_of(*address);
  int error = 0;
  const AddressList list = look_up(host, 0, AI_NUMERICHOST, &error);
  return list ? client_of(copy_of(*list)) : "unknown";
}

}  // namespace meshloom::control
