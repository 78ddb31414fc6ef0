// SPDX-License-Identifier: Apache-2.0
// ConnectionGuard: shuts down what a ConnectionWatch finds.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/control/net/connection_watch.h"
#include "daemon/control/net/listen_address.h"

namespace meshloom::control {

/// Looks at the connections of a gRPC server, shuts those down that cost it without making calls,
/// and bars their clients for a moment. It has a thread of its own, which sleeps while there is no
/// connection: gRPC reads a new connection in the thread that gave it away as long as there is
/// something to read, so that a client that sends faster than is read would keep whoever both
/// accepts and looks. Every function may be called by any thread.
class ConnectionGuard {
 public:
  ConnectionGuard() : thread_([this] { run(); }) {}
  ~ConnectionGuard();
  ConnectionGuard(const ConnectionGuard&) = delete;
  ConnectionGuard& operator=(const ConnectionGuard&) = delete;

  /// As ConnectionWatch::add, before gRPC has the connection.
  void add(int fd, ino_t socket, const SocketAddress& peer);
  /// Whether no connection is to be taken of this client now.
  bool is_barred(const std::string& client);

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void look();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  ConnectionWatch watch_;
  std::map<std::string, Clock::time_point> barred_;  ///< clients, and until when
  Clock::time_point tidy_at_ = Clock::time_point::max();
  std::thread thread_;
};

}  // namespace meshloom::control
