// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/class_slice.h"
#include "daemon/tensor/ops/distributed_ops.h"
#include "daemon/tensor/ops/loss.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/output_loss.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "planner/sharding/op_call.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;

constexpr const char* kTokenLosses = "linear_token_losses";

/// [.., K] of `rows` rows as [K, rows].
Tensor by_target(const Tensor& x, std::int64_t rows, std::int64_t targets) {
  return contiguous(transpose(alias(contiguous(x), {rows, targets}, {targets, 1}), 0, 1));
}

/// What backward needs.
struct SavedLosses {
  Tensor hidden, weight, bias;
  Tensor targets;  ///< [K, rows], places
  Tensor lse;      ///< [rows]
  kernels::CrossEntropyOptions options;

  void backward(const Tensor& dlosses, GradSink& sink) const {
    ExecutionContext& context = hidden.context();
    const Tensor grads = by_target(dlosses.detach(), targets.size(1), targets.size(0));
    Tensor dhidden = sink.wants(0) ? empty_like(hidden) : Tensor();
    ParamGrad dweight(sink, 1, weight), dbias(sink, 2, bias);
    const bool accumulate = common_accumulate(dweight, dbias);
    run_output_loss_backward(context, {.dhidden = dhidden ? rows_view(dhidden) : TensorView{},
                                       .dweight = dweight.view(),
                                       .dbias = dbias.view(),
                                       .loss_grads = grads.view(),
                                       .lse = lse.view(),
                                       .hidden = rows_view(hidden),
                                       .weight = weight.view(),
                                       .bias = bias.view(),
                                       .targets = targets.view(),
                                       .options = options,
                                       .accumulate = accumulate});
    if (dhidden) sink.emit(0, std::move(dhidden));
    dweight.finish();
    dbias.finish();
  }
};

Tensor run(const Tensor& hidden_given, const Tensor& weight, const Tensor& bias,
           const ClassTargets& targets) {
  const Tensor hidden = contiguous(hidden_given);
  ExecutionContext& context = hidden.context();
  const Shape shape = targets.places.shape();
  const std::int64_t rows = rows_shape(hidden.shape())[0];
  const std::int64_t count = targets.places.ndim() == hidden.ndim() ? shape.back() : 1;
  const Tensor places = by_target(targets.places, rows, count);
  const DType dtype = accumulation_dtype(hidden.dtype());
  const Tensor lse = empty(context, {rows}, dtype);
  const Tensor losses = empty(context, {count, rows}, dtype);
  run_output_loss(context, {.losses = losses.view(),
                            .lse = lse.view(),
                            .hidden = rows_view(hidden),
                            .weight = weight.view(),
                            .bias = bias.view(),
                            .targets = places.view(),
                            .options = targets.options,
                            .exchange = targets.exchange ? &*targets.exchange : nullptr});
  Tensor result = reshape(contiguous(transpose(losses, 0, 1)), shape);
  if (autograd::should_record({&hidden, &weight, &bias})) {
    const SavedLosses saved{hidden.detach(), weight, bias, places, lse, targets.options};
    autograd::record_op(
        kTokenLosses, {&hidden, &weight, &bias}, {&result},
        [saved](GradOutputs grads, GradSink& sink) { saved.backward(grads[0], sink); });
  }
  return result;
}

}  // namespace

Tensor linear_token_losses(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                           const Tensor& targets, std::int64_t ignore_index) {
  check_output_loss(kTokenLosses, hidden, weight, bias, targets, true);
  if (LayoutEngine* engine = layout_engine({&hidden, &weight, &bias, &targets}))
    return run_call(*engine, planner::OpId::kLinearCrossEntropy,
                    {&hidden, &weight, &bias, &targets}, {{}, {planner::kTokenLosses}},
                    OpOptions(ignore_index), [&](const LocalCall& c) {
                      return linear_token_losses(c.inputs[0], c.inputs[1], c.inputs[2], c.inputs[3],
                                                 ignore_index);
                    });
  return run(hidden, weight, bias,
             whole_targets(kTokenLosses, targets, weight.size(0), ignore_index));
}

Tensor linear_token_losses_by_vocabulary(const LocalCall& call) {
  const auto ignored = call.options.as<std::int64_t>();
  return run(call.inputs[0], call.inputs[1], call.inputs[2],
             slice_targets(kTokenLosses, call, call.inputs[3], 1, 0, ignored));
}

}  // namespace meshloom::ops
