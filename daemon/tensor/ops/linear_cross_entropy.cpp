// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/class_slice.h"
#include "daemon/tensor/ops/distributed_ops.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/loss.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/output_loss.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "planner/sharding/op_call.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;

constexpr const char* kCrossEntropy = "linear_cross_entropy";

/// [1, n] of a dense tensor.
TensorView as_row(const Tensor& x) { return alias(x, {1, x.numel()}, {x.numel(), 1}).view(); }

/// Where the forward call writes a parameter's gradient: a leaf's own buffer, or a tensor that
/// backward hands on.
struct ForwardGrad {
  autograd::LeafGrad* leaf = nullptr;
  Tensor own;

  explicit ForwardGrad(const Tensor& param) {
    if (!param.requires_grad()) return;
    if (param.is_leaf())
      leaf = param.leaf_grad().get();
    else
      own = empty(param.context(), param.shape(), accumulation_dtype(param.dtype()));
  }
  TensorView view() const { return leaf ? leaf->buffer().view() : own.view(); }
  bool holds_value() const { return leaf && leaf->has_value(); }
  void clear(ExecutionContext& context) const {
    if (!view().defined() || holds_value()) return;
    context.backend().fill(context.kernel_context(), view(), 0.0);
  }
  void done() const {
    if (leaf) leaf->mark_written();
  }
};

void check_unit_gradient(const Tensor& grad) {
  check_value(grad, 1.0, [grad] {
    if (grad.item() != 1.0)
      throw FailedPrecondition(
          fmt::format("{}: backward got the gradient {}, expected 1: use grad_scale to scale",
                      kCrossEntropy, grad.item()));
  });
}

/// `row_weights`: undefined for 1.
WeightedLoss run(const Tensor& hidden_given, const Tensor& weight, const Tensor& bias,
                 ClassTargets targets, const Tensor& row_weights, double grad_scale) {
  const Tensor hidden = contiguous(hidden_given);
  ExecutionContext& context = hidden.context();
  const bool recording = autograd::should_record({&hidden, &weight, &bias});

  const std::int64_t rows = targets.places.numel();
  const Tensor losses = empty(context, {rows}, accumulation_dtype(hidden.dtype()));
  const Tensor weights =
      row_weights ? alias(contiguous(row_weights.detach()), {rows}, {1}) : Tensor();
  Tensor dhidden = recording && hidden.requires_grad() ? empty_like(hidden) : Tensor();
  const ForwardGrad dweight(recording ? weight : Tensor());
  const ForwardGrad dbias(recording ? bias : Tensor());
  const bool accumulate = dweight.holds_value() || dbias.holds_value();
  if (accumulate) {
    dweight.clear(context);
    dbias.clear(context);
  }
  targets.options.grad_scale = grad_scale;
  run_output_loss(context, {.losses = as_row(losses),
                            .dhidden = dhidden ? rows_view(dhidden) : TensorView{},
                            .dweight = dweight.view(),
                            .dbias = dbias.view(),
                            .hidden = rows_view(hidden),
                            .weight = weight.view(),
                            .bias = bias.view(),
                            .targets = as_row(targets.places),
                            .row_weights = weights ? weights.view() : TensorView{},
                            .options = targets.options,
                            .accumulate = accumulate,
                            .exchange = targets.exchange ? &*targets.exchange : nullptr});
  dweight.done();
  dbias.done();
  Tensor y = sum(weights ? mul(losses, weights) : losses, {}, true);
  context.backend().unary(context.kernel_context(), kernels::UnaryOp::kMul, y.view(), y.view(),
                          grad_scale);

  if (recording) {
    // The leaves have their gradients already; their edges make the ready hooks wait for backward.
    auto backward = [dhidden, dweight = dweight.own, dbias = dbias.own, dtype = weight.dtype()](
                        GradOutputs dy, GradSink& sink) {
      check_unit_gradient(dy[0]);
      if (dhidden) sink.emit(0, dhidden);
      if (dweight) sink.emit(1, converted(dweight, dtype));
      if (dbias) sink.emit(2, converted(dbias, dtype));
    };
    autograd::record_op(kCrossEntropy, {&hidden, &weight, &bias}, {&y}, std::move(backward));
  }
  return {y, alias(losses, targets.places.shape(), targets.places.strides())};
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                            const Tensor& targets, const LinearCrossEntropyOptions& options) {
  check_output_loss(kCrossEntropy, hidden, weight, bias, targets, false);
  if (LayoutEngine* engine = layout_engine({&hidden, &weight, &bias, &targets}))
    return run_call(
        *engine, planner::OpId::kLinearCrossEntropy, {&hidden, &weight, &bias, &targets}, {},
        OpOptions(options), [&](const LocalCall& c) {
          return linear_cross_entropy(c.inputs[0], c.inputs[1], c.inputs[2], c.inputs[3], options);
        });
  return run(hidden, weight, bias,
             whole_targets(kCrossEntropy, targets, weight.size(0), options.ignore_index), {},
             options.grad_scale)
      .sum;
}

WeightedLoss weighted_linear_cross_entropy(const Tensor& hidden, const Tensor& weight,
                                           const Tensor& bias, const Tensor& targets,
                                           const Tensor& row_weights,
                                           const LinearCrossEntropyOptions& options) {
  check_output_loss(kCrossEntropy, hidden, weight, bias, targets, false);
  check_dtype(kCrossEntropy, "row weights", row_weights, accumulation_dtype(hidden.dtype()));
  check(row_weights.shape() == targets.shape(), "{}: row weights of shape {} for targets {}",
        kCrossEntropy, row_weights.shape(), targets.shape());
  LayoutEngine* engine = layout_engine({&hidden, &weight, &bias, &targets, &row_weights});
  if (!engine)
    return run(hidden, weight, bias,
               whole_targets(kCrossEntropy, targets, weight.size(0), options.ignore_index),
               row_weights, options.grad_scale);
  const std::array<const Tensor*, 5> inputs = {&hidden, &weight, &bias, &targets, &row_weights};
  std::vector<Tensor> results =
      engine->run(planner::OpId::kLinearCrossEntropy, inputs, {{}, {planner::kWeightedSum}},
                  OpOptions(options), [&](const LocalCall& c) -> std::vector<Tensor> {
                    WeightedLoss loss = weighted_linear_cross_entropy(
                        c.inputs[0], c.inputs[1], c.inputs[2], c.inputs[3], c.inputs[4], options);
                    return {std::move(loss.sum), std::move(loss.losses)};
                  });
  return {std::move(results[0]), std::move(results[1])};
}

std::vector<Tensor> linear_cross_entropy_by_vocabulary(const LocalCall& call) {
  if (call.attributes.ints[0] == planner::kTokenLosses)
    return {linear_token_losses_by_vocabulary(call)};
  const auto& options = call.options.as<LinearCrossEntropyOptions>();
  const bool weighted = call.attributes.ints[0] == planner::kWeightedSum;
  WeightedLoss loss =
      run(call.inputs[0], call.inputs[1], call.inputs[2],
          slice_targets(kCrossEntropy, call, call.inputs[3], 1, 0, options.ignore_index),
          weighted ? call.inputs[4] : Tensor(), options.grad_scale);
  if (!weighted) return {std::move(loss.sum)};
  return {std::move(loss.sum), std::move(loss.losses)};
}

}  // namespace meshloom::ops
