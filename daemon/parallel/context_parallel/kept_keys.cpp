// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/kept_keys.h"

#include <algorithm>
#include <limits>

#include "daemon/parallel/context_parallel/sequence_plan.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/attention_part.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "planner/attention/mask.h"

namespace meshloom::parallel {
namespace {

using planner::IndexRanges;

/// Queries and keys of the layers of a pass, which may keep windows of their own.
constexpr std::size_t kMostPositions = 8;

/// o [B,H,n,Dv] and then lse [B,H,n] in one flat tensor, as they travel.
struct Partial {
  Tensor o, lse;

  Partial(const Tensor& flat, const Shape& shape)
      : o(ops::alias(flat, shape, contiguous_strides(shape))) {
    const Shape rows{shape[0], shape[1], shape[2]};
    lse = ops::alias(flat, rows, contiguous_strides(rows), meshloom::numel(shape));
  }
  static std::int64_t numel(const Shape& shape) {
    return meshloom::numel(shape) + shape[0] * shape[1] * shape[2];
  }
};

/// False if every query sees every key and nothing is drawn or added by position: then the kernel
/// need not know where they are, and one query takes the short way.
bool positions_matter(const kernels::AttentionOptions& options, const IndexRanges& queries,
                      const IndexRanges& keys) {
  if (options.dropout_p > 0.0f || options.alibi_slopes.defined()) return true;
  const planner::RowMask mask{
      {options.is_causal, options.query_offset, options.window_left, options.window_right},
      nullptr};
  return visible_area(mask, queries, keys) != total_size(queries) * total_size(keys);
}

/// Of this rank's keys.
void attend_to_own(const LocalCall& call, KeptPositions& positions, const Partial& result) {
  const Tensor q = ops::dense_rows(call.inputs[kQuery]);
  const Dims& place = call.attributes.dims;
  const auto read = [&](int input) {
    return ops::dense_rows(
        ops::heads_read(call.inputs[static_cast<std::size_t>(input)], q.size(1), place));
  };
  const Tensor k = read(kKey), v = read(kValue);
  ExecutionContext& context = q.context();
  ops::AttentionPart part(q, call.options.as<ops::SdpaOptions>(), place);
  const IndexRanges& queries = call.parts[kQuery].ranges(kSequenceDim);
  const IndexRanges& keys = call.parts[kKey].ranges(kSequenceDim);
  Tensor of_queries, of_keys;
  if (positions_matter(part.options, queries, keys)) {
    of_queries = positions.of(context, queries);
    of_keys = positions.of(context, keys);
    part.options.query_positions = of_queries.view();
    part.options.key_positions = of_keys.view();
  } else {
    part.options.is_causal = false;
    part.options.window_left = part.options.window_right = -1;
  }
  context.backend().attention(context.kernel_context(), {result.o.view(), result.lse.view(), false},
                              {q.view(), k.view(), v.view()}, part.options);
}

/// One query of each row, which sees all of this rank's keys of its row, if there are any.
void attend_to_own_rows(const LocalCall& call, const Partial& result) {
  const Tensor q = ops::dense_rows(call.inputs[kQuery]);
  ExecutionContext& context = q.context();
  const double scale = call.options.as<ops::SdpaOptions>().scale;
  std::vector<Tensor> keys;  // and values
  for (std::size_t i = 1; i < call.inputs.size(); ++i)
    keys.push_back(
        ops::dense_rows(ops::heads_read(call.inputs[i], q.size(1), call.attributes.dims)));
  const auto has_keys = [&](std::int64_t row) {
    return keys[static_cast<std::size_t>(2 * row)].size(kSequenceDim) > 0;
  };
  for (std::int64_t begin = 0, end = 0; begin < q.size(0); begin = end) {
    std::vector<kernels::AttentionMemory> memories;
    for (end = begin; end < q.size(0) && has_keys(end) == has_keys(begin); ++end) {
      const auto key = static_cast<std::size_t>(2 * end);
      memories.push_back({keys[key].view(), keys[key + 1].view()});
    }
    const auto rows = [&](const Tensor& x) { return ops::slice(x, 0, begin, end); };
    const Tensor o = rows(result.o), lse = rows(result.lse);
    if (has_keys(begin)) {
      context.backend().attention_rows(context.kernel_context(), {o.view(), lse.view(), false},
                                       rows(q).view(), memories, scale);
    } else {
      context.backend().fill(context.kernel_context(), o.view(), 0.0);
      context.backend().fill(context.kernel_context(), lse.view(),
                             -std::numeric_limits<double>::infinity());
    }
  }
}

/// Merges the results of all ranks, one of which is a row of `all`.
ops::SdpaResult merge(const Tensor& all, const Shape& shape) {
  const std::int64_t ranks = all.size(0), next = all.size(1);
  const std::int64_t rows = shape[0] * shape[1] * shape[2], dims = shape[3];
  const Partial first(all, shape);
  const Tensor o = ops::alias(first.o, {ranks, rows, dims}, {next, dims, 1});
  const Tensor lse = ops::alias(first.lse, {ranks, rows}, {next, 1});
  const Tensor top = ops::amax(lse, {0});
  // -inf, of a query that no rank has a key for, minus itself is NaN, which is true.
  const Tensor sees_nothing = ops::cast(ops::sub(top, top), DType::kBool);
  const Tensor base = ops::masked_fill(top, sees_nothing, 0.0);
  const Tensor weights = ops::exp(ops::sub(lse, base));
  const Tensor sum = ops::sum(weights, {0});
  const Tensor shares = ops::div(weights, ops::masked_fill(sum, sees_nothing, 1.0));
  const Tensor merged = ops::sum(ops::mul(o, ops::unsqueeze(shares, 2)), {0});
  return {ops::reshape(merged, shape),
          ops::reshape(ops::add(base, ops::log(sum)), {shape[0], shape[1], shape[2]})};
}

/// This rank's result of q [B,H,n,D], which `attend` writes, merged with those of the others.
template <typename Attend>
ops::SdpaResult attend_and_merge(const LocalCall& call, const Attend& attend) {
  const Tensor& q = call.inputs[kQuery];
  const Shape shape{q.size(0), q.size(1), q.size(2), call.inputs[kValue].size(3)};
  const std::vector<int> mesh_dims = call.decision.mesh_dims(planner::MeshRole::kKeys);
  const Tensor flat =
      empty(q.context(), {Partial::numel(shape)}, DType::kFloat32, MemoryKind::kSymmetric);
  if (flat.numel() > 0) attend(Partial(flat, shape));
  const Tensor all = call.collectives.all_gather(flat, mesh_dims)->wait();
  ops::SdpaResult merged = merge(all, shape);
  merged.o = ops::converted(merged.o, q.dtype());
  return merged;
}

}  // namespace

Tensor KeptPositions::of(ExecutionContext& context, const IndexRanges& ranges) {
  const auto known = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.ranges == ranges; });
  if (known != entries_.end()) return known->positions;
  const std::vector<std::int64_t> positions = elements(ranges);
  if (entries_.size() == kMostPositions) entries_.erase(entries_.begin());
  entries_.push_back({ranges, from_values(context, {static_cast<std::int64_t>(positions.size())},
                                          std::span<const std::int64_t>(positions))});
  return entries_.back().positions;
}

std::vector<Tensor> attend_to_kept_keys(const LocalCall& call, KeptPositions& positions) {
  ops::SdpaResult result = attend_and_merge(
      call, [&](const Partial& partial) { attend_to_own(call, positions, partial); });
  return {std::move(result.o), std::move(result.lse)};
}

std::vector<Tensor> attend_rows_to_kept_keys(const LocalCall& call) {
  return {
      attend_and_merge(call, [&](const Partial& partial) { attend_to_own_rows(call, partial); }).o};
}

}  // namespace meshloom::parallel
