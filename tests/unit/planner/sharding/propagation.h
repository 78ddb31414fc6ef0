// SPDX-License-Identifier: Apache-2.0
// Layouts by their texts, and calls that must run in them as they are.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "planner/sharding/propagate.h"

namespace meshloom::planner::testing {

inline MeshPtr make_mesh(std::vector<int> sizes) {
  std::vector<MeshDim> dims;
  for (const int size : sizes) dims.push_back({"", size});
  return std::make_shared<MeshLayout>(dims);
}

inline Placements parse(std::vector<std::string> texts) {
  Placements placements;
  for (const std::string& text : texts) placements.push_back(parse_placement(text));
  return placements;
}

/// `first` is the order of mesh dim 0.
inline SpecPtr spec(const MeshPtr& mesh, Shape shape, std::vector<std::string> placements,
                    DimOrderPtr first = nullptr) {
  std::vector<DimOrderPtr> orders;
  if (first != nullptr) {
    orders.resize(placements.size());
    orders[0] = std::move(first);
  }
  return std::make_shared<DTensorSpec>(mesh, parse(placements), shape, ShardOrder{}, orders);
}

/// Propagates and expects that nothing is redistributed.
inline ShardingDecision free_of_messages(const OpCall& call) {
  ShardingDecision decision = propagate(call);
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    EXPECT_EQ(decision.inputs[i], call.inputs[i])
        << op_name(call.op) << " input " << i << ": " << to_string(*call.inputs[i]) << " -> "
        << to_string(*decision.inputs[i]);
  EXPECT_EQ(decision.cost, 0.0);
  return decision;
}

}  // namespace meshloom::planner::testing
