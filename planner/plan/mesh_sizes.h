// SPDX-License-Identifier: Apache-2.0
// MeshSizes: how many ranks each dim of a run's mesh has.
#pragma once

#include <cstdint>
#include <string>

#include "planner/mesh_layout.h"

namespace meshloom::planner {

/// The sizes are outermost first: tp neighbours are neighbours in rank.
struct MeshSizes {
  int dp = 1;
  int fsdp = 1;
  int cp = 1;
  int tp = 1;

  std::int64_t ranks() const { return std::int64_t{dp} * fsdp * cp * tp; }
  /// Returns over how many ranks fully_shard shards parameters: fsdp and cp as one dim; 1 without
  /// fsdp.
  int parameter_shards() const { return fsdp > 1 ? fsdp * cp : 1; }
  /// Returns how many ranks hold copies of what a rank holds of the parameters: dp, and without
  /// fsdp those of cp.
  int parameter_copies() const { return fsdp > 1 ? dp : dp * cp; }
  bool operator==(const MeshSizes&) const = default;
};

/// Returns "dp=2,tp=2"; dims of size 1 are left out, "1 rank" if all are.
std::string to_string(const MeshSizes& mesh);
/// Returns all four dims by name.
MeshLayout mesh_layout(const MeshSizes& mesh);

}  // namespace meshloom::planner
