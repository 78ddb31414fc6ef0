// SPDX-License-Identifier: Apache-2.0
// LaunchTls: TLS over a socket between two ranks, without gRPC.
#pragma once

#include <cstddef>
#include <memory>

#include "daemon/control/access/launch_key.h"

namespace meshloom::control {

/// One connection over a nonblocking socket, whose ends both have the launch's key; the first read
/// or write begins the handshake, and others go on with it. Used by one thread.
class LaunchTls {
 public:
  enum class Side { kServer, kClient };
  enum class Outcome { kDone, kWait, kEnded };

  /// The socket outlives it. Throws InternalError where OpenSSL does not take the key.
  LaunchTls(const LaunchKey& key, Side side, int socket);
  ~LaunchTls();
  LaunchTls(LaunchTls&&) noexcept;
  LaunchTls& operator=(LaunchTls&&) noexcept;

  /// Up to `size` bytes, of which there were `count`; kWait: none until the socket is ready;
  /// kEnded: the other end has closed, has no such key, or says something else.
  Outcome read(char* data, std::size_t size, std::size_t* count);
  Outcome write(const char* data, std::size_t size, std::size_t* count);

 private:
  struct Session;
  std::unique_ptr<Session> session_;
};

}  // namespace meshloom::control
