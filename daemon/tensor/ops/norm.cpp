// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/norm.h"

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;
using kernels::NormKind;
using planner::OpId;

/// Row statistics that the forward kernel leaves for the backward one. RMS norm has no mean.
struct Stats {
  Tensor mean, rstd;
};

Stats make_stats(const Tensor& x, NormKind kind) {
  const Shape rows{rows_shape(x.shape())[0]};
  auto vector = [&] { return empty(x.context(), rows, accumulation_dtype(x.dtype())); };
  return {kind == NormKind::kLayer ? vector() : Tensor(), vector()};
}

void check_params(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_floating(op, x);
  check(x.ndim() >= 1, "{}: expected at least 1 dim, got a scalar", op);
  for (const Tensor* p : {&weight, &bias}) {
    if (!*p) continue;
    check(p->ndim() == 1 && p->size(0) == x.size(-1),
          "{}: weight and bias of shape {} do not fit the normalized dim of {}", op, p->shape(),
          x.shape());
    check_same_dtype(op, x, *p);
  }
}

void run_norm(ExecutionContext& context, const kernels::NormViews& views, NormKind kind,
              double eps) {
  context.backend().norm(context.kernel_context(), views, {eps, kind});
}

/// What backward needs of x = the norm's input.
struct SavedNorm {
  NormKind kind;
  Tensor x, weight, bias;
  Stats stats;
};

/// The gradient of the norm's input, added into `residual_grad` if that is given (and may be
/// overwritten). Inputs `weight_input` and the next one are weight and bias.
Tensor norm_backward(const SavedNorm& saved, const Tensor& grad, Tensor residual_grad,
                     int weight_input, GradSink& sink) {
  const Tensor dy = contiguous(grad);
  const bool accumulate_dx = residual_grad.defined();
  Tensor dx = accumulate_dx ? std::move(residual_grad) : empty_like(saved.x);
  ParamGrad dweight(sink, weight_input, saved.weight);
  ParamGrad dbias(sink, weight_input + 1, saved.bias);
  const bool accumulate_params = common_accumulate(dweight, dbias);
  const kernels::NormGrads grads{.dx = dx.view(),
                                 .dweight = dweight.view(),
                                 .dbias = dbias.view(),
                                 .dy = dy.view(),
                                 .x = saved.x.view(),
                                 .weight = saved.weight.view(),
                                 .mean = saved.stats.mean.view(),
                                 .rstd = saved.stats.rstd.view(),
                                 .accumulate_dx = accumulate_dx,
                                 .accumulate_params = accumulate_params};
  dx.context().backend().norm_backward(dx.context().kernel_context(), grads);
  dweight.finish();
  dbias.finish();
  return dx;
}

/// The norm's output again, from what backward keeps.
std::function<Tensor()> recipe(const SavedNorm& saved, double eps) {
  return [saved, eps] {
    Tensor y = empty_like(saved.x);
    run_norm(y.context(),
             {.y = y.view(),
              .x = saved.x.view(),
              .weight = saved.weight.view(),
              .bias = saved.bias.view()},
             saved.kind, eps);
    return y;
  };
}

Tensor dense(const Tensor& param) { return param ? contiguous(param) : param; }

Tensor norm(NormKind kind, const char* name, const Tensor& input, const Tensor& weight_given,
            const Tensor& bias_given, double eps) {
  check_params(name, input, weight_given, bias_given);
  if (LayoutEngine* engine = layout_engine({&input, &weight_given, &bias_given}))
    return run_local(
        *engine, OpId::kNorm, {{}, {1}},
        [=](const Tensor& lx, const Tensor& lw, const Tensor& lb) {
          return norm(kind, name, lx, lw, lb, eps);
        },
        input, weight_given, bias_given);
  const Tensor x = contiguous(input);
  const Tensor weight = dense(weight_given);
  const Tensor bias = dense(bias_given);

  Tensor y = empty_like(x);
  const Stats stats = make_stats(x, kind);
  run_norm(x.context(),
           {.y = y.view(),
            .mean = stats.mean.view(),
            .rstd = stats.rstd.view(),
            .x = x.view(),
            .weight = weight.view(),
            .bias = bias.view()},
           kind, eps);

  if (autograd::should_record({&x, &weight, &bias})) {
    const SavedNorm saved{kind, x.detach(), weight, bias, stats};
    autograd::record_op(name, {&x, &weight, &bias}, {&y}, [saved](GradOutputs dy, GradSink& sink) {
      sink.emit(0, norm_backward(saved, dy[0], {}, 1, sink));
    });
    y.impl()->recompute = recipe(saved, eps);
  }
  return y;
}

/// A gradient that backward may add into: the engine's own tensor if nobody else holds it, else
/// a copy.
Tensor writable(const Tensor& grad) {
  const bool sole = grad.impl().use_count() == 1 && grad.storage().use_count() == 1;
  if (sole && grad.contiguous()) return grad;
  Tensor copy = empty_like(grad);
  copy_into(copy, grad);
  return copy;
}

/// Of tensors as the kernels take them.
NormedSum add_norm_dense(NormKind kind, const char* name, const Tensor& x, const Tensor& residual,
                         const Tensor& weight, const Tensor& bias, double eps) {
  NormedSum out{empty_like(x), empty_like(x)};
  const Stats stats = make_stats(x, kind);
  run_norm(x.context(),
           {.y = out.normed.view(),
            .sum = out.sum.view(),
            .mean = stats.mean.view(),
            .rstd = stats.rstd.view(),
            .x = x.view(),
            .residual = residual.view(),
            .weight = weight.view(),
            .bias = bias.view()},
           kind, eps);

  if (autograd::should_record({&x, &residual, &weight, &bias})) {
    const SavedNorm saved{kind, out.sum, weight, bias, stats};
    auto backward = [saved](GradOutputs dy, GradSink& sink) {
      const Tensor& dsum = dy[1];
      Tensor dx = dsum;
      if (dy[0]) dx = norm_backward(saved, dy[0], dsum ? writable(dsum) : Tensor(), 2, sink);
      sink.emit(0, dx);
      sink.emit(1, std::move(dx));
    };
    // The saved sum is taken before recording, while it still has no grad_fn.
    Tensor sum = alias(out.sum, out.sum.shape(), out.sum.strides());
    autograd::record_op(name, {&x, &residual, &weight, &bias}, {&out.normed, &sum},
                        std::move(backward));
    out.sum = std::move(sum);
    out.normed.impl()->recompute = recipe(saved, eps);
  }
  return out;
}

NormedSum add_norm(NormKind kind, const char* name, const Tensor& x_given,
                   const Tensor& residual_given, const Tensor& weight_given,
                   const Tensor& bias_given, double eps) {
  check_params(name, x_given, weight_given, bias_given);
  check_same_dtype(name, x_given, residual_given);
  check(x_given.shape() == residual_given.shape(), "{}: shapes {} and {} differ", name,
        x_given.shape(), residual_given.shape());
  const Tensor* inputs[] = {&x_given, &residual_given, &weight_given, &bias_given};
  if (LayoutEngine* engine = layout_engine({inputs[0], inputs[1], inputs[2], inputs[3]})) {
    std::vector<Tensor> results =
        engine->run(OpId::kAddNorm, inputs, {}, {}, [=](const LocalCall& c) {
          NormedSum local =
              add_norm(kind, name, c.inputs[0], c.inputs[1], c.inputs[2], c.inputs[3], eps);
          return std::vector<Tensor>{std::move(local.normed), std::move(local.sum)};
        });
    return {std::move(results[0]), std::move(results[1])};
  }
  return add_norm_dense(kind, name, contiguous(x_given), contiguous(residual_given),
                        dense(weight_given), dense(bias_given), eps);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                  int normalized_ndim) {
  check(normalized_ndim >= 1 && normalized_ndim <= x.ndim(),
        "layer_norm: {} normalized dims for shape {}", normalized_ndim, x.shape());
  if (normalized_ndim == 1) return norm(NormKind::kLayer, "layer_norm", x, weight, bias, eps);
  Shape folded = x.shape();
  std::int64_t size = 1;
  for (int i = 0; i < normalized_ndim; ++i) {
    size *= folded.back();
    folded.erase(folded.size() - 1);
  }
  folded.push_back(size);
  if (LayoutEngine* engine = layout_engine({&x, &weight, &bias})) {
    for (const Tensor* p : {&weight, &bias})
      if (*p)
        check(p->numel() == size,
              "layer_norm: weight and bias of shape {} do not fit the normalized dims of {}",
              p->shape(), x.shape());
    return run_local(
        *engine, OpId::kNorm, {{}, {normalized_ndim}},
        [=](const Tensor& lx, const Tensor& lw, const Tensor& lb) {
          return layer_norm(lx, lw, lb, eps, normalized_ndim);
        },
        x, weight, bias);
  }
  auto flat = [](const Tensor& p) { return p ? reshape(p, {-1}) : p; };
  const Tensor y =
      norm(NormKind::kLayer, "layer_norm", reshape(x, folded), flat(weight), flat(bias), eps);
  return reshape(y, x.shape());
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return norm(NormKind::kRms, "rms_norm", x, weight, {}, eps);
}

NormedSum add_layer_norm(const Tensor& x, const Tensor& residual, const Tensor& weight,
                         const Tensor& bias, double eps) {
  return add_norm(NormKind::kLayer, "add_layer_norm", x, residual, weight, bias, eps);
}

NormedSum add_rms_norm(const Tensor& x, const Tensor& residual, const Tensor& weight, double eps) {
  return add_norm(NormKind::kRms, "add_rms_norm", x, residual, weight, {}, eps);
}

}  // namespace meshloom::ops
