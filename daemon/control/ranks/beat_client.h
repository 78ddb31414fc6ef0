// SPDX-License-Identifier: Apache-2.0
// The heartbeats of every rank but 0: its own go out, those of rank 0 come in.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "daemon/control/ranks/beat_connection.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Has a thread of its own, which answers rank 0's beats, so that it wakes once for both, and sends
/// without being asked if none came. A connection that is lost is made anew.
class BeatClient {
 public:
  struct Options {
    std::string address;  ///< of rank 0's BeatServer
    std::string secret;
    int rank = 0;
    /// Called by the client's thread, as what follows.
    std::function<v1::Heartbeat()> beat;
    std::function<void()> on_beat;  ///< rank 0 was heard
    std::function<void()> on_tick;  ///< about each kHeartbeatPeriod, whatever was heard
  };
  explicit BeatClient(Options options);
  ~BeatClient();
  BeatClient(const BeatClient&) = delete;
  BeatClient& operator=(const BeatClient&) = delete;

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  /// Throws if rank 0 does not answer.
  BeatConnection connect();
  /// Waits until the socket is ready or `end`; false if the client is destroyed meanwhile.
  bool wait(int socket, short events, Clock::time_point end);
  /// Whether rank 0 was heard. A connection that has ended is given up.
  bool hear(std::optional<BeatConnection>& connection);

  Options options_;
  base::UniqueFd wake_;
  std::thread thread_;
};

}  // namespace meshloom::control
