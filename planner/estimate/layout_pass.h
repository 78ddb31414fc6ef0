// SPDX-License-Identifier: Apache-2.0
// LayoutPass: runs ops and styles on layouts alone, as the layout engine runs them on tensors, and
// notes every collective that this takes, forward and backward.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planner/estimate/collective_bytes.h"
#include "planner/plan/argument_rule.h"
#include "planner/redistribute/planner.h"
#include "planner/sharding/propagate.h"

namespace meshloom::planner {

/// What a tensor is, for reports: "outputs" of "attention", or one of no part of a layer.
struct TensorLabel {
  std::string part = {};
  std::string name = {};

  bool operator==(const TensorLabel&) const = default;
};

/// One collective of a pass.
struct PassCollective {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  bool backward = false;
  /// A forward that records no gradient takes it once more: uses of a tensor do not share then.
  bool unshared = false;
  TensorLabel label = {};
  std::int64_t elements = 0;       ///< of the whole tensor
  std::int64_t own = 0;            ///< of this rank's part; of an all_to_all what goes to others
  std::int64_t element_bytes = 0;  ///< 0: of the plan's dtype
};

/// A tensor of a pass, by the layouts of its value and its gradient.
struct PassTensor {
  SpecPtr spec;  ///< null: a plain local tensor
  SpecPtr grad;
  Shape local = {};  ///< on rank 0
  TensorLabel label = {};
  bool recorded = true;  ///< whether it has a gradient
  bool leaf = false;
  bool received = false;  ///< made by a message, so that who keeps it keeps memory
  struct Copy {
    SpecPtr spec, grad;
  };
  std::vector<Copy> copies = {};  ///< that uses of the tensor share

  std::int64_t elements() const { return numel(local); }
};
using PassTensorPtr = std::shared_ptr<PassTensor>;

/// An input as an op takes it.
struct PlacedInput {
  Shape local = {};
  bool received = false;  ///< brought into its layout by a message, which no other use did before
  bool copied = false;    ///< brought into its layout at all
  bool summed = false;    ///< its gradient is brought into another layout
};

struct PassResult {
  std::vector<PassTensorPtr> outputs;
  std::vector<PlacedInput> inputs;
  ShardingDecision decision;
};

class LayoutPass {
 public:
  explicit LayoutPass(MeshPtr mesh) : dims_(std::move(mesh)) {}

  const StyleDims& dims() const { return dims_; }
  SpecPtr whole(const Shape& shape) const;
  /// A tensor that is there before the pass.
  PassTensorPtr input(const SpecPtr& spec, const TensorLabel& label, bool recorded) const;
  /// `summands`: its gradient is held as summands if it is whole.
  PassTensorPtr parameter(const SpecPtr& spec, bool summands, const TensorLabel& label) const;

  /// Inputs that are left out are null. Throws Unimplemented for a plain input.
  PassResult run(OpId op, const std::vector<PassTensorPtr>& inputs, const OpAttributes& attributes,
                 const std::vector<TensorLabel>& outputs);
  /// What a style does to a tensor that goes into a module or comes out. `tensor` may be null.
  PassTensorPtr apply(const ArgumentRule& rule, const PassTensorPtr& tensor);

  void note(PassCollective collective) { collectives_.push_back(std::move(collective)); }
  /// Takes the collectives that were noted since the last call, in order.
  std::vector<PassCollective> take() { return std::exchange(collectives_, {}); }

 private:
  PlacedInput place(PassTensor& tensor, const SpecPtr& to, const SpecPtr& grad);
  /// Whether a message is needed.
  bool move(const SpecPtr& from, const SpecPtr& to, const TensorLabel& label, bool backward,
            bool unshared = false);
  PassTensorPtr made(const SpecPtr& spec, const SpecPtr& grad, const TensorLabel& label) const;

  StyleDims dims_;
  PlanCache plans_;
  std::vector<PassCollective> collectives_;
};

}  // namespace meshloom::planner
