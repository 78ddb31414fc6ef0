// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/distributed_engine.h"

#include <algorithm>
#include <array>

#include "daemon/dtensor/outside_mesh.h"
#include "daemon/tensor/autograd/node.h"
#include "daemon/tensor/ops/distributed_ops.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

/// Room for the inputs of most ops; only joins of many tensors need more.
constexpr std::size_t kFewInputs = 8;

template <typename T>
class InputList {
 public:
  explicit InputList(std::size_t size)
      : many_(size > kFewInputs ? size : 0),
        items_(size > kFewInputs ? many_.data() : few_.data(), size) {}
  T& operator[](std::size_t i) { return items_[i]; }
  std::span<const T> span() const { return items_; }

 private:
  std::array<T, kFewInputs> few_{};
  std::vector<T> many_;
  std::span<T> items_;
};

void note_redistributions(Decided& decided, planner::PlanCache& plans) {
  for (std::size_t i = 0; i < decided.uses.size(); ++i) {
    const RedistributeSpecs& use = decided.uses[i];
    if (use.from == use.to) continue;
    const auto& steps = plans.plan(use.from, use.to).steps;
    const bool sends = std::any_of(steps.begin(), steps.end(),
                                   [](const auto& step) { return !planner::is_local(step.kind); });
    (sends ? decided.moved : decided.sharded).push_back(static_cast<int>(i));
  }
}

bool gone(const SharedCopy& copy) {
  const std::shared_ptr<autograd::Node> node = copy.node.lock();
  return !node || node->released();
}

bool is_identity(const RedistributeSpecs& use) { return use.from == use.to; }

/// The copy of the tensor for a use with these needs, if an op that was recorded with it is still
/// part of a graph that was not run backward; else undefined. All ranks find one or none does.
Tensor find_copy(TensorLayout& layout, const RedistributeSpecs& use) {
  if (layout.copies.empty()) return {};
  ExecutionContext& context = layout.local.context();
  for (const SharedCopy& c : layout.copies) {
    // The two runs of an activation checkpoint have graphs of their own.
    if (c.spec != use.to || c.grad_of != use.grad_of_to || c.frame != context.checkpoint_frame())
      continue;
    std::shared_ptr<autograd::Node> node = c.node.lock();
    if (!node || node->released()) continue;
    auto impl = std::make_shared<TensorImpl>();
    impl->context = &context;
    impl->storage = c.storage;
    impl->offset = c.offset;
    impl->shape = c.shape;
    impl->strides = c.strides;
    impl->dtype = layout.local.dtype();
    impl->requires_grad = true;
    impl->grad_fn = std::move(node);
    impl->output_index = c.output_index;
    if (is_identity(use)) impl->recompute = layout.local.impl()->recompute;
    return Tensor(std::move(impl));
  }
  return {};
}

/// Notes `copy`, the result of the node that made it from the tensor, for later uses: identities,
/// and copies of what is no leaf. An identity takes over the tensor's recipe
/// (TensorImpl::recompute).
void keep_copy(TensorLayout& layout, const Tensor& copy, const RedistributeSpecs& use) {
  if (is_identity(use)) copy.impl()->recompute = layout.local.impl()->recompute;
  std::erase_if(layout.copies, gone);
  // A parameter lives for ever, and a gathered copy of it would too.
  if (!copy.grad_fn() || (layout.local.is_leaf() && !is_identity(use))) return;
  layout.copies.push_back({use.to, use.grad_of_to, copy.grad_fn(), copy.impl()->output_index,
                           copy.storage(), copy.storage_offset(), copy.shape(), copy.strides(),
                           layout.local.context().checkpoint_frame()});
}

}  // namespace

DistributedEngine::DistributedEngine(const MeshContext& context)
    : context_(context), specs_(context.mesh.layout()), collectives_(context.mesh) {
  for (const DistributedOp& implementation : ops::distributed_ops())
    register_implementation(implementation);
}

void DistributedEngine::register_implementation(const DistributedOp& implementation) {
  implementations_.insert_or_assign(implementation.op, implementation);
  decisions_.clear();
}

const DistributedOp* DistributedEngine::implementation_of(planner::OpId op) const {
  const auto found = implementations_.find(op);
  return found == implementations_.end() ? nullptr : &found->second;
}

void DistributedEngine::remove_implementation(planner::OpId op) {
  implementations_.erase(op);
  decisions_.clear();
}

const planner::DTensorSpec* DistributedEngine::spec_of(planner::OpId op, const Tensor& input) {
  if (!input) return nullptr;
  if (input.has_layout()) {
    const TensorLayout& layout = *input.layout();
    check(layout.engine == this, "{}: an input with layout {} is on another mesh than {}",
          op_name(op), *layout.spec, *context_.mesh.layout());
    return layout.spec.get();
  }
  check(implicit_replication_ || input.numel() == 1,
        "{}: an input of shape {} has no layout while another one has; distribute it, or allow "
        "implicit replication",
        op_name(op), input.shape());
  return specs_.replicated(input.shape()).get();
}

const Decided& DistributedEngine::decide(planner::OpId op, DecisionCache::Specs specs,
                                         const planner::OpAttributes& attributes) {
  if (const Decided* known = decisions_.find(op, specs, attributes)) [[likely]]
    return *known;
  const auto implementation = implementations_.find(op);
  const bool implemented = implementation != implementations_.end();
  planner::OpCall call{
      op, {}, attributes, implemented ? implementation->second.roles : planner::RoleSet()};
  for (const planner::DTensorSpec* spec : specs)
    call.inputs.push_back(spec ? specs_.find(spec) : nullptr);
  if (decisions_.size() >= kMostDecisions) {
    decisions_.clear();
    specs_.forget_unused();
  }
  auto decided = std::make_unique<Decided>();
  decided->op = op;
  decided->attributes = attributes;
  planner::ShardingDecision& decision = decided->decision;
  decision = planner::propagate(call, context_.plans.options(), &context_.plans);
  const auto intern_all = [this](std::vector<planner::SpecPtr>& all) {
    for (planner::SpecPtr& s : all)
      if (s) s = specs_.intern(s);
  };
  intern_all(decision.inputs);
  intern_all(decision.input_grads);
  intern_all(decision.outputs);
  const std::vector<int>& coordinates = context_.mesh.coordinates();
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const planner::SpecPtr& from = call.inputs[i];
    decided->uses.push_back({from, decision.inputs[i], decision.input_grads[i],
                             from ? specs_.gradient_of(from) : nullptr});
    const bool here = from && context_.mesh.member();
    decided->parts.push_back(here ? decision.inputs[i]->local_part(coordinates)
                                  : planner::LocalPart{});
  }
  note_redistributions(*decided, context_.plans);
  for (const planner::SpecPtr& output : decision.outputs)
    decided->partial_outputs = decided->partial_outputs || (output && output->has_partial());
  if (!decision.roles.empty()) decided->implementation = &implementation->second;
  if (context_.mesh.member()) {
    decided->local_attributes = planner::local_attributes(call, decision, coordinates);
    // Groups are made by all ranks together, but a rank without rows may not use its own.
    if (decided->implementation && decided->implementation->communicates)
      for (const planner::RoleDims& role : decision.roles) context_.mesh.group(role.mesh_dims);
  }
  return decisions_.insert(std::move(decided));
}

void DistributedEngine::check_explicit(const Decided& decided) const {
  const bool free = redistributing_ == Redistributing::kWithoutMessages;
  for (const std::vector<int>* inputs : {&decided.moved, &decided.sharded}) {
    if (inputs->empty() || (free && inputs == &decided.sharded)) continue;
    const RedistributeSpecs& use = decided.uses[static_cast<std::size_t>(inputs->front())];
    throw FailedPrecondition(fmt::format(
        "{}: input {} of shape {} has layout {}, the op takes it in {}; redistribute it where "
        "redistribution is explicit",
        op_name(decided.op), inputs->front(), to_string(use.from->shape()), to_string(*use.from),
        to_string(*use.to)));
  }
}

Tensor DistributedEngine::place(const Tensor& input, const RedistributeSpecs& use) {
  if (!input) return input;
  const bool stays = use.from == use.to;
  if (!input.has_layout())
    return stays && use.grad_of_from == use.grad_of_to ? input
                                                       : redistribute_local(input, use, context_);
  TensorLayout& layout = *input.layout();
  const Tensor& local = layout.local;
  if (!local.requires_grad() || !local.context().grad_enabled())
    return stays ? local : redistribute_local(local, use, context_);
  const planner::SpecPtr& held =
      local.is_leaf() ? hold_gradient(layout, stays ? use.grad_of_to : use.grad_of_from)
                      : (layout.grad_spec ? layout.grad_spec : use.grad_of_from);
  if (stays && held == use.grad_of_to) return local;
  if (Tensor shared = find_copy(layout, use)) return shared;
  Tensor copy = redistribute_local(local, {use.from, use.to, use.grad_of_to, held}, context_);
  keep_copy(layout, copy, use);
  return copy;
}

std::vector<Tensor> DistributedEngine::run(planner::OpId op, std::span<const Tensor* const> inputs,
                                           const planner::OpAttributes& attributes,
                                           OpOptions options, const LocalOp& local) {
  InputList<const planner::DTensorSpec*> specs(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) specs[i] = spec_of(op, *inputs[i]);
  const Decided& decided = decide(op, specs.span(), attributes);

  if (redistributing_ != Redistributing::kFreely) [[unlikely]]
    check_explicit(decided);
  InputList<Tensor> locals(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) locals[i] = place(*inputs[i], decided.uses[i]);
  const auto& outputs = decided.decision.outputs;
  std::vector<Tensor> results;
  if (context_.mesh.member()) [[likely]] {
    const LocalCall call{locals.span(), decided.local_attributes,    options,     decided.decision,
                         decided.parts, context_.mesh.coordinates(), collectives_};
    const auto given = std::find_if(locals.span().begin(), locals.span().end(),
                                    [](const Tensor& tensor) { return tensor.defined(); });
    check_internal(given != locals.span().end(), "a distributed op without a tensor");
    ExecutionContext& context = given->context();
    const OutputMemory memory(
        context, decided.partial_outputs ? MemoryKind::kSymmetric : context.output_memory());
    results = decided.implementation ? decided.implementation->run(call) : local(call);
  } else {
    results = run_outside(op, attributes, locals.span(), outputs);
  }
  check_internal(results.size() == outputs.size(), "a local op gave another number of results");
  for (std::size_t i = 0; i < results.size(); ++i)
    results[i] = with_interned_layout(std::move(results[i]), outputs[i], *this);
  return results;
}

Tensor DistributedEngine::redistribute(const Tensor& x, const planner::SpecPtr& to) {
  const TensorLayout& layout = *x.layout();
  check_internal(layout.engine == this, "redistribute: a tensor of another engine");
  const NoGradGuard no_grad(x.context());
  planner::SpecPtr target = intern(to);
  Tensor local = redistribute_local(layout.local, {layout.spec, target}, context_);
  return with_interned_layout(std::move(local), std::move(target), *this);
}

}  // namespace meshloom::dtensor
