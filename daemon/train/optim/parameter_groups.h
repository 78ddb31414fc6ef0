// SPDX-License-Identifier: Apache-2.0
// Which parameters are frozen, and which have values of their own in the optimizer, by patterns
// over names (planner/name_pattern.h). A pattern that matches a module stands for all parameters
// below it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "daemon/nn/models/model_config.h"
#include "v1/config.pb.h"

namespace meshloom::train {

struct ParameterGroup {
  std::string pattern;
  double lr_factor = 1.0;              ///< times the learning rate of the step
  std::optional<double> weight_decay;  ///< instead of the optimizer's, of all its parameters
};

/// Makes the groups of a resolved config.
std::vector<ParameterGroup> make_parameter_groups(const v1::OptimizerConfig& config);

/// Returns the group of each of `names`, if any. Throws InvalidArgument with the field
/// ("run.optimizer.groups[1].pattern") for a pattern that matches nothing, and for one that names a
/// parameter of an earlier group too.
std::vector<std::optional<std::size_t>> choose_groups(const std::vector<ParameterGroup>& groups,
                                                      const std::vector<std::string>& names);

/// Returns, by parameter of the model, whether it is frozen. Throws InvalidArgument with the field
/// ("run.training.frozen[0]") for a pattern that matches nothing, naming what comes near or what
/// the weight is tied to, and for patterns that leave nothing to train.
std::vector<bool> choose_frozen(const v1::TrainingConfig& training, const nn::ModelConfig& model,
                                const std::vector<std::string>& names);

/// Checks both for the parameters of a model, of which none is made; and that no group is frozen as
/// a whole. Throws as they do.
void check_parameter_patterns(const v1::RunConfig& config, const nn::ModelConfig& model);

}  // namespace meshloom::train
