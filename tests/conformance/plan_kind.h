// SPDX-License-Identifier: Apache-2.0
// Kind `plan`: what the redistribution planner decides, without tensors and ranks.
#pragma once

#include "planner/dtensor_spec.h"
#include "planner/redistribute/planner.h"
#include "tests/conformance/case.h"

namespace meshloom::conformance {

const Kind& plan_kind();

/// The layout under `key` ("from", "to"), with the shard order under `key` + "_order" where there
/// is one. Throws InvalidArgument naming the key.
planner::SpecPtr read_layout(const Case&, const char* key, const planner::MeshPtr& mesh,
                             const Shape& shape);
/// "planner" and "cost_model"; the library's defaults where they are left out.
planner::RedistributeOptions read_planner_options(const Case&);

}  // namespace meshloom::conformance
