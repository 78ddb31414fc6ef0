// SPDX-License-Identifier: Apache-2.0
// Rank 0's end of the heartbeats: the other ranks connect, beats go both ways.
#pragma once

#include <chrono>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/control/net/acceptor.h"
#include "daemon/control/ranks/beat_connection.h"
#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Has a thread of its own, so that beats tell whether this process runs and nothing else. Answers
/// to a beat are read when the next one is due: one wake for all ranks. A connection begins with
/// the launch's secret and the rank; one that does not is closed, and no more than the bytes of an
/// introduction are taken of it.
class BeatServer {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    ListenAddress listen;
    std::string secret;
    int world_size = 1;
    std::string abstract_name{};  ///< of a Unix socket on which it listens too; empty: none
    LaunchKey key{};              ///< LaunchCard::key
  };
  /// The server's thread calls it, once the server is started; it must return at once.
  class Observer {
   public:
    virtual ~Observer() = default;
    /// The rank lived at `asked`, or later.
    virtual void heard(int rank, const v1::Heartbeat& beat, Clock::time_point asked) = 0;
    /// Each kHeartbeatPeriod.
    virtual void look() = 0;
  };
  /// Listens. `observer` outlives it. Throws FailedPrecondition (CANNOT_LISTEN).
  BeatServer(Options options, Observer& observer);
  ~BeatServer();
  BeatServer(const BeatServer&) = delete;
  BeatServer& operator=(const BeatServer&) = delete;

  int port() const { return acceptor_.port(); }
  /// From here on beats go out.
  void start();

 private:
  struct Peer {
    BeatConnection connection;
    Clock::time_point since;
    std::optional<int> rank;  ///< once it has said the secret
  };

  void run();
  void tick();
  /// What its connection has to say; false if it is to be closed.
  bool hear(Peer& peer);
  bool introduce(Peer& peer, const std::string& message) const;
  void take_arrived();

  Options options_;
  Observer& observer_;
  base::UniqueFd wake_;
  std::list<Peer> peers_;  ///< of the server's thread, as what follows
  Clock::time_point asked_ = Clock::now();
  bool skipped_ = false;
  std::mutex mutex_;  ///< for what follows
  std::vector<base::UniqueFd> arrived_;
  bool stopping_ = false;
  Acceptor acceptor_;
  std::thread thread_;
};

/// What a connection begins with.
std::string beat_introduction(const std::string& secret, int rank);

}  // namespace meshloom::control
