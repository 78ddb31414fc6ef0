// SPDX-License-Identifier: Apache-2.0
// JobDriver: takes queued jobs one after the other and drives each with the same verbs any client
// has.
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/control/host/daemon_service.h"
#include "daemon/control/jobs/config_resolver.h"
#include "daemon/control/jobs/model_folders.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/jobs/tokenization.h"
#include "daemon/control/ranks/executor.h"
#include "daemon/control/ranks/ranks_turn.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_dir.h"
#include "daemon/train/config/device_choice.h"

namespace meshloom::control {

class JobDriver final : public DaemonService, public Training {
 public:
  /// `resolver` fits jobs to the ranks that there are, which have these `devices`; each waits for
  /// its turn to have them.
  JobDriver(JobStore& store, Executor& executor, RanksTurn& turn, const StateDir& state,
            std::filesystem::path data_dir, ConfigResolver& resolver, ModelFolders& folders,
            Tokenization& tokenization, train::WorldDevices devices = {});
  ~JobDriver();
  JobDriver(const JobDriver&) = delete;
  JobDriver& operator=(const JobDriver&) = delete;

  /// Starts taking jobs. Call when all ranks have joined.
  void start() override;
  /// The running job saves at its next step boundary and stays unfinished; no other is started.
  /// Does not wait.
  void request_stop() override;
  /// Adds a note to the job that is driven, if there is one.
  void note(const std::string& text);
  /// Waits until the driver has let go of its job.
  void stop() override;
  /// A job has the ranks. Any thread.
  bool busy() const override;

 private:
  void run();
  /// What cannot be noted, at a job that was deleted meanwhile, is in the log.
  void note_at(const std::string& id, const std::string& text);
  /// Waits for the ranks; holds nothing if the job is not the next one any more.
  Hold take_turn(const std::string& id);
  void drive(const std::string& id);
  void run_job(const std::string& id);
  /// False if the job is held until there are other ranks.
  bool fit_to_ranks(const std::string& id);
  /// How an attempt has ended.
  struct Ended {
    v1::JobState state = v1::JOB_STATE_FAILED;
    v1::ErrorDetails details = {};
    double ran_seconds = 0;        ///< 0 if nothing is known but what is saved
    std::string hold_reason = "";  ///< empty: it is not held
  };
  void end_job(const std::string& id, const Ended& end);
  /// Lists of checkpoints tell of the damage that an attempt found in the one that it began with.
  void remember_damage_of(const v1::Job& job, const Error& error) const;

  JobStore& store_;
  Executor& executor_;
  RanksTurn& turn_;
  const StateDir& state_;
  std::filesystem::path data_dir_;
  ConfigResolver& resolver_;
  ModelFolders& folders_;
  Tokenization& tokenization_;
  const train::WorldDevices devices_;
  std::atomic<bool> stop_{false};
  mutable std::mutex driven_mutex_;
  std::string driven_;       ///< the job that is driven; empty: none
  std::mutex thread_mutex_;  ///< a stop may come while the last rank joins
  std::thread thread_;
};

}  // namespace meshloom::control
