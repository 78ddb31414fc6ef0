// SPDX-License-Identifier: Apache-2.0
// A connection to a port of this host, by hand.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "daemon/base/unique_fd.h"

namespace meshloom::test {

/// A socket that is connected to 127.0.0.1; none if nobody listens there. `from`: another address
/// of the loopback, such as 127.0.0.2, by which servers take it for another client.
inline base::UniqueFd connect_to_loopback(int port, const char* from = nullptr) {
  base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto refused_by = [&](auto call, const char* address, int of_port) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<std::uint16_t>(of_port));
    ::inet_pton(AF_INET, address, &name.sin_addr);
    return call(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0;
  };
  if ((from != nullptr && refused_by(::bind, from, 0)) || refused_by(::connect, "127.0.0.1", port))
    fd.reset();
  return fd;
}

}  // namespace meshloom::test
