// SPDX-License-Identifier: Apache-2.0
// The heartbeats of every rank but 0: its own go out, those of rank 0 come in.
#pragma once

#include <chrono>
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
    LaunchKey key{};  ///< LaunchCard::key
  };
  /// The client's thread calls it.
  class Observer {
   public:
    virtual ~Observer() = default;
    /// What this rank tells rank 0.
    virtual v1::Heartbeat beat() = 0;
    virtual void rank0_heard() = 0;
    /// About each kHeartbeatPeriod, whatever was heard.
    virtual void look_at_rank0() = 0;
  };
  /// `observer` outlives it.
  BeatClient(Options options, Observer& observer);
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
  Observer& observer_;
  base::UniqueFd wake_;
  std::thread thread_;
};

}  // namespace meshloom::control
