// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;
using kernels::UnaryOp;

/// What backward needs. x is the pre-activation, [rows, in]; undefined if `recompute` makes it
/// again.
struct SavedLinear {
  Tensor x, weight, bias;
  LinearOptions options;
  std::function<Tensor()> recompute;

  Tensor input() const {
    if (!recompute) return x;
    const Tensor again = recompute();
    return alias(again, rows_shape(again.shape()), contiguous_strides(rows_shape(again.shape())));
  }

  TensorView weight_in_out() const {
    return options.weight_is_in_out ? weight.view() : transposed_matrix(weight.view());
  }
};

UnaryOp unary_of(Activation activation) {
  return activation == Activation::kGelu ? UnaryOp::kGelu : UnaryOp::kGeluTanh;
}

Tensor activated(const Tensor& x, Activation activation) {
  if (activation == Activation::kNone) return x;
  Tensor y = empty_like(x);
  ExecutionContext& context = x.context();
  context.backend().unary(context.kernel_context(), unary_of(activation), y.view(), x.view(), 0.0);
  return y;
}

Tensor input_grad(const SavedLinear& saved, const Tensor& dy) {
  ExecutionContext& context = dy.context();
  Tensor dx = empty(context, {dy.size(0), saved.weight_in_out().size(0)}, dy.dtype());
  context.backend().matmul(context.kernel_context(), dx.view(), dy.view(),
                           transposed_matrix(saved.weight_in_out()), {});
  if (saved.options.input_activation != Activation::kNone)
    context.backend().unary_backward(context.kernel_context(),
                                     unary_of(saved.options.input_activation), dx.view(), dx.view(),
                                     saved.x.view(), saved.x.view(), 0.0);
  return dx;
}

void weight_grad(const SavedLinear& saved, const Tensor& dy, GradSink& sink) {
  ParamGrad grad(sink, 1, saved.weight);
  if (!grad.wanted()) return;
  const Tensor x = activated(saved.input(), saved.options.input_activation);
  kernels::MatmulOptions options;
  options.beta = grad.accumulate() ? 1.0f : 0.0f;
  ExecutionContext& context = dy.context();
  if (saved.options.weight_is_in_out)
    context.backend().matmul(context.kernel_context(), grad.view(), transposed_matrix(x.view()),
                             dy.view(), options);
  else
    context.backend().matmul(context.kernel_context(), grad.view(), transposed_matrix(dy.view()),
                             x.view(), options);
  grad.finish();
}

void bias_grad(const SavedLinear& saved, const Tensor& dy, GradSink& sink) {
  ParamGrad grad(sink, 2, saved.bias);
  if (!grad.wanted()) return;
  ExecutionContext& context = dy.context();
  const auto& kernel_context = context.kernel_context();
  TensorView target = grad.view();
  target.shape.insert(0, 1);
  target.strides.insert(0, target.shape[1]);
  if (!grad.accumulate()) {
    context.backend().reduce(kernel_context, kernels::ReduceOp::kSum, target, dy.view(), 0.0);
  } else {
    const Tensor part = empty(context, target.shape, target.dtype);
    context.backend().reduce(kernel_context, kernels::ReduceOp::kSum, part.view(), dy.view(), 0.0);
    context.backend().binary(kernel_context, kernels::BinaryOp::kAdd, target, target, part.view());
  }
  grad.finish();
}

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const LinearOptions& options) {
  check_floating("linear", x);
  check_same_dtype("linear", x, weight);
  check_internal(!options.keep_sums || !autograd::should_record({&x, &weight, &bias}),
                 "linear: keep_sums records no gradient");
  check(x.ndim() >= 1 && weight.ndim() == 2, "linear: shapes x {} and weight {}, expected a matrix",
        x.shape(), weight.shape());
  const std::int64_t in = weight.size(options.weight_is_in_out ? 0 : 1);
  const std::int64_t out = weight.size(options.weight_is_in_out ? 1 : 0);
  check(x.size(-1) == in, "linear: x of shape {} does not fit weight {} with {} inputs", x.shape(),
        weight.shape(), in);
  if (!bias) return;
  check_same_dtype("linear", x, bias);
  check(bias.ndim() == 1 && bias.size(0) == out, "linear: bias of shape {}, expected [{}]",
        bias.shape(), out);
}

DType result_dtype(const Tensor& x, const LinearOptions& options) {
  return options.keep_sums && x.dtype() != DType::kFloat64 ? DType::kFloat32 : x.dtype();
}

Tensor linear_with_layout(LayoutEngine& engine, const Tensor& x, const Tensor& weight,
                          const Tensor& bias, LinearOptions options) {
  // The product may run on partial sums, the activation may not.
  if (options.input_activation != Activation::kNone && x.has_layout() &&
      x.layout()->spec->has_partial()) {
    const bool tanh_approximation = options.input_activation == Activation::kGeluTanh;
    options.input_activation = Activation::kNone;
    return linear(gelu(x, tanh_approximation), weight, bias, options);
  }
  return run_call(engine, planner::OpId::kLinear, {&x, &weight, &bias},
                  {{}, {options.weight_is_in_out}}, OpOptions(options), [&](const LocalCall& c) {
                    return linear(c.inputs[0], c.inputs[1], c.inputs[2], options);
                  });
}

}  // namespace

Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias_given,
              const LinearOptions& options) {
  check_linear(input, weight, bias_given, options);
  if (LayoutEngine* engine = layout_engine({&input, &weight, &bias_given}))
    return linear_with_layout(*engine, input, weight, bias_given, options);
  const Tensor x = contiguous(input);
  const Tensor bias = bias_given ? contiguous(bias_given) : bias_given;
  Shape shape = x.shape();
  shape[x.ndim() - 1] = weight.size(options.weight_is_in_out ? 1 : 0);

  SavedLinear saved{alias(x, rows_shape(x.shape()), contiguous_strides(rows_shape(x.shape()))),
                    weight,
                    bias,
                    options,
                    {}};
  ExecutionContext& context = x.context();
  Tensor y = empty(context, shape, result_dtype(x, options));
  const bool empty_product = saved.x.size(1) == 0;  // a shard may hold no columns
  kernels::MatmulOptions matmul_options;
  matmul_options.batch_invariant = context.batch_invariant();
  if (bias && !empty_product) {
    matmul_options.epilogue = kernels::Epilogue::kBias;
    matmul_options.bias = bias.view();
  }
  context.backend().matmul(context.kernel_context(), rows_view(y),
                           activated(saved.x, options.input_activation).view(),
                           saved.weight_in_out(), matmul_options);
  if (bias && empty_product)
    context.backend().copy(context.kernel_context(), y.view(), broadcast_view(bias, shape));

  if (autograd::should_record({&x, &weight, &bias})) {
    if (input.impl()->recompute && options.input_activation == Activation::kNone) {
      saved.recompute = input.impl()->recompute;
      saved.x = Tensor();
    }
    auto backward = [saved, shape = x.shape()](GradOutputs grads, GradSink& sink) {
      const Tensor dy = contiguous(reshape(grads[0], rows_shape(grads[0].shape())));
      if (sink.wants(0)) {
        const Tensor dx = input_grad(saved, dy);
        sink.emit(0, alias(dx, shape, contiguous_strides(shape)));
      }
      weight_grad(saved, dy, sink);
      bias_grad(saved, dy, sink);
    };
    autograd::record_op("linear", {&x, &weight, &bias}, {&y}, std::move(backward));
  }
  return y;
}

}  // namespace meshloom::ops
