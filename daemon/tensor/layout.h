// SPDX-License-Identifier: Apache-2.0
// The layout step of an op: where a tensor of many ranks becomes one local op.
//
// A tensor with a layout has the global shape and a local tensor. An op that is given one hands
// itself to the layout engine, which redistributes the inputs, runs the same op on the local
// tensors and gives the results a layout. Gradients are recorded by the local ops and by the
// redistributions between them, so backward knows nothing of layouts.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "daemon/tensor/local_call.h"
#include "daemon/tensor/tensor.h"

namespace meshloom {

class LayoutEngine;

/// SharedCopy is a redistributed copy of a tensor (or the tensor itself behind a node that reduces
/// its gradient) that later uses with the same needs take too. Its node is held weakly: it lives as
/// long as the graph that was recorded with it. Its memory is held, so that all ranks find it or
/// none.
struct SharedCopy {
  planner::SpecPtr spec;               ///< of the copy
  planner::SpecPtr grad_of;            ///< how the gradient of the copy is held
  std::weak_ptr<autograd::Node> node;  ///< that made it, or the tensor if nothing was to be done
  int output_index = 0;
  std::shared_ptr<Storage> storage;
  std::int64_t offset = 0;
  Shape shape;
  Strides strides;
  const void* frame = nullptr;  ///< the activation checkpoint that it was recorded in
};

/// A tensor with a layout carries this (TensorImpl::layout). The tensor's own storage is empty.
struct TensorLayout {
  planner::SpecPtr spec;
  /// The gradient of this tensor is held in this layout. Null: the spec with Partial replaced by
  /// Replicate. A leaf may hold Partial where the spec says Replicate. A parallel plan sets this
  /// for every parameter that it lays out, before any use. A leaf that comes without it gets that
  /// of its recorded uses, which must agree (hold_gradient).
  planner::SpecPtr grad_spec;
  bool grad_spec_of_uses = false;  ///< grad_spec is not from a plan
  LayoutEngine* engine = nullptr;  ///< outlives the tensor
  Tensor local;
  std::vector<SharedCopy> copies;  ///< kept by the engine
};

/// It is implemented in daemon/dtensor. One per rank and mesh.
class LayoutEngine {
 public:
  virtual ~LayoutEngine() = default;
  /// Chooses layouts, redistributes, runs `local` (or, if the layouts give mesh dims a role, the
  /// op's registered distributed implementation, which gets `options`) and wraps the results. An
  /// input without a layout counts as replicated if it has one element, else InvalidArgument names
  /// the op. Every rank of the mesh calls it with the same global arguments.
  virtual std::vector<Tensor> run(planner::OpId op, std::span<const Tensor* const> inputs,
                                  const planner::OpAttributes& attributes, OpOptions options,
                                  const LocalOp& local) = 0;
  /// Returns the engine's own object for an equal spec: equal layouts are found by pointer.
  virtual planner::SpecPtr intern(const planner::SpecPtr& spec) = 0;
  /// Returns the spec with Partial replaced by Replicate.
  virtual planner::SpecPtr gradient_of(const planner::SpecPtr& spec) = 0;
  /// Returns x, a tensor of this engine, in layout `to` (any object that equals it); no gradient is
  /// recorded.
  virtual Tensor redistribute(const Tensor& x, const planner::SpecPtr& to) = 0;
};

/// Returns a tensor with layout `spec` (interned by the engine) whose shard on this rank is
/// `local`; it requires a gradient if `local` does. The local shape is not checked.
Tensor with_layout(Tensor local, const planner::SpecPtr& spec, LayoutEngine& engine);
/// Makes a tensor as with_layout does, of a spec that is the engine's own object already.
Tensor with_interned_layout(Tensor local, planner::SpecPtr spec, LayoutEngine& engine);
/// Returns the layout in which the gradient of a tensor with a layout is held.
planner::SpecPtr gradient_spec(const Tensor& x);
/// Returns the layout in which the gradient of a leaf is held. The leaf is used with its gradient
/// recorded, and this use gives it in `of_use`. Throws FailedPrecondition naming both if no plan
/// has set it and uses before this one gave another: which it is must not depend on their order.
const planner::SpecPtr& hold_gradient(TensorLayout& leaf, const planner::SpecPtr& of_use);
/// Returns the local tensor of one with a layout, else the tensor itself.
inline const Tensor& local_of(const Tensor& x) { return x.has_layout() ? x.layout()->local : x; }

/// Returns the engine of the first input with a layout, or null: the one branch that a plain op
/// pays.
inline LayoutEngine* layout_engine(std::initializer_list<const Tensor*> inputs) {
  for (const Tensor* t : inputs)
    if (t->has_layout()) [[unlikely]]
      return t->layout()->engine;
  return nullptr;
}

/// Runs an op of one result: `local(call)` makes it if the same op on local tensors is enough.
template <typename Op>
Tensor run_call(LayoutEngine& engine, planner::OpId op, std::initializer_list<const Tensor*> inputs,
                const planner::OpAttributes& attributes, OpOptions options, const Op& local) {
  const auto one = [&local](const LocalCall& call) {
    std::vector<Tensor> results;
    results.push_back(local(call));
    return results;
  };
  return std::move(engine.run(op, std::span<const Tensor* const>(inputs.begin(), inputs.size()),
                              attributes, options, one)[0]);
}

/// Runs an op that has no options.
template <typename Op>
Tensor run_call(LayoutEngine& engine, planner::OpId op, std::initializer_list<const Tensor*> inputs,
                const planner::OpAttributes& attributes, const Op& local) {
  return run_call(engine, op, inputs, attributes, {}, local);
}

/// Runs an op whose local op needs the local tensors alone: `local(inputs...)`.
template <typename Op, typename... Inputs>
Tensor run_local(LayoutEngine& engine, planner::OpId op, const planner::OpAttributes& attributes,
                 const Op& local, const Inputs&... inputs) {
  return run_call(engine, op, {&inputs...}, attributes, [&local](const LocalCall& call) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) { return local(call.inputs[I]...); }
    (std::index_sequence_for<Inputs...>());
  });
}

}  // namespace meshloom
