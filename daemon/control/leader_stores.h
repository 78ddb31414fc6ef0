// SPDX-License-Identifier: Apache-2.0
// LeaderStores: what rank 0 keeps, in the state dir and its journal.
#pragma once

#include <memory>

#include "daemon/control/access/audit_log.h"
#include "daemon/control/host/ticker.h"
#include "daemon/control/stores/drain_store.h"
#include "daemon/control/stores/event_log.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/ledger.h"
#include "daemon/control/stores/model_store.h"
#include "daemon/control/stores/plan_store.h"
#include "daemon/control/stores/retention.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/state_dir.h"
#include "daemon/control/stores/upload_store.h"
#include "daemon/control/stores/uses.h"
#include "v1/config.pb.h"

namespace meshloom::control {

/// The order of the members is that in which they are made: each uses some before it, and the
/// ledger's thread all stores. Any thread may use them.
struct LeaderStores {
  /// Locks the state dir and replays the journal. Throws if one of these fails.
  explicit LeaderStores(const v1::DaemonConfig& config);

  /// Ends the process: nothing that it writes is its own any more.
  struct LockLoss final : LockBeat::Observer {
    explicit LockLoss(std::string dir) : state_dir(std::move(dir)) {}
    void lock_taken(const std::string& who) override;
    const std::string state_dir;
  };

  LockLoss lock_loss;
  StateDir state;
  UploadStore uploads;
  /// Looks through the stores that follow, once they are there.
  const std::shared_ptr<const Uses> uses;
  ModelStore models;
  RunStore runs;
  PlanStore plans;
  DrainStore drain;
  EventLog events;
  JobStore jobs;
  const std::unique_ptr<Ledger> ledger;  ///< of the stores above
  Ticker upkeep;                         ///< of uploads, and of the jobs' turns
  AuditLog audit;
  Retention retention;
};

}  // namespace meshloom::control
