// SPDX-License-Identifier: Apache-2.0
// Matrix products by torch's rules; linear layers are in linear.cpp.
#include "daemon/tensor/ops/matmul.h"

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;
using planner::OpId;

Shape leading_dims(const Tensor& x) {
  return Shape(x.shape().span().first(static_cast<std::size_t>(x.ndim() - 2)));
}

Tensor matrix_transposed(const Tensor& x) { return transpose(x, -1, -2); }

/// a [..,M,K], b [..,K,N] with at least 2 dims each, checked; leading dims broadcast.
Tensor product(const char* name, const Tensor& a, const Tensor& b) {
  const Shape leading = broadcast_shapes(leading_dims(a), leading_dims(b), name);
  Shape a_shape = leading, b_shape = leading, y_shape = leading;
  for (std::int64_t size : {a.size(-2), a.size(-1)}) a_shape.push_back(size);
  for (std::int64_t size : {b.size(-2), b.size(-1)}) b_shape.push_back(size);
  for (std::int64_t size : {a.size(-2), b.size(-1)}) y_shape.push_back(size);

  ExecutionContext& context = a.context();
  Tensor y = empty(context, y_shape, a.dtype());
  context.backend().matmul(context.kernel_context(), y.view(), broadcast_view(a, a_shape),
                           broadcast_view(b, b_shape), {});

  if (autograd::should_record({&a, &b})) {
    const Tensor saved_a = b.requires_grad() ? a.detach() : Tensor();
    const Tensor saved_b = a.requires_grad() ? b.detach() : Tensor();
    auto backward = [=, a_shape = a.shape(), b_shape = b.shape()](GradOutputs dy, GradSink& sink) {
      if (sink.wants(0))
        sink.emit(0, reduce_to_shape(product(name, dy[0], matrix_transposed(saved_b)), a_shape));
      if (sink.wants(1))
        sink.emit(1, reduce_to_shape(product(name, matrix_transposed(saved_a), dy[0]), b_shape));
    };
    autograd::record_op(name, {&a, &b}, {&y}, std::move(backward));
  }
  return y;
}

void check_matmul(const char* name, const Tensor& a, const Tensor& b) {
  check_floating(name, a);
  check_same_dtype(name, a, b);
  check(a.ndim() >= 1 && b.ndim() >= 1, "{}: shapes {} and {}, expected at least 1 dim each", name,
        a.shape(), b.shape());
  const std::int64_t inner = b.ndim() == 1 ? b.size(0) : b.size(-2);
  check(a.size(-1) == inner, "{}: shapes {} and {} do not fit: inner sizes are {} and {}", name,
        a.shape(), b.shape(), a.size(-1), inner);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_matmul("matmul", a, b);
  if (LayoutEngine* engine = layout_engine({&a, &b})) {
    if (a.ndim() >= 2 && b.ndim() >= 2)
      broadcast_shapes(leading_dims(a), leading_dims(b), "matmul");
    return run_local(*engine, OpId::kMatmul, {}, matmul, a, b);
  }
  const Tensor a2 = a.ndim() == 1 ? unsqueeze(a, 0) : a;
  const Tensor b2 = b.ndim() == 1 ? unsqueeze(b, 1) : b;
  Tensor y;
  if (a2.ndim() > 2 && b2.ndim() == 2) {
    // One product for all of a's leading dims: fewer, larger matrices.
    Shape shape = a2.shape();
    shape[a2.ndim() - 1] = b2.size(-1);
    y = reshape(product("matmul", reshape(a2, rows_shape(a2.shape())), b2), shape);
  } else {
    y = product("matmul", a2, b2);
  }
  if (b.ndim() == 1) y = squeeze(y, -1);
  if (a.ndim() == 1) y = squeeze(y, b.ndim() == 1 ? -1 : -2);
  return y;
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  check(a.ndim() == 3 && b.ndim() == 3 && a.size(0) == b.size(0),
        "bmm: expected shapes [B,M,K] and [B,K,N], got {} and {}", a.shape(), b.shape());
  check_matmul("bmm", a, b);
  if (LayoutEngine* engine = layout_engine({&a, &b}))
    return run_local(*engine, OpId::kBmm, {}, bmm, a, b);
  return product("bmm", a, b);
}

Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b) {
  check(a.ndim() == 2 && b.ndim() == 2, "addmm: expected two matrices, got shapes {} and {}",
        a.shape(), b.shape());
  check_matmul("addmm", a, b);
  const Shape shape{a.size(0), b.size(1)};
  check(broadcast_shapes(input.shape(), shape, "addmm") == shape,
        "addmm: input of shape {} does not broadcast to {}", input.shape(), shape);
  if (LayoutEngine* engine = layout_engine({&input, &a, &b}))
    return run_local(*engine, OpId::kAddmm, {}, addmm, input, a, b);
  return add(product("addmm", a, b), input);
}

}  // namespace meshloom::ops
