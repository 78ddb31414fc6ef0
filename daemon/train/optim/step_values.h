// SPDX-License-Identifier: Apache-2.0
// What one optimizer step takes, from what a client gives for it and the run's optimizer.
#pragma once

#include "daemon/train/optim/optimizer.h"
#include "v1/config.pb.h"
#include "v1/step.pb.h"

namespace meshloom::train {

struct StepValues {
  double lr = 0.0;
  double max_norm = 0.0;  ///< 0: not clipped
  OptimizerValues optimizer;
};

/// `optimizer` and `max_norm` are those of a resolved config. Throws InvalidArgument with the field
/// of `given` ("beta1") for a value out of range and for one that this kind of optimizer has no use
/// for: momentum of Adam, betas and eps of SGD, a momentum above 0 for SGD that was made without.
StepValues step_values(const v1::OptimStepParams& given, const v1::OptimizerConfig& optimizer,
                       double max_norm);

}  // namespace meshloom::train
