// SPDX-License-Identifier: Apache-2.0
// StepRun: one step of a redistribution plan in flight.
#pragma once

#include "daemon/comm/work.h"
#include "daemon/dtensor/step_recipe.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::dtensor {

/// A StepRun issues its collective when made; memory it uses stays alive with it.
class StepRun {
 public:
  /// `input` is this rank's local tensor before the step. `may_overwrite`: nobody else holds it.
  /// The recipe outlives the run and serves one run at a time until its collective was issued.
  /// Throws InvalidArgument if input's shape is not the layout's.
  StepRun(StepRecipe& recipe, Tensor input, bool may_overwrite);

  /// Waits and gives the local tensor after the step. Called once.
  Tensor finish();
  bool poll() { return work_ == nullptr || work_->poll(); }

 private:
  void issue_all_gather();
  void issue_reduce_scatter();
  void issue_exchange();
  void to_partial();
  Tensor staging(std::int64_t elements) const;

  StepRecipe& recipe_;
  Tensor input_, output_;
  Tensor staged_in_, staged_out_;
  comm::WorkPtr work_;
};

}  // namespace meshloom::dtensor
