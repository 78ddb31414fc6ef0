// SPDX-License-Identifier: Apache-2.0
// What the plan of a config says about tensor parallelism, and whether the model can be sharded so.
#pragma once

#include <string>
#include <vector>

#include "daemon/nn/module.h"
#include "daemon/parallel/parallelize_model.h"
#include "v1/config.pb.h"

namespace meshloom::train {

/// Throws InvalidArgument with the field for styles, options of a style and layouts that there are
/// not.
parallel::ModelPlan make_tensor_plan(const v1::ParallelPlan& plan);

/// Checks the styles of a resolved plan against the modules of a model that needs no memory, as
/// they will be used when the run is made. Returns a text for each pattern that matches nothing and
/// one where no parameter is sharded.
/// Throws InvalidArgument with the field for a pattern that is malformed or matches as well as
/// another, and for a style that does not fit a module it is given to.
std::vector<std::string> check_tensor_plan(const v1::RunConfig& config, nn::Module& model);

}  // namespace meshloom::train
