// SPDX-License-Identifier: Apache-2.0
// Pointwise functions of several tensors, with broadcasting.
#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;
using kernels::BinaryOp;
using planner::OpId;

const char* name_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd: return "add";
    case BinaryOp::kSub: return "sub";
    case BinaryOp::kMul: return "mul";
    case BinaryOp::kDiv: return "div";
  }
  return "binary";
}

OpId layout_op(BinaryOp op) {
  switch (op) {
    case BinaryOp::kMul: return OpId::kMul;
    case BinaryOp::kDiv: return OpId::kDiv;
    default: return OpId::kAdd;
  }
}

/// Where an input of a broadcasting op came from.
struct Operand {
  Tensor value;  ///< undefined if the formula does not need it
  Shape shape;
};

void binary_backward(BinaryOp op, const Operand& a, const Operand& b, const Tensor& dy,
                     GradSink& sink) {
  auto emit = [&](int input, const Operand& operand, const Tensor& grad) {
    sink.emit(input, reduce_to_shape(grad, operand.shape));
  };
  if (sink.wants(0)) {
    if (op == BinaryOp::kMul)
      emit(0, a, mul(dy, b.value));
    else
      emit(0, a, op == BinaryOp::kDiv ? div(dy, b.value) : dy);
  }
  if (!sink.wants(1)) return;
  switch (op) {
    case BinaryOp::kAdd: return emit(1, b, dy);
    case BinaryOp::kSub: return emit(1, b, neg(dy));
    case BinaryOp::kMul: return emit(1, b, mul(dy, a.value));
    case BinaryOp::kDiv:
      // d(a / b)/db = -a / b^2
      return emit(1, b, neg(div(mul(dy, div(a.value, b.value)), b.value)));
  }
}

Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  const char* name = name_of(op);
  check_floating(name, a);
  check_same_dtype(name, a, b);
  const Shape shape = broadcast_shapes(a.shape(), b.shape(), name);
  if (LayoutEngine* engine = layout_engine({&a, &b}))
    return run_local(
        *engine, layout_op(op), {},
        [op](const Tensor& x, const Tensor& y) { return binary(op, x, y); }, a, b);

  ExecutionContext& context = a.context();
  Tensor y = empty(context, shape, a.dtype());
  context.backend().binary(context.kernel_context(), op, y.view(), broadcast_view(a, shape),
                           broadcast_view(b, shape));

  if (autograd::should_record({&a, &b})) {
    const bool needs_b = op == BinaryOp::kDiv || (op == BinaryOp::kMul && a.requires_grad());
    const bool needs_a = (op == BinaryOp::kDiv || op == BinaryOp::kMul) && b.requires_grad();
    const Operand saved_a{needs_a ? a.detach() : Tensor(), a.shape()};
    const Operand saved_b{needs_b ? b.detach() : Tensor(), b.shape()};
    autograd::record_op(name, {&a, &b}, {&y}, [=](GradOutputs dy, GradSink& sink) {
      binary_backward(op, saved_a, saved_b, dy[0], sink);
    });
  }
  return y;
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) { return binary(BinaryOp::kAdd, a, b); }
Tensor sub(const Tensor& a, const Tensor& b) { return binary(BinaryOp::kSub, a, b); }
Tensor mul(const Tensor& a, const Tensor& b) { return binary(BinaryOp::kMul, a, b); }
Tensor div(const Tensor& a, const Tensor& b) { return binary(BinaryOp::kDiv, a, b); }

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  check_floating("swiglu", gate);
  check_same_dtype("swiglu", gate, up);
  check(gate.shape() == up.shape(), "swiglu: shapes {} and {} differ", gate.shape(), up.shape());
  if (LayoutEngine* engine = layout_engine({&gate, &up}))
    return run_local(*engine, OpId::kSwiglu, {}, swiglu, gate, up);

  Tensor y = empty_like(gate);
  ExecutionContext& context = gate.context();
  context.backend().swiglu(context.kernel_context(), y.view(), gate.view(), up.view());

  if (autograd::should_record({&gate, &up})) {
    auto backward = [gate = gate.detach(), up = up.detach()](GradOutputs dy, GradSink& sink) {
      ExecutionContext& c = gate.context();
      Tensor dgate = empty_like(gate);
      Tensor dup = empty_like(up);
      c.backend().swiglu_backward(c.kernel_context(), dgate.view(), dup.view(), dy[0].view(),
                                  gate.view(), up.view());
      sink.emit(0, std::move(dgate));
      sink.emit(1, std::move(dup));
    };
    autograd::record_op("swiglu", {&gate, &up}, {&y}, std::move(backward));
    y.impl()->recompute = [gate = gate.detach(), up = up.detach()] {
      Tensor again = empty_like(gate);
      ExecutionContext& c = gate.context();
      c.backend().swiglu(c.kernel_context(), again.view(), gate.view(), up.view());
      return again;
    };
  }
  return y;
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check_dtype("where", "condition", condition, DType::kBool);
  check_same_dtype("where", a, b);
  const Shape shape =
      broadcast_shapes(condition.shape(), broadcast_shapes(a.shape(), b.shape(), "where"), "where");
  if (LayoutEngine* engine = layout_engine({&condition, &a, &b}))
    return run_local(*engine, OpId::kWhere, {}, where, condition, a, b);

  ExecutionContext& context = a.context();
  Tensor y = empty(context, shape, a.dtype());
  context.backend().where(context.kernel_context(), y.view(), broadcast_view(condition, shape),
                          broadcast_view(a, shape), broadcast_view(b, shape));

  if (autograd::should_record({&a, &b})) {
    auto backward = [condition, a_shape = a.shape(), b_shape = b.shape()](GradOutputs dy,
                                                                          GradSink& sink) {
      const Tensor zero = zeros(dy[0].context(), {}, dy[0].dtype());
      if (sink.wants(0)) sink.emit(0, reduce_to_shape(where(condition, dy[0], zero), a_shape));
      if (sink.wants(1)) sink.emit(1, reduce_to_shape(where(condition, zero, dy[0]), b_shape));
    };
    autograd::record_op("where", {&a, &b}, {&y}, std::move(backward));
  }
  return y;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  check_dtype("masked_fill", "mask", mask, DType::kBool);
  check(broadcast_shapes(x.shape(), mask.shape(), "masked_fill") == x.shape(),
        "masked_fill: mask of shape {} does not broadcast to {}", mask.shape(), x.shape());
  if (LayoutEngine* engine = layout_engine({&x, &mask}))
    return run_local(
        *engine, OpId::kMaskedFill, {},
        [=](const Tensor& lx, const Tensor& lm) { return masked_fill(lx, lm, value); }, x, mask);
  return where(mask, full(x.context(), {}, value, x.dtype()), x);
}

}  // namespace meshloom::ops
