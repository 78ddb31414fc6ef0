// SPDX-License-Identifier: Apache-2.0
// A connection to a port of this host, by hand.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "daemon/base/unique_fd.h"

namespace meshloom::test {

/// Connected to 127.0.0.1; without a socket if nobody listens there.
inline base::UniqueFd connect_to_loopback(int port) {
  base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) fd.reset();
  return fd;
}

}  // namespace meshloom::test
