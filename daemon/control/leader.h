// SPDX-License-Identifier: Apache-2.0
// Leader: everything that only rank 0 has: stores, ranks, jobs and services.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "daemon/control/daemon.h"
#include "daemon/control/hooks/event_hook.h"
#include "daemon/control/jobs/job_driver.h"
#include "daemon/control/jobs/local_admission.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/leader_stores.h"
#include "daemon/control/net/listen_address.h"
#include "daemon/control/ranks/rank_hub.h"
#include "daemon/control/ranks/source_cache.h"
#include "daemon/control/runs/drain.h"
#include "daemon/control/runs/ranks_queue.h"
#include "daemon/control/runs/run_manager.h"
#include "daemon/control/service_table.h"
#include "daemon/control/services/client_access.h"
#include "daemon/control/services/client_door.h"
#include "daemon/control/services/store_owners.h"
#include "daemon/control/services/usage.h"
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
  /// The table of all services, in the order in which they are started; they stop in the opposite
  /// one.
  void add_services(const World& world);
  /// Tells where clients find it, in the log and in the state dir.
  void publish_address();
  /// Makes a service that clients call.
  template <typename T, typename... Arguments>
  T& offer(Arguments&&... arguments) {
    T& service = services_.make<T>(std::forward<Arguments>(arguments)...);
    door_.add(service);
    return service;
  }

  const DaemonOptions& options_;
  const std::shared_ptr<const comm::FlightField> flight_;
  const ListenAddress listen_;
  LeaderStores stores_;
  ClientAccess access_;
  const std::filesystem::path flight_file_;
  RankHub ranks_;
  LocalAdmission admission_;
  RanksTurn turn_;
  ServiceTable services_;  ///< what follows calls streams of services that it has made
  JobDriver driver_;
  SourceCache sources_;
  SampleScheduler scheduler_;
  RanksQueue queue_;
  RunManager runs_;
  Drain drain_;
  EventHook hook_;
  Usage usage_;
  StoreOwners owners_;
  ClientDoor door_;
  bool in_trouble_ = false;
  std::mutex stop_mutex_;
  bool stop_requested_ = false;
  std::thread stopper_;
};

}  // namespace meshloom::control
