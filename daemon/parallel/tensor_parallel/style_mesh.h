// SPDX-License-Identifier: Apache-2.0
// StyleMesh: what styles need of the mesh they act on, and the three steps they are made of.
#pragma once

#include "daemon/dtensor/redistribute.h"
#include "daemon/parallel/tensor_parallel/style_dims.h"
#include "daemon/tensor/layout.h"

namespace meshloom::parallel {

/// All that is referred to outlives the modules that were given styles.
struct StyleMesh {
  /// Styles act along all dims of the mesh.
  StyleMesh(LayoutEngine& layouts, const dtensor::MeshContext& mesh)
      : engine(layouts), context(mesh), dims(mesh.mesh.layout()) {}
  /// Styles act along the dim of this name.
  StyleMesh(LayoutEngine& layouts, const dtensor::MeshContext& mesh, const std::string& dim)
      : engine(layouts), context(mesh), dims(mesh.mesh.layout(), dim) {}

  LayoutEngine& engine;
  dtensor::MeshContext context;
  StyleDims dims;

  const planner::MeshPtr& layout() const { return context.mesh.layout(); }
};

/// A plain local tensor as this rank's part of one of layout `spec`. Gradients come back in that
/// layout, Partial replaced by Replicate. Throws InvalidArgument where the local shape does not
/// fit.
Tensor wrap_local(const Tensor& local, const planner::SpecPtr& spec, const StyleMesh& mesh);

/// The tensor in another layout. With `partial_grad`, where a shard is gathered the gradient of the
/// result may be held as summands, so that going back is one reduce_scatter.
Tensor change_layout(const Tensor& x, const planner::SpecPtr& to, bool partial_grad,
                     const StyleMesh& mesh);

/// This rank's local tensor; its gradient is taken to be held in the tensor's layout, Partial
/// replaced by Replicate.
Tensor unwrap_local(const Tensor& x, const StyleMesh& mesh);

}  // namespace meshloom::parallel
