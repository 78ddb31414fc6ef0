// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/reduce.h"

#include <algorithm>
#include <array>

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/distributed_ops.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;
using kernels::ReduceOp;
using planner::OpId;

/// The result's shape with the reduced dims kept as 1 and without them, and how many elements go
/// into one.
struct PlannedReduction {
  Shape kept;
  Shape dropped;
  std::int64_t count = 1;
};

PlannedReduction plan_reduction(const char* name, const Tensor& x, const Dims& dims) {
  std::array<bool, kMaxDims> reduced{};
  if (dims.empty()) reduced.fill(true);
  for (std::int64_t d : dims) {
    const int dim = normalize_dim(d, x.ndim(), name);
    check(!reduced[static_cast<std::size_t>(dim)], "{}: dim {} is given twice", name, d);
    reduced[static_cast<std::size_t>(dim)] = true;
  }
  PlannedReduction r;
  for (int i = 0; i < x.ndim(); ++i) {
    const bool is_reduced = reduced[static_cast<std::size_t>(i)];
    r.kept.push_back(is_reduced ? 1 : x.shape()[i]);
    if (is_reduced)
      r.count *= x.shape()[i];
    else
      r.dropped.push_back(x.shape()[i]);
  }
  return r;
}

Tensor run_reduce(ReduceOp op, const Tensor& x, const PlannedReduction& r, double correction) {
  ExecutionContext& context = x.context();
  Tensor y = empty(context, r.kept, x.dtype());
  context.backend().reduce(context.kernel_context(), op, y.view(), x.view(), correction);
  return y;
}

Tensor amax_backward(const Tensor& dy, const Tensor& x, const Tensor& y,
                     const PlannedReduction& r) {
  // 1 where x equals the maximum y, 0 elsewhere: relu's derivative tells y - x > 0 from
  // y - x == 0.
  const Tensor below = sub(y, x);
  Tensor positive = full(x.context(), x.shape(), 1.0, x.dtype());
  ExecutionContext& context = x.context();
  context.backend().unary_backward(context.kernel_context(), kernels::UnaryOp::kRelu,
                                   positive.view(), positive.view(), below.view(), below.view(),
                                   0.0);
  const Tensor equal = sub(1.0, positive);
  const Tensor share = div(dy, run_reduce(ReduceOp::kSum, equal, r, 0.0));
  return mul(equal, share);
}

Tensor var_backward(const Tensor& dy, const Tensor& x, const PlannedReduction& r,
                    double correction) {
  const double divisor = std::max(0.0, static_cast<double>(r.count) - correction);
  const Tensor centered = sub(x, run_reduce(ReduceOp::kMean, x, r, 0.0));
  return mul(centered, mul(dy, 2.0 / divisor));
}

OpId layout_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum: return OpId::kSum;
    case ReduceOp::kMean: return OpId::kMean;
    case ReduceOp::kAmax: return OpId::kAmax;
    default: return OpId::kVar;
  }
}

Tensor reduce(ReduceOp op, const char* name, const Tensor& x, const Dims& dims, bool keepdim,
              double correction = 0.0);

/// Dims as the planner wants them: none left to be guessed.
Tensor reduce_with_layout(LayoutEngine& engine, ReduceOp op, const char* name, const Tensor& x,
                          const Dims& dims, bool keepdim, double correction) {
  planner::OpAttributes attributes{{}, {keepdim}};
  for (int d = 0; d < x.ndim(); ++d)
    if (dims.empty()) attributes.dims.push_back(d);
  for (const std::int64_t d : dims) attributes.dims.push_back(normalize_dim(d, x.ndim(), name));
  // A maximum of shards has no gradient that could find the equal ones on other ranks. A checkpoint
  // must choose the same in both of its runs.
  const ExecutionContext& context = x.context();
  const bool no_gradient = !x.requires_grad() || !context.grad_enabled();
  if (op == ReduceOp::kAmax && no_gradient && !context.checkpoint_frame()) attributes.ints[1] = 1;
  return run_call(engine, layout_op(op), {&x}, attributes, [&](const LocalCall& c) {
    return reduce(op, name, c.inputs[0], c.attributes.dims, keepdim, correction);
  });
}

Tensor reduce(ReduceOp op, const char* name, const Tensor& x, const Dims& dims, bool keepdim,
              double correction) {
  check_floating(name, x);
  const PlannedReduction r = plan_reduction(name, x, dims);
  check(op != ReduceOp::kAmax || r.count > 0, "{}: no elements to take the maximum of in shape {}",
        name, x.shape());
  if (LayoutEngine* engine = layout_engine({&x}))
    return reduce_with_layout(*engine, op, name, x, dims, keepdim, correction);

  const Tensor kept = run_reduce(op, x, r, correction);
  const Shape& shape = keepdim ? r.kept : r.dropped;
  Tensor y = alias(kept, shape, contiguous_strides(shape));

  if (autograd::should_record({&x})) {
    const bool needs_x = op == ReduceOp::kAmax || op == ReduceOp::kVar;
    auto backward = [=, x = needs_x ? x.detach() : Tensor(), x_shape = x.shape(),
                     kept = op == ReduceOp::kAmax ? kept : Tensor()](GradOutputs grads,
                                                                     GradSink& sink) {
      const Tensor dy = reshape(grads[0], r.kept);
      switch (op) {
        case ReduceOp::kSum: return sink.emit(0, expand(dy, x_shape));
        case ReduceOp::kMean:
          return sink.emit(0, expand(mul(dy, 1.0 / static_cast<double>(r.count)), x_shape));
        case ReduceOp::kAmax: return sink.emit(0, amax_backward(dy, x, kept, r));
        case ReduceOp::kVar: return sink.emit(0, var_backward(dy, x, r, correction));
      }
    };
    autograd::record_op(name, {&x}, {&y}, std::move(backward));
  }
  return y;
}

}  // namespace

/// The share of this rank's elements in the mean over all ranks. The sum is divided before it is
/// rounded, since the sum of many 16-bit floats may be larger than any of them.
std::vector<Tensor> mean_of_shards(const LocalCall& call) {
  std::int64_t count = 1;
  for (const std::int64_t d : call.attributes.dims)
    count *= call.decision.inputs[0]->shape()[static_cast<int>(d)];
  const Tensor& x = call.inputs[0];
  const PlannedReduction r = plan_reduction("mean", x, call.attributes.dims);
  const double factor = 1.0 / static_cast<double>(count);
  ExecutionContext& context = x.context();
  const Tensor share = empty(context, r.kept, accumulation_dtype(x.dtype()));
  context.backend().reduce(context.kernel_context(), ReduceOp::kSum, share.view(), x.view(), 0.0);
  context.backend().unary(context.kernel_context(), kernels::UnaryOp::kMul, share.view(),
                          share.view(), factor);
  const Shape& shape = call.attributes.ints[0] != 0 ? r.kept : r.dropped;
  const Tensor rounded = converted(share, x.dtype());
  Tensor y = alias(rounded, shape, contiguous_strides(shape));
  if (autograd::should_record({&x}))
    autograd::record_op("mean", {&x}, {&y},
                        [r, factor, x_shape = x.shape()](GradOutputs dy, GradSink& sink) {
                          sink.emit(0, expand(mul(reshape(dy[0], r.kept), factor), x_shape));
                        });
  return {y};
}

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  return reduce(ReduceOp::kSum, "sum", x, dims, keepdim);
}
Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  return reduce(ReduceOp::kMean, "mean", x, dims, keepdim);
}
Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return reduce(ReduceOp::kAmax, "amax", x, dims, keepdim);
}
Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return reduce(ReduceOp::kVar, "var", x, dims, keepdim, correction);
}

}  // namespace meshloom::ops
