// SPDX-License-Identifier: Apache-2.0
// The sizes of a model's config as the planner sees them.
#pragma once

#include "daemon/nn/models/model_config.h"
#include "planner/estimate/model_shape.h"

namespace meshloom::plan {

planner::ModelShape make_model_shape(const nn::ModelConfig& config);

}  // namespace meshloom::plan
