// SPDX-License-Identifier: Apache-2.0
// Finds connections that make gRPC work and grow without making a call.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/control/net/listen_address.h"

namespace meshloom::control {

/// Two things a client can do below all limits of gRPC: begin calls and reset them at once
/// (RST_STREAM), each of which gRPC keeps until it has had its turn, and send one header without
/// end (CONTINUATION), which is kept. The first shows in the counts that gRPC makes of each
/// connection (channelz), the second in TCP's: gRPC has read so much and this side said nothing,
/// where data of calls must be allowed by it bit by bit. Both must be seen at several looks in a
/// row, since on a busy host gRPC may have read what it has not looked at yet; far beyond its bound
/// a header is seen at once, since a fast client sends a hundred megabytes between looks. What is
/// looked at costs two system calls for a connection on which nothing came, and some tens of
/// microseconds for others. Used by one thread.
class ConnectionWatch {
 public:
  static constexpr std::chrono::milliseconds kPeriod{100};
  /// Calls that one connection may have at once (GRPC_ARG_MAX_CONCURRENT_STREAMS).
  static constexpr int kCallsAtOnce = 100;
  /// Calls of one client that were begun, have not ended, and are more than its connections may
  /// have at once.
  static constexpr std::int64_t kMostReset = 1000;
  /// Bytes that may come while this side says nothing: some windows of flow control, and what each
  /// call under way may send on top of them.
  static constexpr std::int64_t kMostUnanswered = 8 << 20;
  static constexpr std::int64_t kMostUnansweredOfCall = 17 << 20;
  static constexpr std::int64_t kMostUnansweredInAll = 128 << 20;
  static constexpr int kLooksInARow = 3;
  /// So many times the bytes that may come unanswered need no further look.
  static constexpr std::int64_t kFarBeyond = 3;

  /// A connection that is to be shut down.
  struct Finding {
    int fd;
    std::string client;
    std::string cause;
  };

  /// `fd` is a socket of `peer` that a gRPC server of this process has. `socket`: its number in
  /// the kernel, by which it is known when the descriptor is another's.
  void add(int fd, ino_t socket, const SocketAddress& peer);
  bool empty() const { return connections_.empty(); }
  /// Until the next look: longer where there are many, so that they cost no more together.
  std::chrono::milliseconds period() const {
    return kPeriod * (1 + static_cast<int>(connections_.size()) / 100);
  }
  /// Forgets connections that were closed.
  std::vector<Finding> look();

 private:
  struct Connection {
    int fd;
    ino_t socket;
    std::string client;
    std::string peer;           ///< client and port
    std::int64_t number = 0;    ///< of gRPC; 0: not known yet
    std::int64_t received = 0;  ///< bytes that gRPC had read at the last look
    std::int64_t sent = 0;
    std::int64_t answered = 0;  ///< of those received when this side last said something
    std::int64_t calls = 0;     ///< that have begun and not ended
    bool has_moved = false;     ///< since the look before
    int suspect_looks = 0;      ///< in a row, at which a bound was exceeded
    bool is_found = false;
  };

  /// False if the connection was closed.
  static bool read_tcp(Connection& connection);
  static void count_calls(Connection& connection);
  void find_numbers();

  std::vector<Connection> connections_;
};

/// The number of the socket behind a descriptor, which no other socket has as long as it is open;
/// 0 if it is closed.
ino_t socket_number(int fd);

}  // namespace meshloom::control
