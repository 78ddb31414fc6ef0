// SPDX-License-Identifier: Apache-2.0
// All ranks of a mesh in one process: what each holds of a global tensor, and the global tensor
// that what they hold stands for.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "daemon/tensor/tensor.h"
#include "planner/dtensor_spec.h"

namespace meshloom::test {

/// The local tensor of the rank at `coordinates`; Partial values are made so that no rank's share
/// is the whole.
Tensor local_value(const planner::DTensorSpec& spec, const std::vector<int>& coordinates,
                   const Tensor& global);

/// What one tensor per rank stands for under `spec`, as doubles in row-major order. Fails where
/// ranks that must agree differ by more than `tolerance`, or where a shape is not the spec's.
testing::AssertionResult assemble(const planner::DTensorSpec& spec,
                                  const std::vector<Tensor>& locals, double tolerance,
                                  std::vector<double>& global);

/// The spec with Partial replaced by Replicate.
planner::SpecPtr without_partial(const planner::SpecPtr& spec);

}  // namespace meshloom::test
