// SPDX-License-Identifier: Apache-2.0
// Leader: everything that only rank 0 has: stores, ranks, jobs and services.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/control/daemon.h"
#include "daemon/control/host/ticker.h"
#include "daemon/control/jobs/job_driver.h"
#include "daemon/control/jobs/local_admission.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/net/grpc_server.h"
#include "daemon/control/ranks/rank_hub.h"
#include "daemon/control/ranks/source_cache.h"
#include "daemon/control/runs/drain.h"
#include "daemon/control/runs/ranks_queue.h"
#include "daemon/control/runs/run_manager.h"
#include "daemon/control/services/checkpoint_service.h"
#include "daemon/control/services/data_service.h"
#include "daemon/control/services/evaluate_service.h"
#include "daemon/control/services/generate_service.h"
#include "daemon/control/services/job_service.h"
#include "daemon/control/services/model_service.h"
#include "daemon/control/services/operation_service.h"
#include "daemon/control/services/plan_service.h"
#include "daemon/control/services/run_service.h"
#include "daemon/control/services/upload_service.h"
#include "daemon/control/services/worker_service.h"
#include "daemon/control/stores/drain_store.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/ledger.h"
#include "daemon/control/stores/model_store.h"
#include "daemon/control/stores/plan_store.h"
#include "daemon/control/stores/retention.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/state_dir.h"
#include "daemon/control/stores/upload_store.h"
#include "daemon/control/world_hosts.h"

namespace meshloom::control {

class Leader final : private RankHub::Observer {
 public:
  /// The ranks of the daemon as rank 0 has found them.
  struct World {
    v1::RankHello self;
    int size = 1;
    WorldHosts hosts;
    std::shared_ptr<const comm::FlightField> flight;
  };
  /// Locks the state dir, replays the journal and listens on both ports. Throws if one of these
  /// fails.
  Leader(const DaemonOptions& options, const World& world, comm::AbortFlag& abort,
         comm::TrainingPulse& pulse);
  ~Leader() override;
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  const LaunchCard& card() const { return ranks_.card(); }
  /// Rank 0 has failed alone, after `epoch` recoveries.
  void report_failure(std::uint64_t epoch, const std::string& cause) {
    ranks_.executor().recover(epoch, cause);
  }

  /// Runs this rank's commands on the calling thread until the daemon stops.
  DaemonEnd serve(RunFactory& factory);

 private:
  void all_ranks_joined() override;
  void request_stop(const std::string& cause) override;
  void ranks_lost(const Error& cause) override;
  /// What the watch finds: in the log, at the job and in the health.
  void ranks_looked_at(const RankWatch::Findings& findings) override;
  /// It keeps references alone: to members that are made later as well.
  SampleSources sample_sources();
  /// Calls that wait for tokens or models end, and exports.
  void end_generations();

  const DaemonOptions& options_;
  const std::shared_ptr<const comm::FlightField> flight_;
  const ListenAddress listen_;
  StateDir state_;
  const std::filesystem::path flight_file_;
  UploadStore uploads_;
  /// It looks through the stores that follow, once they are there.
  const std::shared_ptr<const Uses> uses_;
  ModelStore models_;
  RunStore run_store_;
  PlanStore plans_;
  DrainStore drain_store_;
  JobStore store_;
  std::unique_ptr<Ledger> ledger_;  ///< of the stores above: its thread uses them
  Ticker upkeep_;
  Retention retention_;
  RankHub ranks_;
  LocalAdmission admission_;
  RanksTurn turn_;
  JobDriver driver_;
  JobServiceImpl job_service_;
  GenerateServiceImpl generate_service_;  ///< what follows calls its streams
  SourceCache sources_;
  SampleScheduler scheduler_;
  RanksQueue queue_;
  RunManager runs_;
  Drain drain_;
  RunServiceImpl run_service_;
  OperationServiceImpl operation_service_;
  CheckpointServiceImpl checkpoint_service_;
  EvaluateServiceImpl evaluate_service_;
  DataServiceImpl data_service_;
  WorkerServiceImpl worker_service_;
  UploadServiceImpl upload_service_;
  ModelServiceImpl model_service_;
  PlanServiceImpl plan_service_;
  std::unique_ptr<GrpcServer> server_;
  bool in_trouble_ = false;
  std::mutex stop_mutex_;
  bool stop_requested_ = false;
  std::thread stopper_;
};

}  // namespace meshloom::control
