// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/softmax.h"

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;

Tensor last_dim_softmax(const char* name, const Tensor& input, bool log) {
  const Tensor x = contiguous(input);

  Tensor y = empty_like(x);
  ExecutionContext& context = x.context();
  context.backend().softmax(context.kernel_context(), y.view(), x.view(), log);

  if (autograd::should_record({&x})) {
    // A handle without the node, which would keep itself alive.
    auto backward = [log, y = alias(y, y.shape(), y.strides())](GradOutputs grads, GradSink& sink) {
      const Tensor dy = contiguous(grads[0]);
      Tensor dx = empty_like(y);
      ExecutionContext& c = y.context();
      c.backend().softmax_backward(c.kernel_context(), dx.view(), dy.view(), y.view(), log);
      sink.emit(0, std::move(dx));
    };
    autograd::record_op(name, {&x}, {&y}, std::move(backward));
  }
  return y;
}

// The kernel works on the last dim; any other one changes places with it.
Tensor any_dim_softmax(const char* name, const Tensor& x, std::int64_t dim, bool log) {
  check_floating(name, x);
  const int d = normalize_dim(dim, x.ndim(), name);
  if (LayoutEngine* engine = layout_engine({&x})) {
    const auto op = log ? planner::OpId::kLogSoftmax : planner::OpId::kSoftmax;
    return run_call(*engine, op, {&x}, {{}, {d}},
                    [=](const LocalCall& c) { return any_dim_softmax(name, c.inputs[0], d, log); });
  }
  if (d == x.ndim() - 1) return last_dim_softmax(name, x, log);
  return transpose(last_dim_softmax(name, transpose(x, d, -1), log), d, -1);
}

}  // namespace

Tensor softmax(const Tensor& x, std::int64_t dim) {
  return any_dim_softmax("softmax", x, dim, false);
}
Tensor log_softmax(const Tensor& x, std::int64_t dim) {
  return any_dim_softmax("log_softmax", x, dim, true);
}

}  // namespace meshloom::ops
