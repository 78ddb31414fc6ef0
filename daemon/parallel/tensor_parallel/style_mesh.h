// SPDX-License-Identifier: Apache-2.0
// StyleMesh: the engine of the mesh that styles act on, and the dims of it.
#pragma once

#include <string>

#include "daemon/dtensor/distributed_engine.h"
#include "planner/plan/style_dims.h"

namespace meshloom::parallel {

/// The engine outlives the modules that were given styles.
struct StyleMesh {
  /// Styles act along all dims of the mesh.
  explicit StyleMesh(dtensor::DistributedEngine& layouts)
      : engine(layouts), dims(layouts.context().mesh.layout()) {}
  /// Styles act along the dim of this name.
  StyleMesh(dtensor::DistributedEngine& layouts, const std::string& dim)
      : engine(layouts), dims(layouts.context().mesh.layout(), dim) {}

  dtensor::DeviceMesh& mesh() const { return engine.context().mesh; }
  const planner::MeshPtr& layout() const { return mesh().layout(); }

  dtensor::DistributedEngine& engine;
  planner::StyleDims dims;
};

}  // namespace meshloom::parallel
