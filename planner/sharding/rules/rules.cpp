// SPDX-License-Identifier: Apache-2.0
#include "planner/sharding/rules/rules.h"

namespace meshloom::planner {
namespace rules {

const Shape& shape_of(const OpCall& call, int input) {
  require(call, has_input(call, input), "input {} is missing", input);
  return call.inputs[static_cast<std::size_t>(input)]->shape();
}

bool has_input(const OpCall& call, int input) {
  return input < static_cast<int>(call.inputs.size()) &&
         call.inputs[static_cast<std::size_t>(input)] != nullptr;
}

std::string describe_inputs(const OpCall& call) {
  std::string text;
  for (const SpecPtr& spec : call.inputs) {
    if (!text.empty()) text += ", ";
    text += spec ? fmt::format("{} {}", to_string(spec->shape()), to_string(*spec)) : "none";
  }
  return text;
}

void refuse(const OpCall& call, const std::string& what) {
  throw InvalidArgument(
      fmt::format("{}: {}; inputs {}", op_name(call.op), what, describe_inputs(call)));
}

int dim_attribute(const OpCall& call, std::int64_t dim, int ndim) {
  require(call, dim >= 0 && dim < ndim, "dim {} of a tensor with {} dims", dim, ndim);
  return static_cast<int>(dim);
}

ShardAxis& add_axis(OpRule& rule, std::int64_t size, std::initializer_list<int> inputs,
                    std::initializer_list<int> outputs) {
  ShardAxis& axis = rule.axes.emplace_back();
  axis.size = size;
  for (const int dim : inputs) axis.inputs.push_back({dim});
  for (const int dim : outputs) axis.outputs.push_back({dim});
  return axis;
}

void pass_partial(OpRule& rule, const OpCall& call, std::initializer_list<PartialOp> ops) {
  for (const PartialOp op : ops) {
    const Placement partial = Placement::partial_of(op);
    rule.partials.push_back(
        {Placements(call.inputs.size(), partial), Placements(rule.outputs.size(), partial), {}});
  }
}

PartialStrategy& add_partial(OpRule& rule, const OpCall& call, std::initializer_list<int> inputs,
                             PartialOp op) {
  PartialStrategy strategy;
  strategy.inputs.resize(call.inputs.size());
  for (const int input : inputs)
    strategy.inputs[static_cast<std::size_t>(input)] = Placement::partial_of(op);
  strategy.outputs.assign(rule.outputs.size(), Placement::partial_of(op));
  return rule.partials.emplace_back(std::move(strategy));
}

}  // namespace rules

namespace {

template <typename UsesOf>
int same_dim(const OpRule& rule, std::size_t source, int dim, std::size_t index,
             const UsesOf& uses_of) {
  for (const ShardAxis& axis : rule.axes) {
    const AxisUse &from = axis.inputs[source], &to = uses_of(axis)[index];
    if (from.dim == dim && from.shows_axis() && to.shows_axis() && from.prefix == to.prefix &&
        from.suffix == to.suffix)
      return to.dim;
  }
  return -1;
}

}  // namespace

int same_dim_of_input(const OpRule& rule, std::size_t source, int dim, std::size_t index) {
  return same_dim(
      rule, source, dim, index, [](const ShardAxis& a) -> const auto& { return a.inputs; });
}

int same_dim_of_output(const OpRule& rule, std::size_t source, int dim, std::size_t index) {
  return same_dim(
      rule, source, dim, index, [](const ShardAxis& a) -> const auto& { return a.outputs; });
}

OpRule make_rule(const OpCall& call) {
  switch (call.op) {
    case OpId::kUnaryLinear:
    case OpId::kUnary:
    case OpId::kAdd:
    case OpId::kMul:
    case OpId::kDiv:
    case OpId::kWhere:
    case OpId::kMaskedFill:
    case OpId::kDropout:
    case OpId::kSwiglu:
    case OpId::kTri: return rules::elementwise(call);
    case OpId::kSum:
    case OpId::kMean:
    case OpId::kAmax:
    case OpId::kVar: return rules::reduction(call);
    case OpId::kSoftmax:
    case OpId::kLogSoftmax:
    case OpId::kNorm:
    case OpId::kAddNorm: return rules::rows(call);
    case OpId::kMatmul:
    case OpId::kBmm:
    case OpId::kAddmm:
    case OpId::kLinear: return rules::matrices(call);
    case OpId::kEmbedding:
    case OpId::kCrossEntropy:
    case OpId::kLinearCrossEntropy: return rules::vocabulary(call);
    case OpId::kAttention:
    case OpId::kAttentionRows:
    case OpId::kRope: return rules::attention(call);
    case OpId::kTranspose:
    case OpId::kPermute:
    case OpId::kUnsqueeze:
    case OpId::kSqueeze:
    case OpId::kExpand:
    case OpId::kContiguous: return rules::views(call);
    case OpId::kReshape: return rules::reshape(call);
    case OpId::kSlice:
    case OpId::kSplit:
    case OpId::kCat: return rules::pieces(call);
  }
  throw InternalError(fmt::format("op {} has no sharding rule", static_cast<int>(call.op)));
}

}  // namespace meshloom::planner
