// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/layout_pass.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

const std::vector<int> kFirstRank = {0};

/// How a gradient is held unless something else is said: whole if the value is Partial.
SpecPtr gradient_of(const SpecPtr& spec) {
  if (!spec->has_partial()) return spec;
  return std::make_shared<const DTensorSpec>(spec->mesh_ptr(), Placements(1), spec->shape());
}

std::optional<CollectiveKind> kind_of(const RedistributeStep& step) {
  switch (step.kind) {
    case StepKind::kAllReduce: return CollectiveKind::kAllReduce;
    case StepKind::kReduceScatter: return CollectiveKind::kReduceScatter;
    case StepKind::kAllGather: return CollectiveKind::kAllGather;
    case StepKind::kAllToAll: return CollectiveKind::kAllToAll;
    case StepKind::kSendRecv:
      throw Unimplemented(fmt::format("plan.styles: {} is not estimated", step.to_string()));
    default: return std::nullopt;
  }
}

}  // namespace

std::string to_string(const TensorLabel& label) {
  return label.parameter.empty() ? label.module : label.module + "." + label.parameter;
}

SpecPtr LayoutPass::whole(const Shape& shape) const {
  return std::make_shared<const DTensorSpec>(dims_.mesh(), Placements(1), shape);
}

PassTensorPtr LayoutPass::made(const SpecPtr& spec, const SpecPtr& grad, const TensorLabel& label) {
  auto tensor = std::make_shared<PassTensor>(PassTensor{
      .spec = spec, .grad = grad, .local = spec->local_shape(kFirstRank), .label = label});
  tensor->storage = new_storage(tensor->local);
  return tensor;
}

int LayoutPass::new_storage(const Shape& local) {
  storages_.push_back(numel(local));
  return static_cast<int>(storages_.size()) - 1;
}

PassTensorPtr LayoutPass::input(const SpecPtr& spec, const TensorLabel& label, bool recorded) {
  PassTensorPtr tensor = made(spec, gradient_of(spec), label);
  tensor->recorded = recorded;
  return tensor;
}

PassTensorPtr LayoutPass::parameter(const SpecPtr& spec, bool summands, const TensorLabel& label) {
  SpecPtr grad = gradient_of(spec);
  if (summands && spec->replicated())
    grad = std::make_shared<const DTensorSpec>(
        spec->mesh_ptr(), Placements{Placement::partial_of(PartialOp::kSum)}, spec->shape());
  PassTensorPtr tensor = made(spec, grad, label);
  tensor->leaf = true;
  return tensor;
}

bool LayoutPass::move(const SpecPtr& from, const SpecPtr& to, const TensorLabel& label,
                      bool backward, bool unshared) {
  if (from == to || *from == *to) return false;
  bool sent = false;
  for (const RedistributeStep& step : plans_.plan(from, to).steps) {
    const std::optional<CollectiveKind> kind = kind_of(step);
    if (!kind) continue;
    sent = true;
    PassCollective c{.kind = *kind, .backward = backward, .unshared = unshared, .label = label};
    c.elements = numel(to->shape());
    switch (*kind) {
      case CollectiveKind::kAllReduce:
        c.own = shard_range(c.elements, dims_.parts(), 0).size();
        break;
      case CollectiveKind::kReduceScatter: c.own = numel(step.to->local_shape(kFirstRank)); break;
      case CollectiveKind::kAllGather: c.own = numel(step.from->local_shape(kFirstRank)); break;
      case CollectiveKind::kAllToAll: {
        // What rank 0 holds before it and not after it.
        const LocalPart before = step.from->local_part(kFirstRank);
        c.own = numel(before.shape()) -
                count_elements(common_boxes(before, step.to->local_part(kFirstRank)));
        break;
      }
    }
    note(std::move(c));
  }
  return sent;
}

PlacedInput LayoutPass::place(PassTensor& tensor, const SpecPtr& to, const SpecPtr& grad) {
  const bool identity = *tensor.spec == *to;
  if (identity && (!tensor.recorded || *tensor.grad == *grad))
    return {tensor.local, tensor.storage};
  const Shape local = to->local_shape(kFirstRank);
  for (const PassTensor::Copy& copy : tensor.copies) {
    if (*copy.spec != *to || *copy.grad != *grad) continue;
    move(tensor.spec, to, tensor.label, false, true);
    return {local, copy.storage};
  }
  // A part of what the rank holds is read where it lies, but for parameters.
  const bool received = move(tensor.spec, to, tensor.label, false);
  const bool own = !identity && (received || tensor.leaf);
  PlacedInput placed{local, own ? new_storage(local) : tensor.storage, !identity, false};
  if (!tensor.recorded) return placed;
  placed.summed = move(grad, tensor.grad, tensor.label, true);
  // Copies of parameters that were moved are not kept: they would live as long as these.
  if (!tensor.leaf || identity) tensor.copies.push_back({to, grad, placed.storage});
  return placed;
}

PassResult LayoutPass::run(OpId op, const std::vector<PassTensorPtr>& inputs,
                           const OpAttributes& attributes, const TensorLabel& outputs) {
  OpCall call{op, {}, attributes, implemented_roles(op)};
  for (const PassTensorPtr& x : inputs) {
    if (x && !x->spec)
      throw Unimplemented(
          fmt::format("plan.styles: {} of a plain local tensor, {}, is not estimated; leave "
                      "use_local_output out",
                      op_name(op), to_string(x->label)));
    call.inputs.push_back(x ? x->spec : nullptr);
  }
  PassResult result{
      .outputs = {}, .inputs = {}, .decision = propagate(call, plans_.options(), &plans_)};
  const ShardingDecision& decision = result.decision;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    result.inputs.push_back(
        inputs[i] ? place(*inputs[i], decision.inputs[i], decision.input_grads[i]) : PlacedInput{});
  const bool recorded =
      std::any_of(inputs.begin(), inputs.end(), [](const auto& x) { return x && x->recorded; });
  for (const SpecPtr& spec : decision.outputs) {
    result.outputs.push_back(made(spec, gradient_of(spec), outputs));
    result.outputs.back()->recorded = recorded;
  }
  return result;
}

PassTensorPtr LayoutPass::apply(const ArgumentRule& rule, const PassTensorPtr& tensor) {
  PassTensorPtr x = tensor;
  if (!x) return x;
  if (!x->spec) {
    if (!rule.given) return x;
    const SpecPtr spec = given_spec(rule, x->local, dims_);
    const bool recorded = x->recorded;
    x = made(spec, gradient_of(spec), x->label);
    x->recorded = recorded;
  }
  if (rule.desired) {
    const SpecPtr to = desired_spec(rule, x->spec, dims_);
    if (*to != *x->spec) {
      const SpecPtr gathered =
          rule.partial_grad && !rule.to_local ? gathered_gradient(x->spec, to) : nullptr;
      const SpecPtr grad = gathered ? gathered : gradient_of(to);
      PassTensorPtr moved = made(to, grad, x->label);
      if (!move(x->spec, to, x->label, false)) moved->storage = x->storage;
      moved->recorded = x->recorded;
      if (x->recorded) move(grad, x->grad, x->label, true);
      x = std::move(moved);
    }
  }
  if (!rule.to_local) return x;
  if (x->recorded) move(gradient_of(x->spec), x->grad, x->label, true);
  auto plain = std::make_shared<PassTensor>(*x);
  plain->spec = plain->grad = nullptr;
  plain->copies.clear();
  return plain;
}

}  // namespace meshloom::planner
