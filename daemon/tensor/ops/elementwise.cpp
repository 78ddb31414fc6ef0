// SPDX-License-Identifier: Apache-2.0
// Functions of one tensor; those of several are in binary.cpp.
#include "daemon/tensor/ops/elementwise.h"

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/part_positions.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;
using kernels::UnaryOp;
using planner::OpId;

/// Which tensor the derivative is a function of.
enum class Saves { kNothing, kInput, kOutput };

Saves saves(UnaryOp op) {
  switch (op) {
    case UnaryOp::kNeg:
    case UnaryOp::kAdd:
    case UnaryOp::kMul:
    case UnaryOp::kRsub: return Saves::kNothing;
    case UnaryOp::kExp:
    case UnaryOp::kTanh:
    case UnaryOp::kSqrt:
    case UnaryOp::kRsqrt:
    case UnaryOp::kRelu:
    case UnaryOp::kSigmoid: return Saves::kOutput;
    default: return Saves::kInput;
  }
}

/// dy * op'(x) from the saved tensor: the kernel gets it as both x and y and reads the right one.
/// Only scalar / x needs both, and makes y again.
Tensor unary_backward(UnaryOp op, const Tensor& dy, const Tensor& saved, double scalar) {
  switch (op) {
    case UnaryOp::kAdd: return dy;
    case UnaryOp::kMul: return mul(dy, scalar);
    case UnaryOp::kNeg:
    case UnaryOp::kRsub: return neg(dy);
    default: break;
  }
  const Tensor y = op == UnaryOp::kRdiv ? div(scalar, saved) : saved;
  Tensor dx = empty_like(saved);
  ExecutionContext& context = dy.context();
  context.backend().unary_backward(context.kernel_context(), op, dx.view(), dy.view(), saved.view(),
                                   y.view(), scalar);
  return dx;
}

Tensor unary(UnaryOp op, const char* name, const Tensor& x, double scalar = 0.0) {
  check_floating(name, x);
  if (LayoutEngine* engine = layout_engine({&x})) {
    // These may run on partial sums.
    const bool linear = op == UnaryOp::kNeg || op == UnaryOp::kMul;
    return run_call(*engine, linear ? OpId::kUnaryLinear : OpId::kUnary, {&x}, {}, OpOptions(op),
                    [=](const LocalCall& c) { return unary(op, name, c.inputs[0], scalar); });
  }

  Tensor y = empty_like(x);
  ExecutionContext& context = x.context();
  context.backend().unary(context.kernel_context(), op, y.view(), x.view(), scalar);

  if (autograd::should_record({&x})) {
    const Saves kind = saves(op);
    // The output is kept by a handle without its node, which would keep itself alive.
    const Tensor saved = kind == Saves::kNothing ? Tensor()
                         : kind == Saves::kInput ? x.detach()
                                                 : alias(y, y.shape(), y.strides());
    autograd::record_op(name, {&x}, {&y}, [op, saved, scalar](GradOutputs dy, GradSink& sink) {
      sink.emit(0, unary_backward(op, dy[0], saved, scalar));
    });
  }
  return y;
}

Tensor triangle(const char* name, const Tensor& x, bool upper, std::int64_t diagonal) {
  check(x.ndim() >= 2, "{}: expected at least 2 dims, got shape {}", name, x.shape());
  if (LayoutEngine* engine = layout_engine({&x}))
    return run_call(*engine, OpId::kTri, {&x}, {{}, {diagonal, upper}}, [=](const LocalCall& c) {
      return triangle(name, c.inputs[0], upper, c.attributes.ints[0]);
    });

  Tensor y = empty_like(x);
  ExecutionContext& context = x.context();
  context.backend().triangle(context.kernel_context(), y.view(), x.view(), upper, diagonal);

  if (autograd::should_record({&x}))
    autograd::record_op(name, {&x}, {&y}, [=](GradOutputs dy, GradSink& sink) {
      sink.emit(0, triangle(name, dy[0], upper, diagonal));
    });
  return y;
}

/// Of a part of a tensor of shape `whole`; without `part` x is the whole.
struct DropoutCall {
  double p;
  PhiloxStream random;
  std::uint64_t first_index;
  Shape whole;
  std::optional<planner::LocalPart> part;
};

Tensor run_dropout(const Tensor& given, const DropoutCall& call) {
  const Tensor x = contiguous(given);
  Tensor y = empty_like(x);
  ExecutionContext& context = x.context();
  const auto run = [&](std::int64_t begin, std::int64_t count, std::int64_t global) {
    const kernels::DropoutOptions options{call.p, call.random,
                                          call.first_index + static_cast<std::uint64_t>(global)};
    context.backend().dropout(context.kernel_context(), alias(y, {count}, {1}, begin).view(),
                              alias(x, {count}, {1}, begin).view(), options);
  };
  if (call.part)
    for_each_run(call.whole, *call.part, run);
  else
    run(0, x.numel(), 0);

  // The mask is drawn again: nothing is saved.
  if (autograd::should_record({&x}))
    autograd::record_op("dropout", {&x}, {&y}, [=](GradOutputs dy, GradSink& sink) {
      sink.emit(0, run_dropout(dy[0], call));
    });
  return y;
}

}  // namespace

Tensor add(const Tensor& x, double value) { return unary(UnaryOp::kAdd, "add", x, value); }
Tensor sub(const Tensor& x, double value) { return unary(UnaryOp::kAdd, "sub", x, -value); }
Tensor sub(double value, const Tensor& x) { return unary(UnaryOp::kRsub, "sub", x, value); }
Tensor mul(const Tensor& x, double value) { return unary(UnaryOp::kMul, "mul", x, value); }
Tensor div(const Tensor& x, double value) { return unary(UnaryOp::kMul, "div", x, 1.0 / value); }
Tensor div(double value, const Tensor& x) { return unary(UnaryOp::kRdiv, "div", x, value); }

Tensor neg(const Tensor& x) { return unary(UnaryOp::kNeg, "neg", x); }
Tensor exp(const Tensor& x) { return unary(UnaryOp::kExp, "exp", x); }
Tensor log(const Tensor& x) { return unary(UnaryOp::kLog, "log", x); }
Tensor tanh(const Tensor& x) { return unary(UnaryOp::kTanh, "tanh", x); }
Tensor sqrt(const Tensor& x) { return unary(UnaryOp::kSqrt, "sqrt", x); }
Tensor rsqrt(const Tensor& x) { return unary(UnaryOp::kRsqrt, "rsqrt", x); }
Tensor pow(const Tensor& x, double exponent) { return unary(UnaryOp::kPow, "pow", x, exponent); }
Tensor relu(const Tensor& x) { return unary(UnaryOp::kRelu, "relu", x); }
Tensor sigmoid(const Tensor& x) { return unary(UnaryOp::kSigmoid, "sigmoid", x); }
Tensor silu(const Tensor& x) { return unary(UnaryOp::kSilu, "silu", x); }
Tensor gelu(const Tensor& x, bool tanh_approximation) {
  return unary(tanh_approximation ? UnaryOp::kGeluTanh : UnaryOp::kGelu, "gelu", x);
}

Tensor triu(const Tensor& x, std::int64_t diagonal) { return triangle("triu", x, true, diagonal); }
Tensor tril(const Tensor& x, std::int64_t diagonal) { return triangle("tril", x, false, diagonal); }

Tensor dropout(const Tensor& input, double p, const PhiloxStream& random,
               std::uint64_t first_index) {
  check_floating("dropout", input);
  check(p >= 0.0 && p < 1.0, "dropout: p is {}, expected [0, 1)", p);
  if (p == 0.0) return input;
  DropoutCall call{p, random, first_index, input.shape(), std::nullopt};
  if (LayoutEngine* engine = layout_engine({&input}))
    return run_call(*engine, OpId::kDropout, {&input}, {}, [&](const LocalCall& c) {
      call.part = c.parts[0];
      return run_dropout(c.inputs[0], call);
    });
  return run_dropout(input, call);
}

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  if (LayoutEngine* engine = layout_engine({&x}))
    // Rounding to whole numbers does not go with sums.
    return run_local(
        *engine, dtype_is_floating(dtype) ? OpId::kUnaryLinear : OpId::kUnary,
        {{}, {1 + static_cast<std::int64_t>(dtype)}},
        [=](const Tensor& local) { return cast(local, dtype); }, x);
  Tensor y = converted(x, dtype);
  if (dtype_is_floating(dtype) && autograd::should_record({&x}))
    autograd::record_op("cast", {&x}, {&y}, [to = x.dtype()](GradOutputs dy, GradSink& sink) {
      sink.emit(0, converted(dy[0], to));
    });
  return y;
}

}  // namespace meshloom::ops
