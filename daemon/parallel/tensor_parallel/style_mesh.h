// SPDX-License-Identifier: Apache-2.0
// StyleMesh: what styles need of the mesh they act on, and the three steps they are made of.
#pragma once

#include "daemon/dtensor/redistribute.h"
#include "daemon/tensor/layout.h"

namespace meshloom::parallel {

/// All that is referred to outlives the modules that were given styles.
struct StyleMesh {
  LayoutEngine& engine;
  dtensor::MeshContext context;

  const planner::MeshPtr& layout() const { return context.mesh.layout(); }
  int ndim() const { return layout()->ndim(); }
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
