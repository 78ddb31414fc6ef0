// SPDX-License-Identifier: Apache-2.0
// fused_matmul_reduce_scatter and its scaled variant: every rank writes its products into slots at
// their owners, which sum them in rank order and round once.
#include "daemon/comm/collectives/ordered_reduce.h"
#include "daemon/comm/symm_mem/fused/fused_checks.h"
#include "daemon/comm/symm_mem/fused/fused_matmul.h"
#include "daemon/comm/symm_mem/fused/layout.h"
#include "daemon/comm/symm_mem/fused/local_product.h"
#include "daemon/comm/symm_mem/fused/pipeline.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "planner/shard.h"

namespace meshloom::comm {
namespace {

constexpr const char* kPlain = "fused_matmul_reduce_scatter";
constexpr const char* kScaled = "fused_scaled_matmul_reduce_scatter";

// A product for each rank reads all of B every time: with fewer rows (or columns, where these are
// scattered) than this for a rank, one product and a copy into the slots is faster.
constexpr std::int64_t kRowsOfOwnProduct = 256;

/// x as [rows, last], copied only where its strides do not allow a view.
Tensor folded(const Tensor& x) {
  return ops::reshape(x, Shape{row_count(x.shape()), x.shape().back()});
}

/// One call, of one A and B or of the sum of several products. Partial products are float32
/// (float64 of float64) and have their own rank's scales applied; bias and result scale come after
/// the sum.
class ScatterProduct {
 public:
  /// The other Bs are those behind terms.b; `a_scale` goes with a single A.
  ScatterProduct(const char* op, SymmetricGroup& group, std::span<const Tensor> as, int dim,
                 ProductTerms terms, std::span<const Tensor> other_bs, const Tensor& a_scale,
                 ReduceOp reduce_op, int splits)
      : context_(as[0].context()),
        ranks_(group.size()),
        rank_(group.rank()),
        as_(as.begin(), as.end()),
        a_(as[0]),
        dim_(dim),
        along_last_(dim == a_.ndim() - 1),
        terms_(std::move(terms)),
        a_scale_(a_scale),
        reduce_op_(reduce_op),
        sums_(a_.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32),
        pipeline_(group, call(op, splits)),
        result_(empty(context_, pipeline_.part(rank_), terms_.out)),
        bs_{terms_.b} {
    bs_.insert(bs_.end(), other_bs.begin(), other_bs.end());
    const Shape part = pipeline_.part(0);
    const std::int64_t rows = along_last_ ? part.back() : row_count(part);
    at_once_ = splits == 0 && rows < kRowsOfOwnProduct;
  }

  Tensor run() {
    pipeline_.run([&](const ProducedRows& rows) { produce(rows); },
                  [&](const ReceivedRows& rows) { reduce(rows); });
    return result_;
  }

 private:
  bool scaled() const { return a_scale_.defined(); }

  ExchangeCall call(const char* op, int splits) const {
    ExchangeCall call;
    call.op = op;
    call.whole = a_.shape();
    call.whole[a_.ndim() - 1] = terms_.b.size(1);
    call.dim = dim_;
    call.dtype = sums_;
    call.splits = std::max(splits, 1);
    call.agreed = {{"reduce_op", static_cast<std::int64_t>(reduce_op_)},
                   {"the dtype of A", static_cast<std::int64_t>(a_.dtype())},
                   {"the dtype of the result", static_cast<std::int64_t>(terms_.out)}};
    return call;
  }

  planner::ShardRange range(int rank) const {
    return planner::shard_range(along_last_ ? terms_.b.size(1) : a_.size(dim_), ranks_, rank);
  }

  /// Makes ready the rows of A, and their scales, that lie in a range of the scattered dim; along
  /// the last dim that is all of them.
  void prepare(const planner::ShardRange& range) {
    rows_.clear();
    for (const Tensor& a : as_) {
      const Tensor part = along_last_ ? a : ops::slice(a, dim_, range.begin, range.end);
      rows_.push_back(decoded(folded(part), a.shape().back()));
    }
    if (!scaled()) return;
    const bool by_row = a_scale_.numel() != 1;
    scales_ = ops::contiguous(
        by_row && !along_last_ ? ops::slice(a_scale_, dim_, range.begin, range.end) : a_scale_);
  }

  /// y [rows, columns] from the prepared rows, beginning with one of them, and columns of B.
  void multiply_rows(const TensorView& y, std::int64_t first_row, std::int64_t first_column) {
    for (std::size_t i = 0; i < as_.size(); ++i) {
      const TensorView a = rows_of(rows_[i].view(), first_row, y.size(0));
      const TensorView b = range_of_dim(bs_[i].view(), 1, first_column, y.size(1));
      if (scaled())
        multiply_scaled(context_, y, a, b,
                        {{factors_of(flat(scales_), first_row, y.size(0)),
                          factors_of(flat(terms_.b_scale), first_column, y.size(1)),
                          {}},
                         {}});
      else
        multiply(context_, y, a, b, i > 0);
    }
  }

  void produce(const ProducedRows& piece) {
    const planner::ShardRange own = range(piece.destination);
    if (at_once_) return copy_part(piece, own);
    if (prepared_ < 0 || (!along_last_ && prepared_ != piece.destination)) prepare(own);
    prepared_ = piece.destination;
    multiply_rows(piece.rows, piece.first_row, along_last_ ? own.begin : 0);
  }

  /// From the product of all rows, which the first call makes. A slot has one piece then.
  void copy_part(const ProducedRows& piece, const planner::ShardRange& own) {
    if (!product_.defined()) {
      prepare({0, a_.size(dim_)});
      Shape shape = a_.shape();
      shape[a_.ndim() - 1] = terms_.b.size(1);
      product_ = empty(context_, shape, sums_);
      multiply_rows(folded_rows(product_.view()), 0, 0);
    }
    const TensorView part = range_of_dim(product_.view(), dim_, own.begin, own.size());
    context_.backend().copy(context_.kernel_context(),
                            make_view(piece.rows.data, sums_, part.shape), part);
  }

  /// sum = sum op terms, which are one for each column or one for all, or undefined: nothing.
  void combine(kernels::BinaryOp op, const TensorView& sum, TensorView terms) {
    if (!terms.defined()) return;
    const std::int64_t step = terms.size(0) == 1 ? 0 : terms.stride(0);
    terms.shape = sum.shape;
    terms.strides = {0, step};
    context_.backend().binary(context_.kernel_context(), op, sum, sum, terms);
  }

  void reduce(const ReceivedRows& piece) {
    const TensorView& own = piece.slots[static_cast<std::size_t>(rank_)];
    std::vector<const void*> slots;
    for (const TensorView& slot : piece.slots) slots.push_back(slot.data);
    const TensorView out = rows_of(folded_rows(result_.view()), piece.first_row, own.size(0));
    const std::int64_t first_column = along_last_ ? range(rank_).begin : 0;
    const bool direct = out.dtype == sums_;
    const TensorView sum = direct ? out : own;
    reduce_in_order(context_.threads(), sums_, reduce_op_, sum.data, slots, own.numel());
    combine(kernels::BinaryOp::kAdd, sum, factors_of(flat(terms_.bias), first_column, sum.size(1)));
    combine(kernels::BinaryOp::kMul, sum, flat(terms_.result));
    if (!direct) context_.backend().copy(context_.kernel_context(), out, sum);
  }

  ExecutionContext& context_;
  int ranks_, rank_;
  std::vector<Tensor> as_;
  Tensor a_;  ///< the first of them
  int dim_;
  bool along_last_;
  ProductTerms terms_;
  Tensor a_scale_;  ///< undefined: plain
  ReduceOp reduce_op_;
  DType sums_;
  ExchangePipeline pipeline_;
  Tensor result_;
  std::vector<Tensor> bs_;
  bool at_once_ = false;
  Tensor product_;  ///< of all rows, if at_once_
  int prepared_ = -1;
  std::vector<Tensor> rows_;  ///< of the destination that was prepared last
  Tensor scales_;             ///< likewise
};

}  // namespace

Tensor fused_matmul_reduce_scatter(SymmetricGroup& group, const Tensor& a, const Tensor& b,
                                   ReduceOp reduce_op, std::int64_t scatter_dim,
                                   const FusedOptions& options, std::optional<DType> out_dtype) {
  return fused_matmul_reduce_scatter(group, {&a, 1}, {&b, 1}, reduce_op, scatter_dim, options,
                                     out_dtype);
}

Tensor fused_matmul_reduce_scatter(SymmetricGroup& group, std::span<const Tensor> as,
                                   std::span<const Tensor> bs, ReduceOp reduce_op,
                                   std::int64_t scatter_dim, const FusedOptions& options,
                                   std::optional<DType> out_dtype) {
  check(!as.empty() && as.size() == bs.size(), "{}: {} As and {} Bs, expected as many, one or more",
        kPlain, as.size(), bs.size());
  for (std::size_t i = 0; i < as.size(); ++i) {
    check_matrices(kPlain, as[i], bs[i]);
    check_inner(kPlain, as[i], bs[i]);
    check_plain_dtypes(kPlain, as[i], bs[i], out_dtype);
    check_summands(kPlain, as[0], bs[0], as[i], bs[i]);
  }
  check_reduce_op(kPlain, reduce_op);
  const int dim = normalize_dim(scatter_dim, as[0].ndim(), kPlain, "scatter_dim");
  if (options.splits != 0) check_splits(kPlain, group, options.splits);
  const NoGradGuard no_grad(as[0].context());
  ProductTerms terms{bs[0], {}, {}, {}, out_dtype.value_or(bs[0].dtype())};
  return ScatterProduct(kPlain, group, as, dim, std::move(terms), bs.subspan(1), {}, reduce_op,
                        options.splits)
      .run();
}

Tensor fused_scaled_matmul_reduce_scatter(SymmetricGroup& group, const Tensor& a, const Tensor& b,
                                          const Tensor& a_scale, const Tensor& b_scale,
                                          ReduceOp reduce_op, std::int64_t scatter_dim,
                                          const ScaledTerms& given, const FusedOptions& options) {
  check_matrices(kScaled, a, b);
  check_reduce_op(kScaled, reduce_op);
  const int dim = normalize_dim(scatter_dim, a.ndim(), kScaled, "scatter_dim");
  check_inner(kScaled, a, b);
  check_scaled(kScaled, a, b, a_scale, b_scale);
  const DType out = given.out_dtype.value_or(a.dtype());
  check_scaled_terms(kScaled, b, given.bias, given.result_scale, out);
  if (options.splits != 0) check_splits(kScaled, group, options.splits);
  const NoGradGuard no_grad(a.context());
  return ScatterProduct(kScaled, group, {&a, 1}, dim,
                        make_terms(b, b_scale, given.bias, given.result_scale, out), {}, a_scale,
                        reduce_op, options.splits)
      .run();
}

}  // namespace meshloom::comm
