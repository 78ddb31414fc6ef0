// SPDX-License-Identifier: Apache-2.0
// StyleDims: the dims of a mesh that styles act along.
#pragma once

#include <string>
#include <vector>

#include "planner/dtensor_spec.h"
#include "planner/placement.h"

namespace meshloom::parallel {

/// Along the other dims of the mesh parameters are the same, and tensors stay as they are.
class StyleDims {
 public:
  /// All dims of the mesh.
  StyleDims(planner::MeshPtr mesh);  // NOLINT: a mesh stands for all of its dims
  /// The dim of this name. Throws InvalidArgument, naming those that there are, if there is none.
  StyleDims(planner::MeshPtr mesh, const std::string& name);

  const planner::MeshPtr& mesh() const { return mesh_; }
  /// Ascending.
  const std::vector<int>& acting() const { return acting_; }
  int count() const { return static_cast<int>(acting_.size()); }
  /// Of the parts that a tensor has if it is sharded along all of them.
  int parts() const;

  /// One placement per mesh dim: `along`, which has one per acting dim, and on the other dims those
  /// of `elsewhere` (one per mesh dim; empty: replicated).
  planner::Placements on_mesh(const planner::Placements& along,
                              const planner::Placements& elsewhere = {}) const;

 private:
  planner::MeshPtr mesh_;
  std::vector<int> acting_;
};

}  // namespace meshloom::parallel
