// SPDX-License-Identifier: Apache-2.0
// AttemptRecord: what is told of an attempt as it goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/metrics_log.h"
#include "daemon/control/stores/goodput_clock.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/events/job_events.h"
#include "daemon/train/job/watch_conditions.h"
#include "kernels/base/error.h"
#include "v1/job.pb.h"

namespace meshloom::control {

/// Steps, validations, samples, notes and conditions of an attempt: in metrics.jsonl, in the files
/// for TensorBoard and at the store, for watchers; and where its time goes. Used by the attempt's
/// thread.
class AttemptRecord {
 public:
  /// `folder`: of the job. `job`: as the attempt began.
  AttemptRecord(JobStore& store, const v1::Job& job, std::filesystem::path folder);

  /// The run is there, and goes on from step `done`: the files are taken up. `before`: the metrics
  /// of the job whose checkpoint this one began with; empty if there is none.
  void begin(std::int64_t done, double ran_seconds, std::filesystem::path before,
             const std::string& plan);
  /// In the log, too.
  void note(const std::string& note);
  /// Returns whether a condition of run.training.watch asks to cancel the job.
  bool step(v1::StepMetrics metrics, const std::map<std::string, double>& seconds);
  void validation(const v1::ValidationMetrics& metrics);
  void samples(const std::vector<v1::DrawnSample>& samples);
  /// The last step with a validation of this job; -1: none.
  std::int64_t last_validation() const { return metrics_->last_validation(); }
  GoodputClock& clock() { return clock_; }
  /// The job has ended so. `error`: what it has failed with, or null.
  void end(v1::JobState state, const Error* error = nullptr);

 private:
  JobStore& store_;
  const v1::Job& job_;
  const std::string id_;
  const std::filesystem::path folder_;
  std::int64_t step_ = 0;  ///< that was told last
  GoodputClock clock_;
  train::WatchConditions watch_;
  std::unique_ptr<base::MetricsLog> metrics_;  ///< once it has begun
  std::unique_ptr<events::JobEvents> events_;  ///< the same; null: none are asked for
};

}  // namespace meshloom::control
