// SPDX-License-Identifier: Apache-2.0
// JobProgress: the jobs for the driver: which one is next, its attempts, and what happens in them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/stores/job_records.h"

namespace meshloom::control {

/// What has happened cannot be refused: its record is tried again until the disk takes it.
class JobProgress : public JobRecords {
 public:
  /// The next job to run; waits for one. Those that took the daemon down come last. Nothing once
  /// closed.
  std::optional<std::string> wait_for_job();
  /// The same without waiting: nothing if there is none.
  std::optional<std::string> next_job() const;
  /// Ids of the jobs that wait for the ranks, in the order in which they are taken.
  std::vector<std::string> waiting() const;
  /// Whether a job that waits was resumed: it comes before all that wait for the ranks.
  bool comes_first(const std::string& id) const;
  /// A new attempt: PREPARING with the next epoch, which the journal promises to give out once.
  /// Waits for that promise if the disk is full; Unavailable once closed.
  v1::Job begin_attempt(const std::string& id);
  /// HELD until the daemon is started again; nothing if the job was cancelled meanwhile.
  void hold(const std::string& id, v1::HoldCode code, const std::string& reason);
  /// Applies a change and checks the move of state.
  void update(const std::string& id, const std::function<void(v1::Job*)>& change);
  /// Told to watchers and readers, not kept.
  void publish_tokenizing(const std::string& id, const v1::TokenizeProgress& progress);
  void publish_step(const std::string& id, const v1::StepMetrics& step);
  void publish_validation(const std::string& id, const v1::ValidationMetrics& validation);
  /// Tells the samples of a step, one for each prompt.
  void publish_samples(const std::string& id, const std::vector<v1::DrawnSample>& samples);
  /// A checkpoint of this step is whole. Told from here on, also after a restart.
  void checkpoint_saved(const std::string& id, std::int64_t step, double ran_seconds,
                        const v1::Goodput& goodput = {});
  /// Where the job's time has gone, as its attempt has counted it: journaled with what comes next.
  void set_goodput(const std::string& id, const v1::Goodput& goodput);
  /// A condition has come to hold, with a note that says so.
  void publish_watch(const std::string& id, const v1::WatchNotice& notice, const std::string& note);
  void add_note(const std::string& id, const std::string& note);
  bool cancel_requested(const std::string& id) const;
  bool pause_requested(const std::string& id) const;
  /// The job could not be saved and goes on.
  void pause_failed(const std::string& id, const std::string& why);
  /// What decides about a step: settings_for() of this config, and limits.
  struct StepOrder {
    SharedJobConfig config;
    std::int64_t step_limit = 0;
    std::int64_t time_limit_seconds = 0;
  };
  /// This step is about to begin: no edit holds for it from here on. Waits for one that is being
  /// written.
  StepOrder begin_step(const std::string& id, std::int64_t step);

 protected:
  explicit JobProgress(const Options& options) : JobRecords(options) {}

 private:
  void add_note_event(const std::string& id, v1::JobEvent event);
};

}  // namespace meshloom::control
