// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/loss.h"

#include <algorithm>

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/class_slice.h"
#include "daemon/tensor/ops/distributed_ops.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;

/// logits [rows, V], targets [rows] -> losses [rows]. `exchange`: V is a slice of the classes.
Tensor kernel_losses(const Tensor& logits, const Tensor& targets,
                     const kernels::CrossEntropyOptions& options, const SliceExchange* exchange) {
  ExecutionContext& context = logits.context();
  Tensor losses = empty(context, targets.shape(), accumulation_dtype(logits.dtype()));
  const Tensor lse = empty_like(losses);
  const kernels::CrossEntropyRows rows{logits.view(), targets.view(), losses.view(), lse.view()};
  context.backend().cross_entropy(context.kernel_context(), rows, options);
  if (exchange) exchange->begin(losses.view(), lse.view(), targets.view()).finish();

  if (autograd::should_record({&logits})) {
    auto backward = [=, logits = logits.detach()](GradOutputs grads, GradSink& sink) {
      const Tensor dlosses = contiguous(grads[0]);
      Tensor dlogits = empty_like(logits);
      ExecutionContext& c = logits.context();
      const kernels::CrossEntropyRows saved{logits.view(), targets.view(), {}, lse.view()};
      c.backend().cross_entropy_backward(c.kernel_context(), dlogits.view(), dlosses.view(), saved,
                                         options);
      sink.emit(0, std::move(dlogits));
    };
    autograd::record_op("cross_entropy", {&logits}, {&losses}, std::move(backward));
  }
  return losses;
}

/// [N,V,d..] -> [N,d..,V] -> [rows, V]; [V] -> [1, V].
Tensor class_dim_last(const Tensor& logits) {
  if (logits.ndim() == 1) return contiguous(unsqueeze(logits, 0));
  Dims order{0};
  for (int i = 2; i < logits.ndim(); ++i) order.push_back(i);
  order.push_back(1);
  const Tensor permuted = logits.ndim() == 2 ? logits : permute(logits, order);
  return contiguous(reshape(permuted, rows_shape(permuted.shape())));
}

void check_shapes(const Tensor& logits, const Tensor& targets) {
  check(logits.ndim() >= 1, "cross_entropy: logits of shape {}, expected [V], [N,V] or [N,V,d..]",
        logits.shape());
  Shape expected = logits.shape();
  expected.erase(logits.ndim() == 1 ? 0 : 1);
  check(targets.shape() == expected,
        "cross_entropy: targets of shape {} for logits {}, expected {}", targets.shape(),
        logits.shape(), expected);
}

/// One factor per row, from targets as they were given (those of this rank); 0 if it is ignored.
Tensor row_weights(const Tensor& targets, DType dtype, const CrossEntropyOptions& options) {
  const Tensor of_class = contiguous(cast(local_of(options.class_weights).detach(), dtype));
  const Tensor places = slice_places(targets, {{0, of_class.numel()}}, options.ignore_index);
  ExecutionContext& context = targets.context();
  Tensor of_row = empty(context, {targets.numel()}, dtype);
  context.backend().embedding(context.kernel_context(),
                              alias(of_row, {targets.numel(), 1}, {1, 1}).view(),
                              alias(of_class, {of_class.numel(), 1}, {1, 1}).view(),
                              alias(places, {targets.numel()}, {1}).view());
  return of_row;
}

void check_class_weights(const CrossEntropyOptions& options, std::int64_t classes) {
  const Tensor& weights = options.class_weights;
  if (!weights) return;
  check_floating("cross_entropy", weights);
  check(weights.shape() == Shape{classes},
        "cross_entropy: class weights of shape {} for {} classes", weights.shape(), classes);
  check(!weights.has_layout() || weights.layout()->spec->replicated(),
        "cross_entropy: class weights in layout {}, expected a replicated or plain tensor",
        weights.has_layout() ? planner::to_string(*weights.layout()->spec) : "");
  if (options.label_smoothing != 0.0)
    throw Unimplemented("cross_entropy: class weights together with label smoothing");
}

/// The losses of a rank's rows as they count.
struct Rows {
  Tensor losses;
  Tensor weights;  ///< undefined: all alike
  Tensor places;   ///< of the targets, `ignored` for those that do not count
  std::int64_t ignored;

  /// What a mean of these rows is over: float64, a scalar.
  Tensor counted() const {
    if (weights) return converted(sum(weights), DType::kFloat64);
    ExecutionContext& context = places.context();
    const Tensor left_out = empty(context, {}, DType::kInt64);
    context.backend().count_ids(context.kernel_context(), alias(left_out, {1}, {1}).view(),
                                places.view(), ignored);
    return sub(static_cast<double>(places.numel()), converted(left_out, DType::kFloat64));
  }
};

/// x / count, by the product with 1 / count rounded to x's dtype, as div by a number.
Tensor div_by_count(const Tensor& x, const Tensor& count) {
  return mul(x, converted(div(1.0, count), x.dtype()));
}

Rows row_losses(const Tensor& logits, const Tensor& targets, ClassTargets known,
                const CrossEntropyOptions& options) {
  known.options.label_smoothing = options.label_smoothing;
  Rows rows{{}, {}, reshape(known.places, {targets.numel()}), known.options.ignore_index};
  rows.losses = kernel_losses(class_dim_last(logits), rows.places, known.options,
                              known.exchange ? &*known.exchange : nullptr);
  if (options.class_weights) {
    rows.weights = row_weights(targets, rows.losses.dtype(), options);
    rows.losses = mul(rows.losses, rows.weights);
  }
  return rows;
}

Tensor reduced(const Rows& rows, Reduction reduction, const Shape& shape) {
  switch (reduction) {
    case Reduction::kNone: return reshape(rows.losses, shape);
    case Reduction::kSum: return sum(rows.losses);
    case Reduction::kMean: break;
  }
  return div_by_count(sum(rows.losses), rows.counted());
}

/// The mean of rows that lie on several ranks: sums and counts are exchanged, and the gradient of
/// this rank's sum is the mean's over the number of all.
Tensor mean_over_ranks(const Rows& rows, const LocalCall& call) {
  const Tensor part = sum(rows.losses);
  ExecutionContext& context = part.context();
  const Tensor mine = empty(context, {2}, DType::kFloat64);
  copy_into(alias(mine, {}, {}), part.detach());
  copy_into(alias(mine, {}, {}, 1), rows.counted());
  const Tensor all =
      call.collectives.all_gather(mine, call.decision.mesh_dims(planner::MeshRole::kLabels))
          ->wait();
  // In rank order, so that every rank gets the same bits.
  Tensor both = zeros(context, {2}, DType::kFloat64);
  for (std::int64_t rank = 0; rank < all.size(0); ++rank)
    both = add(both, alias(all, {2}, {1}, 2 * rank));
  const Tensor total = alias(both, {}, {}), count = alias(both, {}, {}, 1);
  Tensor mean = converted(div(total, count), part.dtype());
  if (autograd::should_record({&part}))
    autograd::record_op(
        "cross_entropy mean", {&part}, {&mean},
        [count](GradOutputs dy, GradSink& sink) { sink.emit(0, div_by_count(dy[0], count)); });
  return mean;
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options) {
  check_floating("cross_entropy", logits);
  check_dtype("cross_entropy", "targets", targets, DType::kInt64);
  check_shapes(logits, targets);
  check(options.label_smoothing >= 0.0 && options.label_smoothing <= 1.0,
        "cross_entropy: label_smoothing is {}, expected [0, 1]", options.label_smoothing);
  const std::int64_t classes = logits.size(logits.ndim() == 1 ? 0 : 1);
  check_class_weights(options, classes);
  if (LayoutEngine* engine = layout_engine({&logits, &targets}))
    return run_call(
        *engine, planner::OpId::kCrossEntropy, {&logits, &targets},
        {{}, {static_cast<std::int64_t>(options.reduction)}}, OpOptions(options),
        [&](const LocalCall& c) { return cross_entropy(c.inputs[0], c.inputs[1], options); });
  const Rows rows =
      row_losses(logits, targets,
                 whole_targets("cross_entropy", targets, classes, options.ignore_index), options);
  return cast(reduced(rows, options.reduction, targets.shape()), logits.dtype());
}

std::vector<Tensor> cross_entropy_of_shards(const LocalCall& call) {
  const auto& options = call.options.as<CrossEntropyOptions>();
  const Tensor &logits = call.inputs[0], &targets = call.inputs[1];
  const int class_dim = logits.ndim() == 1 ? 0 : 1;
  const bool sliced = call.decision.has(planner::MeshRole::kVocabulary);
  const Rows rows = row_losses(
      logits, targets,
      sliced
          ? slice_targets("cross_entropy", call, targets, 0, class_dim, options.ignore_index)
          : whole_targets("cross_entropy", targets, logits.size(class_dim), options.ignore_index),
      options);
  const Tensor result = call.decision.has(planner::MeshRole::kLabels)
                            ? mean_over_ranks(rows, call)
                            : reduced(rows, options.reduction, targets.shape());
  return {cast(result, logits.dtype())};
}

}  // namespace meshloom::ops
