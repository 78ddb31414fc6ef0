// SPDX-License-Identifier: Apache-2.0
// JobCourse: what the steps of a job are, as arguments of the verbs of its run.
#pragma once

#include <cstdint>

#include "daemon/train/optim/lr_schedule.h"
#include "daemon/train/run/run.h"

namespace meshloom::train {

/// JobCourse says which samples come next, at which learning rate, and what is told of the steps
/// that are done. No ranks and no clock: whoever drives a run has one. Several steps may be on
/// their way.
class JobCourse {
 public:
  /// The course has to know this of the run as it was made.
  struct Begin {
    std::int64_t step = 0;      ///< Run::step()
    JobProgress progress = {};  ///< Run::job_progress()
    nn::ModelFlops flops = {};  ///< Run::flops()
    double peak_flops = 0.0;    ///< of a rank, per second: what mfu is a share of; 0: none is told
  };
  /// `config` is the job's, resolved.
  JobCourse(const v1::RunConfig& config, Begin begin);

  /// Step holds arguments of Run::forward_backward and Run::optim_step.
  struct Step {
    TrainingBatch batch;
    v1::OptimStepParams update;
  };
  /// Returns batch and update of the step after the one that this returned before.
  Step next();
  /// The oldest step on its way is done: `work` and `output` are what its verbs returned. Returns
  /// the step's metrics, but for the memory. mfu is of the model's work: padding is none, nor are
  /// keys that a query does not see.
  v1::StepMetrics done(const BatchWork& work, const StepOutput& output);

  /// Returns the progress of the steps that are done; the validations are the caller's.
  JobProgress progress(const v1::ValidationProgress& validation) const;
  /// Steps that next() has not returned yet go by other settings, which are resolved.
  void edit(const v1::JobSettings& settings);

 private:
  v1::RunConfig config_;
  LrSchedule schedule_;
  nn::ModelFlops flops_;
  double peak_flops_;
  std::int64_t step_;               ///< of which next() was asked last
  std::int64_t next_position_;      ///< of the step behind it
  std::int64_t position_, tokens_;  ///< of the steps that are done
};

}  // namespace meshloom::train
