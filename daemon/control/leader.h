// SPDX-License-Identifier: Apache-2.0
// Leader: everything that only rank 0 has: state dir, jobs, executor, services, driver.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/comm/training_pulse.h"
#include "daemon/control/daemon.h"
#include "daemon/control/host/ticker.h"
#include "daemon/control/jobs/job_driver.h"
#include "daemon/control/jobs/local_admission.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/net/grpc_server.h"
#include "daemon/control/ranks/beat_server.h"
#include "daemon/control/ranks/executor.h"
#include "daemon/control/ranks/launch_card.h"
#include "daemon/control/ranks/pulse_sampler.h"
#include "daemon/control/ranks/rank_service.h"
#include "daemon/control/ranks/rank_watch.h"
#include "daemon/control/ranks/run_factory.h"
#include "daemon/control/ranks/source_cache.h"
#include "daemon/control/services/checkpoint_service.h"
#include "daemon/control/services/generate_service.h"
#include "daemon/control/services/job_service.h"
#include "daemon/control/services/worker_service.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/retention.h"
#include "daemon/control/stores/state_dir.h"

namespace meshloom::control {

class Leader {
 public:
  /// Locks the state dir, replays the journal and listens on both ports. Throws where one of these
  /// fails.
  /// `hosts`: that of rank 0 first.
  Leader(const DaemonOptions& options, const v1::RankHello& self, int world_size,
         bool several_hosts, std::vector<HostMemory> hosts, comm::AbortFlag& abort,
         comm::TrainingPulse& pulse);
  ~Leader();
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  const LaunchCard& card() const { return card_; }
  /// Rank 0 has failed alone, after `epoch` recoveries.
  void report_failure(std::uint64_t epoch, const std::string& cause) {
    executor_.recover(epoch, cause);
  }

  /// Runs this rank's commands on the calling thread until the daemon stops.
  DaemonEnd serve(bool launched_by_mpirun, RunFactory& factory);

 private:
  void request_stop(const std::string& cause);
  void on_all_joined();
  void on_fatal();
  /// What the watch finds: in the log, at the job, in the health, and the end of the daemon.
  void look_at_ranks();
  /// False where a rank is given up before it has left.
  bool all_ranks_leave();
  /// Calls that wait for tokens or models end.
  void end_generations();
  /// The running job saves and lets go, then the ranks stop.
  void stop_in_good_order();

  const DaemonOptions& options_;
  comm::AbortFlag& abort_;
  comm::TrainingPulse& pulse_;
  PulseSampler own_pulse_;
  const ListenAddress listen_;
  StateDir state_;
  JobStore store_;
  Retention retention_;
  CommandQueue commands_;
  Executor executor_;
  RankWatch watch_;
  LocalAdmission admission_;
  JobDriver driver_;
  LaunchCard card_;
  RankServiceImpl rank_service_;
  JobServiceImpl job_service_;
  GenerateServiceImpl generate_service_;  ///< what follows calls its streams
  SourceCache sources_;
  SampleScheduler scheduler_;
  CheckpointServiceImpl checkpoint_service_;
  WorkerServiceImpl worker_service_;
  std::unique_ptr<GrpcServer> rank_server_;  ///< null where there is one rank
  std::unique_ptr<BeatServer> beats_;        ///< likewise
  std::unique_ptr<GrpcServer> server_;
  bool in_trouble_ = false;
  std::mutex stop_mutex_;
  bool stop_requested_ = false;
  std::thread stopper_;
};

}  // namespace meshloom::control
