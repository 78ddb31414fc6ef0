// SPDX-License-Identifier: Apache-2.0
// Gives a parameter the layout that a style planned for it.
#pragma once

#include <optional>

#include "daemon/nn/module.h"
#include "daemon/parallel/tensor_parallel/style_mesh.h"
#include "planner/plan/module_sharding.h"

namespace meshloom::parallel {

/// From here on the parameter's value is a leaf whose local tensor is this rank's part of the
/// values of rank `src_data_rank` along the acting dims (nullopt: of its own, without
/// communication; then also if the value has no memory).
void distribute_parameter(nn::Parameter& parameter, const planner::ParameterSpec& layout,
                          const StyleMesh& mesh, std::optional<int> src_data_rank);

}  // namespace meshloom::parallel
