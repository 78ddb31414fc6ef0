// SPDX-License-Identifier: Apache-2.0
// JobAttempt: one attempt to run a job, from its newest checkpoint to its end or to a stop.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/jobs/attempt_record.h"
#include "daemon/control/jobs/busy_host.h"
#include "daemon/control/jobs/config_resolver.h"
#include "daemon/control/jobs/job_samples.h"
#include "daemon/control/jobs/tokenization.h"
#include "daemon/control/ranks/run_client.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/train/config/device_choice.h"
#include "daemon/train/job/job_course.h"
#include "daemon/train/run/run_folders.h"

namespace meshloom::control {

enum class AttemptEnd {
  kSucceeded,
  kCancelled,
  kPaused,   ///< saved; to be continued when it is resumed
  kStopped,  ///< saved; to be continued by a later daemon
  kHeld,     ///< its last checkpoint, or its export, found no room on the disk
};

/// A client of its run's verbs: it says which samples each step is on, at which learning rate, what
/// is validated and what is saved. Used by the driver's thread. Order inside a step: gradients,
/// update, validation, checkpoint. Steps are kept two deep in flight while they are short, so that
/// no rank waits for a round trip.
class JobAttempt {
 public:
  /// `folder`: of the job itself. `folders`: of its run; their model and tokenizer are what
  /// run.model.name and run.data.tokenizer mean.
  JobAttempt(JobStore& store, Executor& executor, ConfigResolver& resolver,
             Tokenization& tokenization, const v1::Job& job, std::filesystem::path folder,
             train::RunFolders folders, const train::WorldDevices& devices,
             const std::atomic<bool>& stop);
  ~JobAttempt();
  JobAttempt(const JobAttempt&) = delete;
  JobAttempt& operator=(const JobAttempt&) = delete;

  /// Throws what a verb threw, and DeadlineExceeded (TIME_LIMIT) after the last save. The run is
  /// deleted on every path where the ranks can still be reached.
  AttemptEnd run();
  /// That the job had the ranks, in all attempts so far.
  double ran_seconds() const;
  /// After kHeld: what to do about it.
  const std::string& hold_reason() const { return hold_reason_; }

 private:
  struct StepInFlight {
    std::int64_t step = 0;
    RunClient::Step verbs;
  };

  /// False if it was interrupted.
  bool tokenize(v1::CreateRunCommand* create);
  /// What was chosen for the user, and text that is not as it should be, as notes.
  void note_choices();
  /// That the config gives, else as it was measured: that is of this host, not of the job.
  double peak_flops();
  v1::JobData job_data(const v1::CreateRunResult& created) const;
  /// False if it was interrupted.
  bool prepare();
  /// Why an interrupted attempt ends, all saved that can be.
  AttemptEnd interrupted_end(bool cancelled, bool paused) const;
  void go_by(const JobStore::StepOrder& order, std::int64_t step);
  bool time_is_up() const;
  void succeed();
  AttemptEnd train_to_end();
  /// What the last step leaves found the disk full: says what to do, and lets the run go.
  AttemptEnd hold_without_space(const Error& error);
  /// In float32 where a weight is out of the range of the dtype that is asked for, with a note.
  void export_model(const std::filesystem::path& folder);
  void delete_run() noexcept;
  bool interrupted() const;
  void train();
  bool ends_at(std::int64_t step) const { return step >= end_ || !stopped_early_.empty(); }
  bool validates(std::int64_t step) const;
  bool saves(std::int64_t step) const;
  bool samples(std::int64_t step) const;
  bool may_submit() const;
  void finish_step();
  void note_busy_host(const v1::ApplyGradientsResult& step);  ///< once for all attempts
  /// Part by part; on a stop it remains to be done. Saves if the checkpoint is one of the best.
  void evaluate();
  /// The loss on a validation set, or run.data's own (empty); nothing on a stop.
  std::optional<std::vector<train::LossSum>> evaluate_set(const std::string& set);
  /// On a stop: what fails is a note and counted, and false is returned.
  bool save_last();
  /// Between steps: what fails is counted, and noted once in a job. At the end of the job it is
  /// thrown as well.
  void save_step();
  void count_failed_save(const Error& error);
  /// Of those that failed since the last one that did not.
  void note_failed_saves();
  /// With what the validations have shown so far.
  v1::WriteStateResult save();
  /// If the validations so far say so.
  void stop_early();
  /// Made at first use.
  const JobSamples& job_samples();
  void draw_samples();  ///< between steps
  void note_cut(const JobSamples::Drawn& drawn);

  JobStore& store_;
  Executor& executor_;
  ConfigResolver& resolver_;
  Tokenization& tokenization_;
  const v1::Job job_;
  const std::string id_;
  const RunClient run_;
  v1::RunConfig config_;  ///< with the settings of the step that was submitted last
  bool edited_ = false;   ///< the job was, at some step
  std::int64_t end_ = 0;  ///< the step after which it has succeeded
  std::int64_t time_limit_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const std::filesystem::path folder_;
  const train::RunFolders folders_;
  const train::WorldDevices& devices_;
  const std::atomic<bool>& stop_;
  std::optional<train::JobCourse> course_;  ///< once the run is made
  AttemptRecord record_;
  std::deque<StepInFlight> in_flight_;
  std::int64_t submitted_ = 0;
  std::int64_t done_ = 0;
  std::int64_t saved_ = 0;
  std::int64_t not_saved_ = 0;     ///< the last step whose checkpoint failed
  std::int64_t failed_saves_ = 0;  ///< in a row
  std::string hold_reason_;
  std::chrono::steady_clock::duration step_time_ = std::chrono::hours(1);  ///< of the last step
  /// When the last step or part of a validation ended: a save at a stop begins then.
  std::chrono::steady_clock::time_point trained_until_;
  BusyHost busy_host_;
  bool validation_missing_ = false;
  v1::ValidationProgress progress_;                  ///< as the newest checkpoint has it, or newer
  std::optional<v1::ValidationMetrics> validation_;  ///< of the step that was done last
  std::string stopped_early_;                        ///< why it ends now; empty: it goes on
  std::unique_ptr<JobSamples> samples_;
  std::vector<train::TokenizedFiles> text_;  ///< what tokens were made of
  std::string chat_template_;                ///< as in train::TokenizedText
  bool run_exists_ = false;
};

}  // namespace meshloom::control
