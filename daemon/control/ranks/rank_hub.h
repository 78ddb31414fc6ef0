// SPDX-License-Identifier: Apache-2.0
// RankHub: rank 0's side of all ranks: their commands, their streams and the watch over them.
#pragma once

#include <memory>
#include <string>

#include "daemon/comm/process_group.h"
#include "daemon/comm/training_pulse.h"
#include "daemon/control/host/daemon_service.h"
#include "daemon/control/host/ticker.h"
#include "daemon/control/net/grpc_server.h"
#include "daemon/control/ranks/beat_server.h"
#include "daemon/control/ranks/executor.h"
#include "daemon/control/ranks/file_grants.h"
#include "daemon/control/ranks/launch_card.h"
#include "daemon/control/ranks/pulse_sampler.h"
#include "daemon/control/ranks/rank_file_service.h"
#include "daemon/control/ranks/rank_service.h"
#include "daemon/control/ranks/rank_watch.h"
#include "daemon/control/ranks/rank_worker.h"

namespace meshloom::control {

/// Puts the executor together with the servers that the other ranks connect to, and with the queue
/// and the pulse of rank 0 itself.
class RankHub final : public DaemonService,
                      private Executor::Observer,
                      private BeatServer::Observer {
 public:
  /// Who hears what happens at the ranks. Called by threads of the hub, which must not be held up.
  class Observer : public RankServiceImpl::Observer {
   public:
    /// A failure has left the ranks out of step; called before waits end for it.
    virtual void ranks_lost(const Error& cause) = 0;
    /// Of each look at the ranks, a few times a second.
    virtual void ranks_looked_at(const RankWatch::Findings& findings) = 0;
  };
  struct Options {
    v1::RankHello self;  ///< rank 0
    int world_size = 1;
    /// Where ranks of other hosts find this one; empty: all are on this one, and Unix sockets do.
    std::string host;
    std::string listen_host;  ///< on which of its addresses it listens for them
    RankWatch::Limits limits;
    std::string probe;  ///< LaunchCard::probe
  };

  /// Listens for the other ranks. `abort` is raised if a failure leaves the ranks out of step; the
  /// process then ends soon. Throws FailedPrecondition (CANNOT_LISTEN).
  RankHub(Options options, comm::AbortFlag& abort, comm::TrainingPulse& pulse, Observer& observer);
  RankHub(const RankHub&) = delete;
  RankHub& operator=(const RankHub&) = delete;

  /// Connections that the other ranks may have. Those of clients must leave room for them.
  static int most_connections(int world_size) { return 32 + 3 * world_size; }

  const LaunchCard& card() const { return card_; }
  Executor& executor() { return executor_; }
  const RankWatch& watch() const { return watch_; }
  const RankServiceImpl& service() const { return service_; }

  /// From here on the observer hears of the ranks.
  void start_watching();
  /// Runs the commands of rank 0 on the calling thread until they end.
  LoopEnd run(RunFactory& factory, const SourceCache& sources);
  /// Waits, after a stop command, until the other ranks have left. False if one is given up before.
  bool others_leave() const;
  /// Ends heartbeats and looks.
  void stop_watching();
  /// Ends the streams of the other ranks.
  void stop() override;

 private:
  void listen();
  void ranks_failed(const Error& cause) override;
  void heard(int rank, const v1::Heartbeat& beat, BeatServer::Clock::time_point asked) override {
    watch_.heard(rank, &beat, asked);
  }
  void look() override;

  const Options options_;
  comm::AbortFlag& abort_;
  comm::TrainingPulse& pulse_;
  Observer& observer_;
  PulseSampler own_pulse_;
  CommandQueue commands_;  ///< of rank 0
  Executor executor_;
  RankWatch watch_;
  LaunchCard card_;
  FileGrants grants_;
  RankServiceImpl service_;
  RankFileServiceImpl files_;
  std::unique_ptr<GrpcServer> server_;  ///< null if there is one rank
  std::unique_ptr<BeatServer> beats_;   ///< likewise
  std::unique_ptr<Ticker> ticker_;      ///< in place of heartbeats if there is one rank
};

}  // namespace meshloom::control
