// SPDX-License-Identifier: Apache-2.0
// StyleDims: the dims of a mesh that styles act along.
#pragma once

#include <string>
#include <vector>

#include "planner/dtensor_spec.h"
#include "planner/placement.h"

namespace meshloom::planner {

/// Along the other dims of the mesh parameters are the same, and tensors stay as they are.
class StyleDims {
 public:
  /// Takes all dims of the mesh.
  StyleDims(MeshPtr mesh);  // NOLINT: a mesh stands for all of its dims
  /// Takes the dim of this name. Throws InvalidArgument, naming those that there are, if there is
  /// none.
  StyleDims(MeshPtr mesh, const std::string& name);

  const MeshPtr& mesh() const { return mesh_; }
  /// Returns the acting dims, ascending.
  const std::vector<int>& acting() const { return acting_; }
  int count() const { return static_cast<int>(acting_.size()); }
  /// Returns how many parts a tensor has that is sharded along all acting dims.
  int parts() const;

  /// Returns one placement per mesh dim: `along`, which has one per acting dim, and on the other
  /// dims those of `elsewhere` (one per mesh dim; empty: replicated).
  Placements on_mesh(const Placements& along, const Placements& elsewhere = {}) const;

 private:
  MeshPtr mesh_;
  std::vector<int> acting_;
};

}  // namespace meshloom::planner
