// SPDX-License-Identifier: Apache-2.0
// A connection that carries heartbeats alone.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/unique_fd.h"
#include "daemon/control/access/launch_tls.h"

namespace meshloom::control {

/// How often rank 0 sends a heartbeat, which is answered with one, and looks whom it has heard:
/// after 1.5 s of silence (kNamedAfter) the next look is less than 2 s after the last sign of life.
inline constexpr std::chrono::milliseconds kHeartbeatPeriod{480};

/// Short messages over a nonblocking stream socket, each after its length in two bytes, the low one
/// first. gRPC's streams would carry them too, at ten times the cost: an idle rank would take more
/// than 0.1 % of a core. Used by one thread.
class BeatConnection {
 public:
  static constexpr std::size_t kLongestMessage = 4096;
  /// Bytes that one receive() takes: some of the longest messages, many heartbeats.
  static constexpr std::size_t kMostAtOnce = 4 * (2 + kLongestMessage);

  /// `tls`: of this socket; nothing: in the clear.
  explicit BeatConnection(base::UniqueFd socket, std::optional<LaunchTls> tls = std::nullopt)
      : socket_(std::move(socket)), tls_(std::move(tls)) {}

  int fd() const { return socket_.get(); }
  /// Dropped if the peer has not taken the one before, which is as good. False if the
  /// connection has ended.
  bool send(std::string_view message);
  /// Adds the messages that have come since, of `most_bytes` with their lengths; what is beyond
  /// them waits for the next call, so that no peer keeps the thread. False if the connection has
  /// ended, or the peer sends something else, such as a message that `most_bytes` cannot hold.
  bool receive(std::vector<std::string>* messages, std::size_t most_bytes = kMostAtOnce);

 private:
  bool flush();
  /// Appends at most so many bytes to what was received. False if the connection has ended.
  bool read(std::size_t most_bytes);

  /// How much of the bytes was sent, or of the room was filled; nothing if the connection has
  /// ended.
  std::optional<std::size_t> send_some(std::string_view bytes);
  std::optional<std::size_t> read_some(char* bytes, std::size_t room);

  base::UniqueFd socket_;
  std::optional<LaunchTls> tls_;  ///< goes before its socket
  std::string unsent_;
  std::string received_;
};

}  // namespace meshloom::control
