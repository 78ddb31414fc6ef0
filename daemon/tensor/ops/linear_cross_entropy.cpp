// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/ops/loss.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;

constexpr const char* kName = "linear_cross_entropy";

void check_arguments(const Tensor& hidden, const Tensor& weight, const Tensor& bias,
                     const Tensor& targets, std::int64_t ignore_index) {
  check_floating(kName, hidden);
  check_same_dtype(kName, hidden, weight);
  check_dtype(kName, "targets", targets, DType::kInt64);
  check(hidden.ndim() >= 1 && weight.ndim() == 2 && hidden.size(-1) == weight.size(1),
        "{}: hidden of shape {} does not fit weight {}", kName, to_string(hidden.shape()),
        to_string(weight.shape()));
  Shape expected = hidden.shape();
  expected.erase(expected.size() - 1);
  check(targets.shape() == expected, "{}: targets of shape {} for hidden {}", kName,
        to_string(targets.shape()), to_string(hidden.shape()));
  if (bias) {
    check_same_dtype(kName, hidden, bias);
    check(bias.ndim() == 1 && bias.size(0) == weight.size(0), "{}: bias of shape {}, expected [{}]",
          kName, to_string(bias.shape()), weight.size(0));
  }
  check_indices(kName, "target", targets, weight.size(0), ignore_index);
}

/// A leaf's own gradient buffer, written by the forward call.
struct ForwardGrad {
  autograd::LeafGrad* leaf = nullptr;

  explicit ForwardGrad(const Tensor& param) {
    if (!param.requires_grad()) return;
    check(param.is_leaf(), "{}: weight and bias must be leaves while gradients are recorded",
          kName);
    leaf = param.leaf_grad().get();
  }
  TensorView view() const { return leaf ? leaf->buffer().view() : TensorView{}; }
  bool holds_value() const { return leaf && leaf->has_value(); }
  void clear(ExecutionContext& context) const {
    if (!leaf || leaf->has_value()) return;
    context.backend().fill(context.kernel_context(), view(), 0.0);
  }
  void done() const {
    if (leaf) leaf->mark_written();
  }
};

void check_unit_gradient(const Tensor& grad) {
  if (grad.item() != 1.0)
    throw FailedPrecondition(
        fmt::format("{}: backward got the gradient {}, expected 1: use grad_scale to scale", kName,
                    grad.item()));
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& hidden_given, const Tensor& weight, const Tensor& bias,
                            const Tensor& targets_given, const LinearCrossEntropyOptions& options) {
  check_arguments(hidden_given, weight, bias, targets_given, options.ignore_index);
  const Tensor hidden = contiguous(hidden_given);
  const Tensor targets = contiguous(targets_given);
  ExecutionContext& context = hidden.context();
  const bool recording = autograd::should_record({&hidden, &weight, &bias});

  const Tensor losses = empty(context, {targets.numel()}, DType::kFloat32);
  Tensor dhidden = recording && hidden.requires_grad() ? empty_like(hidden) : Tensor();
  const ForwardGrad dweight(recording ? weight : Tensor());
  const ForwardGrad dbias(recording ? bias : Tensor());
  const bool accumulate = dweight.holds_value() || dbias.holds_value();
  if (accumulate) {
    dweight.clear(context);
    dbias.clear(context);
  }
  kernels::CrossEntropyOptions kernel_options;
  kernel_options.ignore_index = options.ignore_index;
  kernel_options.grad_scale = options.grad_scale;
  TensorView flat_targets = targets.view();
  flat_targets.shape = {targets.numel()};
  flat_targets.strides = {1};
  context.backend().linear_cross_entropy(
      context.kernel_context(), losses.view(), dhidden ? rows_view(dhidden) : TensorView{},
      dweight.view(), dbias.view(), rows_view(hidden), weight.view(), bias.view(), flat_targets,
      kernel_options, accumulate);
  dweight.done();
  dbias.done();
  Tensor y = sum(losses, {}, true);
  context.backend().unary(context.kernel_context(), kernels::UnaryOp::kMul, y.view(), y.view(),
                          options.grad_scale);

  if (recording) {
    // The leaves have their gradients already; their edges make the ready hooks wait for backward.
    auto backward = [dhidden](GradOutputs dy, GradSink& sink) {
      check_unit_gradient(dy[0]);
      if (dhidden) sink.emit(0, dhidden);
    };
    autograd::record_op(kName, {&hidden, &weight, &bias}, {&y}, std::move(backward));
  }
  return y;
}

}  // namespace meshloom::ops
