// SPDX-License-Identifier: Apache-2.0
// Local tensors of a layout made from global values, element by element, and checked against them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "daemon/dtensor/device_mesh.h"
#include "daemon/tensor/tensor.h"
#include "planner/dtensor_spec.h"

namespace meshloom::test {

using planner::Placement;
using planner::Placements;
using planner::SpecPtr;

inline SpecPtr make_spec(const dtensor::DeviceMesh& mesh, const std::vector<const char*>& texts,
                         const Shape& shape, planner::ShardOrder order = {},
                         std::vector<planner::DimOrderPtr> dim_orders = {}) {
  Placements placements;
  for (const char* text : texts) placements.push_back(planner::parse_placement(text));
  return std::make_shared<const planner::DTensorSpec>(mesh.layout(), placements, shape,
                                                      std::move(order), std::move(dim_orders));
}

/// Row-major global indices of what the rank at `coordinates` holds, in its order.
inline std::vector<std::int64_t> held_indices(const planner::DTensorSpec& spec,
                                              const std::vector<int>& coordinates) {
  return planner::global_indices(spec.local_part(coordinates), spec.shape());
}

/// A small number that tells elements apart and is exact in bfloat16.
inline double value_at(std::int64_t index) { return static_cast<double>((index * 7 + 3) % 61); }

/// What a rank holds where the tensor's value at an index is value_at(index): sum: rank i of n has
/// (i + 1) of 2 / (n (n + 1)) parts times that denominator, so that all numbers stay whole and the
/// whole is `partial_factor` times the value.
inline double held_value(const planner::DTensorSpec& spec, const std::vector<int>& coordinates,
                         std::int64_t index) {
  double value = value_at(index);
  for (int d = 0; d < spec.mesh().ndim(); ++d) {
    if (!spec.placement(d).is_partial()) continue;
    const int i = coordinates[static_cast<std::size_t>(d)];
    const bool holds = index % spec.mesh().dim_size(d) == i;
    switch (spec.placement(d).partial) {
      case planner::PartialOp::kSum:
      case planner::PartialOp::kAvg: value *= i + 1; break;
      case planner::PartialOp::kMax: value -= holds ? 0 : 1; break;
      case planner::PartialOp::kMin: value += holds ? 0 : 1; break;
    }
  }
  return value;
}

/// The global value over value_at, from the Partial placements of the layout the values were made
/// in.
inline double partial_factor(const planner::DTensorSpec& spec) {
  double factor = 1.0;
  for (int d = 0; d < spec.mesh().ndim(); ++d) {
    const int n = spec.mesh().dim_size(d);
    if (!spec.placement(d).is_partial()) continue;
    if (spec.placement(d).partial == planner::PartialOp::kSum) factor *= n * (n + 1) / 2.0;
    if (spec.placement(d).partial == planner::PartialOp::kAvg) factor *= (n + 1) / 2.0;
  }
  return factor;
}

inline Tensor make_local(ExecutionContext& context, const planner::DTensorSpec& spec,
                         const std::vector<int>& coordinates, DType dtype = DType::kFloat32) {
  std::vector<double> values;
  for (const std::int64_t index : held_indices(spec, coordinates))
    values.push_back(held_value(spec, coordinates, index));
  const Tensor local = empty(context, spec.local_shape(coordinates), dtype);
  copy_into(local, from_values(context, spec.local_shape(coordinates), values, DType::kFloat64));
  return local;
}

/// `local` holds factor * value_at of what a layout without Partial gives this rank.
inline void expect_local(const Tensor& local, const planner::DTensorSpec& spec,
                         const std::vector<int>& coordinates, double factor = 1.0) {
  ASSERT_EQ(local.shape(), spec.local_shape(coordinates)) << to_string(spec);
  const std::vector<double> seen = local.to_vector();
  const std::vector<std::int64_t> indices = held_indices(spec, coordinates);
  ASSERT_EQ(seen.size(), indices.size());
  for (std::size_t i = 0; i < seen.size(); ++i)
    ASSERT_EQ(seen[i], factor * value_at(indices[i]))
        << to_string(spec) << " element " << i << " of global index " << indices[i];
}

}  // namespace meshloom::test
