// SPDX-License-Identifier: Apache-2.0
// fused_all_gather_matmul and its scaled variant: one gather pipeline whose pieces are joined, and
// multiplied right away where there are several.
#include <bit>

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

constexpr const char* kPlain = "fused_all_gather_matmul";
constexpr const char* kScaled = "fused_all_gather_scaled_matmul";

/// One call. Pieces are rows of the gathered dim, the others behind it; along the last dim they are
/// rows of A's first one, and products have to wait for all of A.
class GatherProducts {
 public:
  GatherProducts(const char* op, SymmetricGroup& group, const Tensor& a, int dim,
                 std::vector<ProductTerms> terms, const Tensor& a_scale,
                 const FusedOptions& options)
      : context_(a.context()),
        a_(a),
        dim_(dim),
        along_last_(dim == a.ndim() - 1),
        by_pieces_(options.splits > 0 && !along_last_),
        terms_(std::move(terms)),
        a_scale_(a_scale.defined() ? ops::contiguous(a_scale) : a_scale),
        side_(side()),
        pipeline_(context_, group, call(op, options)) {
    Shape shape = a.shape();
    shape[dim_] = pipeline_.total();
    const std::int64_t inner = terms_.front().b.size(0);
    if (shape.back() != inner)
      pipeline_.refuse(
          fmt::format("{}: the gathered A has shape {} and B {}: inner sizes are {} and {}", op,
                      shape, terms_.front().b.shape(), shape.back(), inner));
    if (options.shards_by_ceil_rule) expect_ceil_rule(op, group.size());
    make_results(shape);
  }

  GatheredProducts run() {
    pipeline_.run([&](const GatherPiece& piece) {
      join(piece);
      if (by_pieces_) multiply_piece(piece);
    });
    if (by_pieces_) return std::move(results_);
    const std::int64_t inner = results_.gathered.shape().back();
    const Tensor wide = decoded(results_.gathered, inner);
    for (std::size_t i = 0; i < terms_.size(); ++i)
      terms_[i].run(context_, folded_rows(results_.products[i].view()), folded_rows(wide.view()),
                    flat(row_scales_));
    return std::move(results_);
  }

 private:
  void expect_ceil_rule(const char* op, int ranks) const {
    const int dim = along_last_ ? dim_ : 0;
    for (int r = 0; r < ranks; ++r) {
      const std::int64_t size = pipeline_.shape(r)[dim];
      const std::int64_t expected = planner::shard_range(pipeline_.total(), ranks, r).size();
      if (size != expected)
        pipeline_.refuse(fmt::format("{}: rank {} brings {} of {} along gather_dim, expected {}",
                                     op, r, size, pipeline_.total(), expected));
    }
  }

  bool scaled() const { return a_scale_.defined(); }

  /// The row scales that travel with the shard, in the order of its rows.
  Tensor side() const {
    if (!scaled() || along_last_) return Tensor();
    if (a_scale_.numel() == 1) return a_scale_;
    return ops::contiguous(
        ops::transpose(ops::reshape(a_scale_, Shape{before(), a_.size(dim_), behind()}), 0, 1));
  }
  /// Elements of A's dims before the gathered one, and behind it without the last.
  std::int64_t before() const {
    std::int64_t count = 1;
    for (int d = 0; d < dim_; ++d) count *= a_.size(d);
    return count;
  }
  std::int64_t behind() const {
    std::int64_t count = 1;
    for (int d = dim_ + 1; d + 1 < a_.ndim(); ++d) count *= a_.size(d);
    return count;
  }

  GatherCall call(const char* op, const FusedOptions& options) const {
    GatherCall call;
    call.op = op;
    call.shard = along_last_ ? a_.view() : with_dim_first(a_.view(), dim_);
    if (side_.defined()) call.side = flat(side_);
    call.free_dim = along_last_ ? dim_ : 0;
    call.splits = std::max(options.splits, 1);
    call.symmetric = options.symmetric;
    call.agreed = {{"gather_dim", dim_},
                   {"the inner size of B", terms_.front().b.size(0)},
                   {"the number of Bs", static_cast<std::int64_t>(terms_.size())}};
    // Along the last dim one scale serves the whole product.
    if (scaled() && along_last_ && a_scale_.numel() == 1)
      call.agreed.push_back(
          {"A_scale (its bits)", std::bit_cast<std::int32_t>(a_scale_.data<float>()[0])});
    return call;
  }

  void make_results(const Shape& shape) {
    results_.gathered = empty(context_, shape, a_.dtype());
    for (const ProductTerms& terms : terms_) {
      Shape product = shape;
      product[shape.size() - 1] = terms.b.size(1);
      results_.products.push_back(empty(context_, product, terms.out));
    }
    if (!scaled() || by_pieces_) return;
    row_scales_ = a_scale_;
    if (along_last_) return;
    Shape rows = shape;
    rows[shape.size() - 1] = 1;
    row_scales_ = empty(context_, rows, DType::kFloat32);
  }

  /// Where the piece lies in a tensor of the gathered shape, as the piece lies.
  TensorView place(const TensorView& whole, const GatherPiece& piece) const {
    const std::int64_t begin = pipeline_.begin(piece.source), count = piece.rows.size(0);
    if (along_last_)
      return range_of_dim(rows_of(whole, piece.first_row, count), dim_, begin,
                          pipeline_.shape(piece.source).back());
    return with_dim_first(range_of_dim(whole, dim_, begin + piece.first_row, count), dim_);
  }

  void join(const GatherPiece& piece) {
    const kernels::KernelContext& kernel = context_.kernel_context();
    context_.backend().copy(kernel, place(results_.gathered.view(), piece), piece.rows);
    if (!scaled() || by_pieces_ || along_last_) return;
    const TensorView scales = place(row_scales_.view(), piece);
    TensorView source{piece.side.data, DType::kFloat32, scales.shape, {}, kCpuDevice};
    source.strides = contiguous_strides(scales.shape);
    if (piece.side.numel() == 1)
      for (int d = 0; d < source.ndim(); ++d) source.strides[d] = 0;
    context_.backend().copy(kernel, scales, source);
  }

  void multiply_piece(const GatherPiece& piece) {
    TensorView rows = folded_rows(piece.rows);
    Tensor wide;
    if (is_float8(rows.dtype) && !takes_float8(context_)) {
      wide = empty(context_, rows.shape, decoded_dtype(context_, rows.size(1)));
      context_.backend().copy(context_.kernel_context(), wide.view(), rows);
      rows = wide.view();
    }
    const TensorView factors =
        factors_of(piece.side, piece.first_row * before() * behind(), rows.size(0));
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      const TensorView there = place(results_.products[i].view(), piece);
      if (there.contiguous()) {
        terms_[i].run(context_, folded_rows(there), rows, factors);
        continue;
      }
      const Tensor product = empty(context_, there.shape, terms_[i].out);
      terms_[i].run(context_, folded_rows(product.view()), rows, factors);
      context_.backend().copy(context_.kernel_context(), there, product.view());
    }
  }

  ExecutionContext& context_;
  Tensor a_;
  int dim_;
  bool along_last_, by_pieces_;
  std::vector<ProductTerms> terms_;
  Tensor a_scale_;  ///< contiguous; undefined: plain
  Tensor side_;
  GatherPipeline pipeline_;
  Tensor row_scales_;  ///< of all rows of the gathered A, where there is one product
  GatheredProducts results_;
};

void check_gather(const char* op, const SymmetricGroup& group, const Tensor& a,
                  std::span<const Tensor> bs, int splits) {
  check(!bs.empty(), "{}: no B", op);
  for (const Tensor& b : bs) {
    check_matrices(op, a, b);
    check(b.size(0) == bs[0].size(0),
          "{}: B of shape {} and B of shape {}: inner sizes are {} and {}", op, bs[0].shape(),
          b.shape(), bs[0].size(0), b.size(0));
  }
  if (splits != 0) check_splits(op, group, splits);
}

}  // namespace

GatheredProducts fused_all_gather_matmul(SymmetricGroup& group, const Tensor& a,
                                         std::span<const Tensor> bs, std::int64_t gather_dim,
                                         const FusedOptions& options,
                                         std::span<const DType> out_dtypes) {
  check_gather(kPlain, group, a, bs, options.splits);
  check_list(kPlain, "out_dtypes", out_dtypes.size(), bs.size());
  const int dim = normalize_dim(gather_dim, a.ndim(), kPlain, "gather_dim");
  std::vector<ProductTerms> terms;
  for (std::size_t i = 0; i < bs.size(); ++i) {
    if (dim != a.ndim() - 1) check_inner(kPlain, a, bs[i]);
    const DType out = out_dtypes.empty() ? bs[i].dtype() : out_dtypes[i];
    check_plain_dtypes(kPlain, a, bs[i], out);
    terms.push_back({bs[i], {}, {}, {}, out});
  }
  const NoGradGuard no_grad(a.context());
  return GatherProducts(kPlain, group, a, dim, std::move(terms), {}, options).run();
}

GatheredProducts fused_all_gather_scaled_matmul(SymmetricGroup& group, const Tensor& a,
                                                std::span<const Tensor> bs, const Tensor& a_scale,
                                                std::span<const Tensor> b_scales,
                                                std::int64_t gather_dim, const ScaledLists& lists,
                                                const FusedOptions& options) {
  check_gather(kScaled, group, a, bs, options.splits);
  check(b_scales.size() == bs.size(), "{}: {} B_scales for {} Bs", kScaled, b_scales.size(),
        bs.size());
  check_list(kScaled, "biases", lists.biases.size(), bs.size());
  check_list(kScaled, "result_scales", lists.result_scales.size(), bs.size());
  check_list(kScaled, "out_dtypes", lists.out_dtypes.size(), bs.size());
  check_list(kScaled, "use_fast_accum", lists.use_fast_accum.size(), bs.size());
  const int dim = normalize_dim(gather_dim, a.ndim(), kScaled, "gather_dim");
  std::vector<ScaledTerms> given(bs.size());
  for (std::size_t i = 0; i < bs.size(); ++i) {
    if (dim != a.ndim() - 1) check_inner(kScaled, a, bs[i]);
    if (!lists.biases.empty()) given[i].bias = lists.biases[i];
    if (!lists.result_scales.empty()) given[i].result_scale = lists.result_scales[i];
    if (!lists.out_dtypes.empty()) given[i].out_dtype = lists.out_dtypes[i];
    check_scaled(kScaled, a, bs[i], a_scale, b_scales[i]);
    check_scaled_terms(kScaled, bs[i], given[i].bias, given[i].result_scale,
                       given[i].out_dtype.value_or(a.dtype()));
  }
  const NoGradGuard no_grad(a.context());
  std::vector<ProductTerms> terms;
  for (std::size_t i = 0; i < bs.size(); ++i)
    terms.push_back(make_terms(bs[i], b_scales[i], given[i].bias, given[i].result_scale,
                               given[i].out_dtype.value_or(a.dtype())));
  return GatherProducts(kScaled, group, a, dim, std::move(terms), a_scale, options).run();
}

}  // namespace meshloom::comm
