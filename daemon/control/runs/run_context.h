// SPDX-License-Identifier: Apache-2.0
// RunContext: what all runs of a daemon share.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "daemon/control/access/limits.h"
#include "daemon/control/jobs/config_resolver.h"
#include "daemon/control/jobs/memory_budget.h"
#include "daemon/control/jobs/model_folders.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/jobs/tokenization.h"
#include "daemon/control/ranks/ranks_turn.h"
#include "daemon/control/runs/operations.h"
#include "daemon/control/runs/run_states.h"
#include "daemon/control/runs/waiting_memory.h"
#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/transient_uploads.h"
#include "daemon/control/stores/uses.h"
#include "v1/wait.pb.h"

namespace meshloom::control {

/// Who knows behind whom a run waits for the ranks. Any thread may ask, without a mutex of a run.
class RanksWaits {
 public:
  virtual ~RanksWaits() = default;
  /// There is no reason where nothing comes before the run.
  virtual v1::RanksWait wait_of(const std::string& name) const = 0;
};

/// What runs use of their daemon, which outlives them.
struct RunServices {
  Executor& executor;
  RanksTurn& turn;
  RunStore& store;
  SampleScheduler& scheduler;
  ConfigResolver& resolver;
  ModelFolders& folders;
  Tokenization& tokenization;
  MemoryBudget& budget;
  const StateDir& state;
  std::filesystem::path data_dir;
  TransientUploads& uploads;
  const RanksWaits& waits;
  const UptimeClock& clock;
  /// Knows the names of weights that are being saved or deleted.
  std::shared_ptr<const Uses> uses = std::make_shared<const Uses>();
  /// Bounds what the uploads of verbs in flight take at once, in bytes.
  std::int64_t most_upload_bytes = std::int64_t{1} << 30;
  Limits limits = Limits();  ///< of runs that have not ended, and of outcomes that are kept
};

/// The services with what all runs of a daemon share. It outlives the runs.
struct RunContext : RunServices {
  Operations& operations;
  WaitingMemory waiting;
  std::atomic<bool> stopping{false};
  /// A run has ended since whoever looks after memory has looked: what it held is free.
  std::atomic<bool> freed{false};
};

}  // namespace meshloom::control
