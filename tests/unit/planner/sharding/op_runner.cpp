// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/planner/sharding/op_runner.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/embedding.h"
#include "daemon/tensor/ops/loss.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/norm.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "daemon/tensor/ops/softmax.h"
#include "kernels/base/error.h"
#include "planner/sharding/op_call.h"
#include "tests/unit/planner/sharding/simulated_ranks.h"

namespace meshloom::test {
namespace {

using planner::DTensorSpec;
using planner::MeshRole;
using planner::OpAttributes;
using planner::OpCall;
using planner::OpId;
using planner::ShardingDecision;

constexpr float kEps = 1e-5f;

/// A fixed pattern by global position, which is what dropout comes down to.
Tensor dropout_mask(ExecutionContext& context, const Shape& shape) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < numel(shape); ++i) values.push_back(i % 3 == 0 ? 0.0 : 1.5);
  return from_values(context, shape, values, DType::kFloat64);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, std::int64_t reduction) {
  ops::CrossEntropyOptions options;
  options.reduction = static_cast<ops::Reduction>(reduction);
  return ops::cross_entropy(logits, targets, options);
}

std::vector<Tensor> attention(const std::vector<Tensor>& x) {
  ops::SdpaOptions options;
  options.is_causal = true;
  options.enable_gqa = true;
  if (x.size() > 3) options.bias = x[3];
  if (x.size() > 4) options.document_ids = x[4];
  const ops::SdpaResult result = ops::scaled_dot_product_attention(x[0], x[1], x[2], options);
  return {result.o, result.lse};
}

Tensor attention_of_rows(const std::vector<Tensor>& x) {
  std::vector<ops::KeyValue> rows;
  for (std::size_t i = 1; i < x.size(); i += 2) rows.push_back({x[i], x[i + 1]});
  return ops::attention_of_rows(x[0], rows);
}

Tensor norm(const std::vector<Tensor>& x, std::int64_t row_dims) {
  return ops::layer_norm(x[0], x[1], x[2], kEps, static_cast<int>(row_dims));
}

/// The key heads that a rank's query heads need, one for each of them.
Tensor heads_for(const Tensor& k, std::int64_t first, std::int64_t count, std::int64_t group) {
  std::vector<Tensor> heads;
  for (std::int64_t h = first; h < first + count; ++h)
    heads.push_back(ops::slice(k, 1, h / group, h / group + 1));
  return heads.empty() ? ops::slice(k, 1, 0, 0) : ops::cat(heads, 1);
}

Tensor embedding_of_a_range(const DTensorSpec& weight_spec, const std::vector<int>& at,
                            const Tensor& weight, const Tensor& ids, std::int64_t padding) {
  const planner::LocalPart part = weight_spec.local_part(at);
  const std::int64_t begin = part.ranges(0).empty() ? 0 : part.ranges(0)[0].begin;
  const std::int64_t rows = weight.size(0);
  std::vector<std::int64_t> moved;
  std::vector<double> here;
  for (const double id : ids.to_vector()) {
    const auto row = static_cast<std::int64_t>(id) - begin;
    here.push_back(row >= 0 && row < rows ? 1.0 : 0.0);
    moved.push_back(here.back() != 0.0 ? row : 0);
  }
  Shape shape = ids.shape();
  shape.push_back(1);
  const Tensor mask = from_values(weight.context(), shape, here, DType::kFloat64);
  // A rank without rows has nothing to look up: it adds zeros.
  const Tensor table = rows > 0
                           ? weight
                           : ops::add(zeros(weight.context(), {1, weight.size(1)}, DType::kFloat64),
                                      ops::sum(weight, {0}, true));
  const std::int64_t local_padding = padding - begin;
  const Tensor rows_found = ops::embedding(
      table, from_values(weight.context(), ids.shape(), moved),
      padding >= 0 && local_padding >= 0 && local_padding < rows ? local_padding : -1);
  return ops::mul(rows_found, mask);
}

bool adds_bias(const ShardingDecision& decision, const std::vector<int>& at) {
  const std::vector<int>& dims = decision.mesh_dims(MeshRole::kBias);
  return std::all_of(dims.begin(), dims.end(),
                     [&](int m) { return at[static_cast<std::size_t>(m)] == 0; });
}

}  // namespace

std::vector<Tensor> losses_of_logits(const Tensor& logits, const Tensor& targets,
                                     const Tensor& weights, std::int64_t results) {
  const Tensor rows = ops::reshape(logits, {-1, logits.size(-1)});
  if (results == planner::kLossSum)
    return {ops::reshape(cross_entropy(rows, ops::reshape(targets, {-1}), 2), {1})};
  if (results == planner::kWeightedSum) {
    const Tensor losses =
        ops::reshape(cross_entropy(rows, ops::reshape(targets, {-1}), 0), targets.shape());
    return {ops::reshape(ops::sum(ops::mul(losses, weights)), {1}), losses};
  }
  const std::int64_t each = targets.ndim() == logits.ndim() ? targets.size(-1) : 1;
  const auto ids = targets.to_vector();
  std::vector<Tensor> of_target;
  for (std::int64_t k = 0; k < each; ++k) {
    std::vector<std::int64_t> own;
    for (std::size_t i = static_cast<std::size_t>(k); i < ids.size();
         i += static_cast<std::size_t>(each))
      own.push_back(static_cast<std::int64_t>(ids[i]));
    const Tensor places = from_values(logits.context(), {rows.size(0)}, own);
    of_target.push_back(ops::unsqueeze(cross_entropy(rows, places, 0), 1));
  }
  return {ops::reshape(ops::cat(of_target, 1), targets.shape())};
}

std::vector<Tensor> run_op(OpId op, const std::vector<Tensor>& x, const OpAttributes& attributes) {
  const auto& ints = attributes.ints;
  const Dims& dims = attributes.dims;
  switch (op) {
    case OpId::kUnaryLinear: return {ops::mul(x[0], -2.5)};
    case OpId::kUnary: return {ops::exp(x[0])};
    case OpId::kAdd: return {ops::sub(x[0], x[1])};
    case OpId::kMul: return {ops::mul(x[0], x[1])};
    case OpId::kDiv: return {ops::div(x[0], x[1])};
    case OpId::kWhere: return {ops::where(x[0], x[1], x[2])};
    case OpId::kMaskedFill: return {ops::masked_fill(x[0], x[1], kMaskedValue)};
    case OpId::kDropout: return {ops::mul(x[0], dropout_mask(x[0].context(), x[0].shape()))};
    case OpId::kSwiglu: return {ops::swiglu(x[0], x[1])};
    case OpId::kTri: return {ints[1] != 0 ? ops::triu(x[0], ints[0]) : ops::tril(x[0], ints[0])};
    case OpId::kSum: return {ops::sum(x[0], dims, ints[0] != 0)};
    case OpId::kMean: return {ops::mean(x[0], dims, ints[0] != 0)};
    case OpId::kAmax: return {ops::amax(x[0], dims, ints[0] != 0)};
    case OpId::kVar: return {ops::var(x[0], dims, 1.0, ints[0] != 0)};
    case OpId::kSoftmax: return {ops::softmax(x[0], ints[0])};
    case OpId::kLogSoftmax: return {ops::log_softmax(x[0], ints[0])};
    case OpId::kNorm: return {norm(x, ints[0])};
    case OpId::kAddNorm: {
      const ops::NormedSum result = ops::add_layer_norm(x[0], x[1], x[2], x[3], kEps);
      return {result.normed, result.sum};
    }
    case OpId::kMatmul: return {ops::matmul(x[0], x[1])};
    case OpId::kBmm: return {ops::bmm(x[0], x[1])};
    case OpId::kAddmm: return {ops::addmm(x[0], x[1], x[2])};
    case OpId::kLinear: {
      ops::LinearOptions options;
      options.weight_is_in_out = ints[0] != 0;
      return {ops::linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor(), options)};
    }
    case OpId::kEmbedding: return {ops::embedding(x[0], x[1], ints[0])};
    case OpId::kCrossEntropy: return {cross_entropy(x[0], x[1], ints[0])};
    case OpId::kLinearCrossEntropy:
      return losses_of_logits(ops::linear(x[0], x[1], x[2]), x[3], x.size() > 4 ? x[4] : Tensor(),
                              ints[0]);
    case OpId::kAttention: return attention(x);
    case OpId::kRope:
      return {
          ops::rope(x[0], x[1], x[2], x.size() > 3 ? x[3] : Tensor(), dims.empty() ? 0 : dims[0])};
    case OpId::kTranspose: return {ops::transpose(x[0], ints[0], ints[1])};
    case OpId::kPermute: return {ops::permute(x[0], dims)};
    case OpId::kReshape: return {ops::reshape(x[0], dims)};
    case OpId::kUnsqueeze: return {ops::unsqueeze(x[0], ints[0])};
    case OpId::kSqueeze: return {ops::squeeze(x[0], ints[0])};
    case OpId::kSlice: return {ops::slice(x[0], ints[0], ints[1], ints[2], ints[3])};
    case OpId::kSplit: return ops::split(x[0], ints[0], ints[1]);
    case OpId::kCat: return {ops::cat(x, ints[0])};
    case OpId::kExpand: return {ops::expand(x[0], dims)};
    case OpId::kContiguous: return {ops::contiguous(x[0])};
    case OpId::kAttentionRows: return {attention_of_rows(x)};
  }
  throw InternalError("unknown op");
}

std::vector<Tensor> run_local_op(const OpCall& call, const ShardingDecision& decision,
                                 const std::vector<int>& at, const std::vector<Tensor>& given) {
  const OpAttributes attributes = planner::local_attributes(call, decision, at);
  std::vector<Tensor> x = given;
  if (call.op == OpId::kDropout) {
    const Tensor whole = dropout_mask(x[0].context(), decision.inputs[0]->shape());
    return {ops::mul(x[0], local_value(*without_partial(decision.inputs[0]), at, whole))};
  }
  if (decision.has(MeshRole::kMean)) {
    // So many elements of the input go into one of the output.
    const std::int64_t count =
        numel(decision.inputs[0]->shape()) / numel(decision.outputs[0]->shape());
    return {ops::mul(run_op(OpId::kSum, x, attributes)[0], 1.0 / static_cast<double>(count))};
  }
  if (call.op == OpId::kLinear && !adds_bias(decision, at)) x.resize(2);
  if (call.op == OpId::kAddmm && !adds_bias(decision, at)) return {ops::matmul(x[1], x[2])};
  if (call.op == OpId::kEmbedding && decision.has(MeshRole::kVocabulary))
    return {embedding_of_a_range(*decision.inputs[0], at, x[0], x[1], attributes.ints[0])};
  if (call.op == OpId::kRope && x.size() == 3) {
    const planner::LocalPart part = decision.inputs[0]->local_part(at);
    // Rows that lie in the heads: batch and heads change places.
    const bool by_head = !part.is_product() && part.row_lists().back().dim == 2 &&
                         part.row_lists().back().row_dim == 1;
    const std::int64_t rows = part.shape()[by_head ? 1 : 0];
    std::vector<std::int64_t> positions;
    for (std::int64_t row = 0; row < rows; ++row)
      for (const planner::ShardRange& range : part.ranges_of_row(2, row))
        for (std::int64_t s = range.begin; s < range.end; ++s) positions.push_back(s);
    const bool one_range = part.contiguous() && !positions.empty();
    EXPECT_TRUE(!one_range || attributes.dims[0] == positions.front());
    x.push_back(from_values(x[0].context(), {rows, part.shape()[2]}, positions));
    if (by_head) {
      x[0] = ops::transpose(x[0], 0, 1);
      return {ops::transpose(run_op(call.op, x, attributes)[0], 0, 1)};
    }
  }
  // A rank without heads has nothing to attend with.
  const bool rows = call.op == OpId::kAttentionRows;
  if ((call.op == OpId::kAttention || rows) && x[0].size(1) == 0) {
    std::vector<Tensor> nothing{
        zeros(x[0].context(), decision.outputs[0]->local_shape(at), x[0].dtype())};
    if (!rows)
      nothing.push_back(
          zeros(x[0].context(), decision.outputs[1]->local_shape(at), DType::kFloat32));
    return nothing;
  }
  if ((call.op == OpId::kAttention || rows) && decision.inputs[1]->sharding_dims(1).empty()) {
    for (std::size_t i = 1; i < (rows ? x.size() : 3); ++i)
      x[i] = heads_for(x[i], attributes.dims[planner::kFirstHead], x[0].size(1),
                       attributes.dims[planner::kHeadGroup]);
  }
  std::vector<Tensor> results = run_op(call.op, x, attributes);
  while (call.op == OpId::kSplit && results.size() < decision.outputs.size())
    results.push_back(ops::slice(x[0], attributes.ints[1], 0, 0));
  return results;
}

}  // namespace meshloom::test
