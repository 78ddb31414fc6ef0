// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/fused/fused_autograd.h"

#include "daemon/comm/symm_mem/fused/layout.h"
#include "daemon/comm/symm_mem/fused/local_product.h"
#include "daemon/comm/symm_mem/fused/low_contention.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"

namespace meshloom::comm {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;

/// Gradients lie elsewhere than the shards.
FusedOptions of_gradients(const FusedOptions& options) { return {options.splits}; }

Tensor gathered_along(SymmetricGroup& group, const Tensor& x, int dim) {
  return ops::contiguous(
      with_dim_moved(low_contention_all_gather(group, with_dim_moved(x, dim, 0)), 0, dim));
}

Tensor scattered_along(SymmetricGroup& group, const Tensor& x, int dim) {
  return with_dim_moved(
      low_contention_reduce_scatter(group, with_dim_moved(x, dim, 0), ReduceOp::kSum), 0, dim);
}

/// The gradient of B [K,N]: A^T dy, of all leading dims of A [.., K] and dy [.., N].
void emit_matrix_grad(GradSink& sink, int input, const Tensor& b, const Tensor& a,
                      const Tensor& dy) {
  ops::ParamGrad grad(sink, input, b);
  if (!grad.wanted()) return;
  const Tensor rows = ops::contiguous(a), grads = ops::contiguous(dy);
  multiply(b.context(), grad.view(), with_dim_first(folded_rows(rows.view()), 1),
           folded_rows(grads.view()), grad.accumulate());
  grad.finish();
}

struct GatherBackward {
  SymmetricGroup* group;
  std::vector<Tensor> bs;  ///< detached
  Tensor gathered;         ///< detached; undefined where no B wants a gradient
  int dim;
  FusedOptions options;

  void operator()(GradOutputs dys, GradSink& sink) const {
    if (sink.wants(0)) sink.emit(0, grad_of_a(dys));
    for (std::size_t i = 0; i < bs.size(); ++i)
      if (sink.wants(static_cast<int>(i) + 1) && dys[i + 1].defined())
        emit_matrix_grad(sink, static_cast<int>(i) + 1, bs[i], gathered, dys[i + 1]);
  }

  Tensor grad_of_a(GradOutputs dys) const {
    std::vector<Tensor> as, transposed;
    for (std::size_t i = 0; i < bs.size(); ++i) {
      if (!dys[i + 1].defined()) continue;
      as.push_back(dys[i + 1]);
      transposed.push_back(ops::transpose(bs[i], 0, 1));
    }
    Tensor grad;
    if (!as.empty())
      grad = fused_matmul_reduce_scatter(*group, as, transposed, ReduceOp::kSum, dim, options);
    if (!dys[0].defined()) return grad;
    const Tensor direct = scattered_along(*group, dys[0], dim);
    return grad.defined() ? ops::add(grad, direct) : direct;
  }
};

struct ScatterBackward {
  SymmetricGroup* group;
  Tensor a, b;  ///< detached; a undefined where B wants no gradient, b where A wants none
  int dim;
  double factor;  ///< of an average
  Tensor b_like;  ///< names B's shape and dtype
  FusedOptions options;

  void operator()(GradOutputs dys, GradSink& sink) const {
    const Tensor dy = factor == 1.0 ? dys[0] : ops::mul(dys[0], factor);
    Tensor whole;
    if (sink.wants(0)) {
      const Tensor transposed = ops::transpose(b, 0, 1);
      GatheredProducts products =
          fused_all_gather_matmul(*group, dy, {&transposed, 1}, dim, options);
      whole = products.gathered;
      sink.emit(0, products.products[0]);
    }
    if (!sink.wants(1)) return;
    if (!whole.defined()) whole = gathered_along(*group, dy, dim);
    emit_matrix_grad(sink, 1, b_like, a, whole);
  }
};

}  // namespace

GatheredProducts all_gather_matmul(SymmetricGroup& group, const Tensor& a,
                                   std::span<const Tensor> bs, std::int64_t gather_dim,
                                   const FusedOptions& options) {
  std::vector<Tensor> inputs{a};
  inputs.insert(inputs.end(), bs.begin(), bs.end());
  const bool records = autograd::should_record(inputs);
  FusedOptions forward = options;
  forward.shards_by_ceil_rule = forward.shards_by_ceil_rule || records;
  GatheredProducts result = fused_all_gather_matmul(group, a, bs, gather_dim, forward);
  if (!records) return result;
  GatherBackward backward{&group,
                          {},
                          {},
                          normalize_dim(gather_dim, a.ndim(), "all_gather_matmul", "gather_dim"),
                          of_gradients(options)};
  for (const Tensor& b : bs) {
    backward.bs.push_back(b.detach());
    if (b.requires_grad()) backward.gathered = result.gathered.detach();
  }
  std::vector<Tensor> outputs{result.gathered};
  outputs.insert(outputs.end(), result.products.begin(), result.products.end());
  autograd::record(std::make_shared<autograd::FunctionNode<GatherBackward>>("all_gather_matmul",
                                                                            std::move(backward)),
                   inputs, outputs);
  return result;
}

Tensor matmul_reduce_scatter(SymmetricGroup& group, const Tensor& a, const Tensor& b,
                             ReduceOp reduce_op, std::int64_t scatter_dim,
                             const FusedOptions& options) {
  const bool records = autograd::should_record({&a, &b});
  Tensor y = fused_matmul_reduce_scatter(group, a, b, reduce_op, scatter_dim, options);
  if (!records) return y;
  ScatterBackward backward{
      &group,
      b.requires_grad() ? a.detach() : Tensor(),
      a.requires_grad() ? b.detach() : Tensor(),
      normalize_dim(scatter_dim, a.ndim(), "matmul_reduce_scatter", "scatter_dim"),
      reduce_op == ReduceOp::kAvg ? 1.0 / group.size() : 1.0,
      b.detach(),
      of_gradients(options)};
  autograd::record_op("matmul_reduce_scatter", {&a, &b}, {&y}, std::move(backward));
  return y;
}

}  // namespace meshloom::comm
