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

/// x as [rows, last], copied only where its strides do not allow a view.
Tensor folded(const Tensor& x) {
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < x.ndim(); ++d) rows *= x.size(d);
  return ops::reshape(x, Shape{rows, x.shape().back()});
}

/// One call. Partial products are float32 (float64 of float64) and have their own rank's scales
/// applied; bias and result scale come after the sum.
class ScatterProduct {
 public:
  ScatterProduct(const char* op, SymmetricGroup& group, const Tensor& a, int dim,
                 ProductTerms terms, const Tensor& a_scale, ReduceOp reduce_op, int splits)
      : context_(a.context()),
        ranks_(group.size()),
        rank_(group.rank()),
        a_(a),
        dim_(dim),
        along_last_(dim == a.ndim() - 1),
        terms_(std::move(terms)),
        a_scale_(a_scale),
        reduce_op_(reduce_op),
        sums_(a.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32),
        pipeline_(context_, group, call(op, splits)),
        result_(empty(context_, pipeline_.part(rank_), terms_.out)) {}

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

  /// The rows of A, and their scales, that make the part of a rank: along the last dim all of them.
  void prepare(int destination) {
    if (prepared_ >= 0 && (along_last_ || prepared_ == destination)) return;
    prepared_ = destination;
    const planner::ShardRange rows = range(destination);
    const Tensor part = along_last_ ? a_ : ops::slice(a_, dim_, rows.begin, rows.end);
    rows_ = decoded(folded(part), a_.shape().back());
    if (!scaled()) return;
    const bool by_row = a_scale_.numel() != 1;
    scales_ = ops::contiguous(
        by_row && !along_last_ ? ops::slice(a_scale_, dim_, rows.begin, rows.end) : a_scale_);
    factors_ = {scales_.data<float>(), by_row ? std::int64_t{1} : std::int64_t{0}};
  }

  void produce(const ProducedRows& piece) {
    prepare(piece.destination);
    TensorView b = terms_.b.view();
    Factors columns = terms_.columns();
    if (along_last_) {
      const planner::ShardRange of_columns = range(piece.destination);
      b = range_of_dim(b, 1, of_columns.begin, of_columns.size());
      columns = columns.from(of_columns.begin);
    }
    multiply(context_, piece.rows, rows_of(rows_.view(), piece.first_row, piece.rows.size(0)), b);
    if (scaled())
      apply(context_.threads(), piece.rows,
            {factors_.from(piece.first_row), columns, nullptr, 1.0f});
  }

  void reduce(const ReceivedRows& piece) {
    const TensorView& own = piece.slots[static_cast<std::size_t>(rank_)];
    std::vector<const void*> slots;
    for (const TensorView& slot : piece.slots) slots.push_back(slot.data);
    const TensorView out = rows_of(folded_rows(result_.view()), piece.first_row, own.size(0));
    const std::int64_t first_column = along_last_ ? range(rank_).begin : 0;
    Epilogue last;
    if (terms_.bias.defined()) last.bias = terms_.bias.data<float>() + first_column;
    last.result = terms_.result;
    const bool direct = out.dtype == sums_;
    const TensorView sum = direct ? out : own;
    reduce_in_order(context_.threads(), sums_, reduce_op_, sum.data, slots, own.numel());
    apply(context_.threads(), sum, last);
    if (!direct) context_.backend().copy(context_.kernel_context(), out, sum);
  }

  ExecutionContext& context_;
  int ranks_, rank_;
  Tensor a_;
  int dim_;
  bool along_last_;
  ProductTerms terms_;
  Tensor a_scale_;  ///< undefined: plain
  ReduceOp reduce_op_;
  DType sums_;
  ExchangePipeline pipeline_;
  Tensor result_;
  int prepared_ = -1;
  Tensor rows_, scales_;  ///< of the destination that was prepared last
  Factors factors_;
};

}  // namespace

Tensor fused_matmul_reduce_scatter(SymmetricGroup& group, const Tensor& a, const Tensor& b,
                                   ReduceOp reduce_op, std::int64_t scatter_dim,
                                   const FusedOptions& options, std::optional<DType> out_dtype) {
  check_matrices(kPlain, a, b);
  check_reduce_op(kPlain, reduce_op);
  const int dim = checked_dim(kPlain, "scatter_dim", scatter_dim, a);
  check_inner(kPlain, a, b);
  check_plain_dtypes(kPlain, a, b, out_dtype);
  if (options.splits != 0) check_splits(kPlain, group, options.splits);
  const NoGradGuard no_grad(a.context());
  ProductTerms terms{b, {}, {}, 1.0f, out_dtype.value_or(b.dtype())};
  return ScatterProduct(kPlain, group, a, dim, std::move(terms), {}, reduce_op, options.splits)
      .run();
}

Tensor fused_scaled_matmul_reduce_scatter(SymmetricGroup& group, const Tensor& a, const Tensor& b,
                                          const Tensor& a_scale, const Tensor& b_scale,
                                          ReduceOp reduce_op, std::int64_t scatter_dim,
                                          const ScaledTerms& given, const FusedOptions& options) {
  check_matrices(kScaled, a, b);
  check_reduce_op(kScaled, reduce_op);
  const int dim = checked_dim(kScaled, "scatter_dim", scatter_dim, a);
  check_inner(kScaled, a, b);
  check_scaled(kScaled, a, b, a_scale, b_scale);
  const DType out = given.out_dtype.value_or(a.dtype());
  check_scaled_terms(kScaled, b, given.bias, given.result_scale, out);
  if (options.splits != 0) check_splits(kScaled, group, options.splits);
  const NoGradGuard no_grad(a.context());
  return ScatterProduct(kScaled, group, a, dim,
                        make_terms(b, b_scale, given.bias, given.result_scale, out), a_scale,
                        reduce_op, options.splits)
      .run();
}

}  // namespace meshloom::comm
