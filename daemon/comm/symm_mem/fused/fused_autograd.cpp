// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/fused/fused_autograd.h"

#include <functional>
#include <utility>

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

/// B [K,N], whichever way round it is held.
Tensor in_out(const Tensor& b, const RecordOptions& record) {
  return record.b_is_out_in ? ops::transpose(b, 0, 1) : b;
}
Tensor out_in(const Tensor& b, const RecordOptions& record) {
  return record.b_is_out_in ? b : ops::transpose(b, 0, 1);
}

/// What backward keeps of a tensor: itself, or how it is made again where it can be.
struct Kept {
  Tensor value;
  std::function<Tensor()> recompute;

  Kept() = default;
  explicit Kept(const Tensor& x)
      : value(x.impl()->recompute ? Tensor() : x.detach()), recompute(x.impl()->recompute) {}
  Tensor get() const { return recompute ? recompute() : value; }
};

/// The gradient of B [K,N]: A^T dy, of all leading dims of A [.., K] and dy [.., N]; of a B that is
/// held as [N,K] the transpose of that.
void emit_matrix_grad(GradSink& sink, int input, const Tensor& b, const Tensor& a, const Tensor& dy,
                      const RecordOptions& record) {
  ops::ParamGrad grad(sink, input, b);
  if (!grad.wanted()) return;
  const Tensor rows = ops::contiguous(a), grads = ops::contiguous(dy);
  const TensorView of_k = folded_rows(rows.view()), of_n = folded_rows(grads.view());
  const auto& [left, right] = record.b_is_out_in ? std::pair(of_n, of_k) : std::pair(of_k, of_n);
  multiply(b.context(), grad.view(), with_dim_first(left, 1), right, grad.accumulate());
  grad.finish();
}

struct GatherBackward {
  SymmetricGroup* group;
  std::vector<Tensor> bs;  ///< detached, as they are held
  Tensor gathered;  ///< detached; undefined where no B wants a gradient, or it is gathered again
  Kept shard;       ///< of A, if so
  int dim;
  FusedOptions options;
  RecordOptions record;

  void operator()(GradOutputs dys, GradSink& sink) const {
    if (sink.wants(0)) sink.emit(0, grad_of_a(dys));
    Tensor whole;
    for (std::size_t i = 0; i < bs.size(); ++i) {
      if (!sink.wants(static_cast<int>(i) + 1) || !dys[i + 1].defined()) continue;
      if (!whole.defined())
        whole = record.gather_again ? gathered_along(*group, shard.get(), dim) : gathered;
      emit_matrix_grad(sink, static_cast<int>(i) + 1, bs[i], whole, dys[i + 1], record);
    }
  }

  Tensor grad_of_a(GradOutputs dys) const {
    std::vector<Tensor> as, transposed;
    for (std::size_t i = 0; i < bs.size(); ++i) {
      if (!dys[i + 1].defined()) continue;
      as.push_back(dys[i + 1]);
      transposed.push_back(out_in(bs[i], record));
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
  Kept a;    ///< undefined where B wants no gradient
  Tensor b;  ///< detached, as it is held; undefined where A wants no gradient
  int dim;
  double factor;  ///< of an average
  Tensor b_like;  ///< names B's shape and dtype
  FusedOptions options;
  RecordOptions record;

  void operator()(GradOutputs dys, GradSink& sink) const {
    const Tensor dy = factor == 1.0 ? dys[0] : ops::mul(dys[0], factor);
    Tensor whole;
    if (sink.wants(0)) {
      const Tensor transposed = out_in(b, record);
      GatheredProducts products =
          fused_all_gather_matmul(*group, dy, {&transposed, 1}, dim, options);
      whole = products.gathered;
      sink.emit(0, products.products[0]);
    }
    if (!sink.wants(1)) return;
    if (!whole.defined()) whole = gathered_along(*group, dy, dim);
    emit_matrix_grad(sink, 1, b_like, a.get(), whole, record);
  }
};

}  // namespace

GatheredProducts all_gather_matmul(SymmetricGroup& group, const Tensor& a,
                                   std::span<const Tensor> bs, std::int64_t gather_dim,
                                   const FusedOptions& options, const RecordOptions& record) {
  std::vector<Tensor> inputs{a}, matrices;
  inputs.insert(inputs.end(), bs.begin(), bs.end());
  for (const Tensor& b : bs) matrices.push_back(in_out(b.detach(), record));
  const bool records = autograd::should_record(inputs);
  FusedOptions forward = options;
  forward.shards_by_ceil_rule = forward.shards_by_ceil_rule || records;
  GatheredProducts result = fused_all_gather_matmul(group, a, matrices, gather_dim, forward);
  if (!records) return result;
  GatherBackward backward{&group,
                          {},
                          {},
                          {},
                          normalize_dim(gather_dim, a.ndim(), "all_gather_matmul", "gather_dim"),
                          of_gradients(options),
                          record};
  bool wanted = false;
  for (const Tensor& b : bs) {
    backward.bs.push_back(b.detach());
    wanted = wanted || b.requires_grad();
  }
  if (wanted && record.gather_again) backward.shard = Kept(a);
  if (wanted && !record.gather_again) backward.gathered = result.gathered.detach();
  std::vector<Tensor> outputs{result.gathered};
  outputs.insert(outputs.end(), result.products.begin(), result.products.end());
  autograd::record(std::make_shared<autograd::FunctionNode<GatherBackward>>("all_gather_matmul",
                                                                            std::move(backward)),
                   inputs, outputs);
  return result;
}

Tensor matmul_reduce_scatter(SymmetricGroup& group, const Tensor& a, const Tensor& b,
                             ReduceOp reduce_op, std::int64_t scatter_dim,
                             const FusedOptions& options, const RecordOptions& record) {
  const bool records = autograd::should_record({&a, &b});
  Tensor y = fused_matmul_reduce_scatter(group, a, in_out(b.detach(), record), reduce_op,
                                         scatter_dim, options);
  if (!records) return y;
  ScatterBackward backward{
      &group,
      b.requires_grad() ? Kept(a) : Kept(),
      a.requires_grad() ? b.detach() : Tensor(),
      normalize_dim(scatter_dim, a.ndim(), "matmul_reduce_scatter", "scatter_dim"),
      reduce_op == ReduceOp::kAvg ? 1.0 / group.size() : 1.0,
      b.detach(),
      of_gradients(options),
      record};
  autograd::record_op("matmul_reduce_scatter", {&a, &b}, {&y}, std::move(backward));
  return y;
}

}  // namespace meshloom::comm
