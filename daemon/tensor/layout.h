// SPDX-License-Identifier: Apache-2.0
// The layout step of an op: where a tensor of many ranks becomes one local op.
//
// A tensor with a layout has the global shape and a local tensor. An op that is given one hands
// itself to the layout engine, which redistributes the inputs, runs the same op on the local
// tensors and gives the results a layout. Gradients are recorded by the local ops and by the
// redistributions between them, so backward knows nothing of layouts.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "daemon/tensor/tensor.h"
#include "planner/sharding/propagate.h"

namespace meshloom {

class LayoutEngine;

/// What a tensor with a layout carries (TensorImpl::layout). The tensor's own storage is empty.
struct TensorLayout {
  planner::SpecPtr spec;
  /// How the gradient of this tensor is held: the spec's with Partial replaced by Replicate; a leaf
  /// may hold Partial where the spec says Replicate.
  planner::SpecPtr grad_spec;
  LayoutEngine* engine = nullptr;  ///< outlives the tensor
  Tensor local;
};

/// What a local run is given. `decision` is null where no input has a layout.
struct LocalCall {
  std::span<const Tensor> inputs;  ///< undefined where left out
  const planner::OpAttributes& attributes;
  const planner::ShardingDecision& decision;
  LayoutEngine& engine;
};
using LocalOp = std::function<std::vector<Tensor>(const LocalCall&)>;

/// Implemented in daemon/dtensor. One per rank and mesh.
class LayoutEngine {
 public:
  virtual ~LayoutEngine() = default;
  /// Chooses layouts, redistributes, runs `local` and wraps its results. An input without a layout
  /// counts as replicated where it has one element, else InvalidArgument names the op.
  virtual std::vector<Tensor> run(planner::OpId op, std::span<const Tensor* const> inputs,
                                  const planner::OpAttributes& attributes,
                                  const LocalOp& local) = 0;
};

/// The engine of the first input with a layout, or null: the one branch that a plain op pays.
LayoutEngine* layout_engine(std::initializer_list<const Tensor*> inputs);

}  // namespace meshloom
