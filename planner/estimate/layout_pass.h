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

/// A label says what a tensor is, for reports.
struct TensorLabel {
  std::string module = {};     ///< that gives it; of a block's without the block's own name
  std::string parameter = {};  ///< of that module; "": what the module gives
  bool of_block = false;

  bool operator==(const TensorLabel&) const = default;
};
/// Returns "attn.c_proj", "transformer.wte.weight"
std::string to_string(const TensorLabel& label);

/// PassCollective is one collective of a pass.
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

/// PassTensor is a tensor of a pass, by the layouts of its value and its gradient.
struct PassTensor {
  SpecPtr spec;  ///< null: a plain local tensor
  SpecPtr grad;
  Shape local = {};  ///< on rank 0
  TensorLabel label = {};
  bool recorded = true;  ///< whether it has a gradient
  bool leaf = false;
  int storage = -1;  ///< its memory (LayoutPass::storages)
  struct Copy {
    SpecPtr spec, grad;
    int storage = -1;
  };
  std::vector<Copy> copies = {};  ///< that uses of the tensor share

  std::int64_t elements() const { return numel(local); }
};
using PassTensorPtr = std::shared_ptr<PassTensor>;

/// PlacedInput is an input as an op takes it.
struct PlacedInput {
  Shape local = {};
  int storage = -1;     ///< the memory that the op reads
  bool copied = false;  ///< brought into its layout, which no other use did before
  bool summed = false;  ///< its gradient is brought into another layout by a message
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
  /// Makes a tensor that is there before the pass.
  PassTensorPtr input(const SpecPtr& spec, const TensorLabel& label, bool recorded);
  /// Makes a parameter. `summands`: its gradient is held as summands if it is whole.
  PassTensorPtr parameter(const SpecPtr& spec, bool summands, const TensorLabel& label);

  /// Inputs that are left out are null. Throws Unimplemented for a plain input.
  PassResult run(OpId op, const std::vector<PassTensorPtr>& inputs, const OpAttributes& attributes,
                 const TensorLabel& outputs);
  /// Does what a style does to a tensor that goes into a module or comes out. `tensor` may be null.
  PassTensorPtr apply(const ArgumentRule& rule, const PassTensorPtr& tensor);

  /// Returns the elements of each piece of memory that a rank takes for tensors, the first rank's.
  const std::vector<std::int64_t>& storages() const { return storages_; }
  void note(PassCollective collective) { collectives_.push_back(std::move(collective)); }
  /// Takes the collectives that were noted since the last call, in order.
  std::vector<PassCollective> take() { return std::exchange(collectives_, {}); }

 private:
  PlacedInput place(PassTensor& tensor, const SpecPtr& to, const SpecPtr& grad);
  /// Returns whether a message is needed.
  bool move(const SpecPtr& from, const SpecPtr& to, const TensorLabel& label, bool backward,
            bool unshared = false);
  PassTensorPtr made(const SpecPtr& spec, const SpecPtr& grad, const TensorLabel& label);
  int new_storage(const Shape& local);

  StyleDims dims_;
  PlanCache plans_;
  std::vector<PassCollective> collectives_;
  std::vector<std::int64_t> storages_;
};

}  // namespace meshloom::planner
