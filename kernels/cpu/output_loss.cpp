// SPDX-License-Identifier: Apache-2.0
// Output projection and cross entropy by chunks of rows: the calls of Backend of the same names.
#include "kernels/cpu/cpu_backend.h"

#include <algorithm>

#include "kernels/base/half.h"
#include "kernels/base/loss_pieces.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/matmul_table.h"
#include "kernels/cpu/span_workspace.h"

namespace meshloom::kernels::cpu {
namespace {

// What rows of bfloat16 gradients are padded to: the products lose a third of their rate if rows
// do not begin at a cache line.
constexpr std::int64_t kLineColumns = 64;

TensorView as_row(const TensorView& view) {
  return {view.data, view.dtype, {1, view.size(0)}, {view.size(0), view.stride(0)}, view.device};
}

MatmulOptions adding(bool accumulate) {
  MatmulOptions options;
  options.beta = accumulate ? 1.0f : 0.0f;
  return options;
}

// 1 in every element, for sums by matmul.
TensorView ones(const TensorView& like, std::int64_t count) {
  static constexpr float kOne = 1.0f;
  static constexpr double kOneDouble = 1.0;
  static constexpr std::uint16_t kOneBits = 0x3f80;  // of bfloat16
  const void* one = &kOne;
  if (like.dtype == DType::kFloat64) one = &kOneDouble;
  if (like.dtype == DType::kBFloat16) one = &kOneBits;
  return {const_cast<void*>(one), like.dtype, {1, count}, {0, 0}, kCpuDevice};
}

std::int64_t padded_row(std::int64_t columns) {
  return (columns + kLineColumns - 1) / kLineColumns * kLineColumns;
}

// Columns of bfloat16 gradients that go through the products at a time; of others all.
std::int64_t panel_columns(const TensorView& gradient) {
  const std::int64_t columns = std::max<std::int64_t>(gradient.size(1), 1);
  if (gradient.dtype != DType::kBFloat16) return columns;
  return rows_per_piece(padded_row(columns) / kLineColumns, kLineColumns, kLogitPanelColumns) *
         kLineColumns;
}

struct Products {
  TensorView dhidden, dweight, dbias, gradient, hidden, weight;
  std::int64_t panel;
};

// Calls product(y, a, b, options) for each that the gradients take part in, by panels of the
// vocabulary.
template <typename Product>
void for_products(const Products& p, bool accumulate, Product&& product) {
  const std::int64_t vocabulary = p.gradient.size(1);
  std::int64_t begin = 0;
  // Once also if this rank's slice of the vocabulary is empty: its share of dhidden is 0.
  do {
    const std::int64_t count = std::min(p.panel, vocabulary - begin);
    const TensorView gradient =
        transposed_matrix(rows_of(transposed_matrix(p.gradient), begin, count));
    if (p.dhidden.defined())
      product(p.dhidden, gradient, rows_of(p.weight, begin, count), adding(begin > 0));
    if (p.dweight.defined())
      product(rows_of(p.dweight, begin, count), transposed_matrix(gradient), p.hidden,
              adding(accumulate));
    begin += p.panel;
  } while (begin < vocabulary);
  if (p.dbias.defined())
    product(as_row(p.dbias), ones(p.gradient, p.gradient.size(0)), p.gradient, adding(accumulate));
}

}  // namespace

OutputLossPlan CpuBackend::output_loss_plan(const TensorView& hidden, const TensorView& weight,
                                            std::int64_t widest) const {
  const std::int64_t rows = hidden.size(0);
  OutputLossPlan plan;
  plan.row = std::max<std::int64_t>(weight.size(0), 1);
  if (rows == 0) return plan;
  if (hidden.dtype == DType::kFloat64) plan.logits = DType::kFloat64;
  plan.gradient = plan.logits;
  const std::int64_t logits_row = widest * static_cast<std::int64_t>(dtype_size(plan.logits));
  Gemm product;
  product.m = weight.size(0);
  product.n = weight.size(1);
  product.k = rows;
  // If the products run in bfloat16, they want the logits' gradient in it as well.
  const bool halves = hidden.dtype == DType::kBFloat16 &&
                      takes_bfloat16(choose_matmul_provider(cpu_class(), hidden.dtype, product));
  if (halves) {
    plan.gradient = DType::kBFloat16;
    plan.row = padded_row(plan.row);
  }
  const LossPieces pieces = host_loss_pieces(rows, logits_row, halves);
  plan.block = pieces.block;
  plan.chunk = pieces.chunk;
  return plan;
}

void CpuBackend::output_loss_chunk(const KernelContext& context, const CrossEntropyRows& rows,
                                   const OutputProjection& projection,
                                   const CrossEntropyOptions& options) {
  MatmulOptions product;
  if (projection.bias.defined()) {
    product.epilogue = Epilogue::kBias;
    product.bias = projection.bias;
  }
  matmul(context, rows.logits, projection.hidden, transposed_matrix(projection.weight), product);
  cross_entropy(context, rows, options);
}

void CpuBackend::output_loss_products(const KernelContext& context, const OutputLossGrads& grads,
                                      const TensorView& gradient,
                                      const OutputProjection& projection) {
  const auto& [hidden, weight, bias] = projection;
  const auto& [dhidden, dweight, dbias, accumulate_params] = grads;
  Products products{dhidden, dweight, dbias, gradient, hidden, weight, panel_columns(gradient)};
  // Sums over several panels are kept in float32.
  const bool in_panels = dhidden.defined() && products.panel < gradient.size(1);
  const std::int64_t sums = in_panels ? hidden.numel() : 0;
  const auto sums_at = [&](float* data) {
    if (in_panels) products.dhidden = make_view(data, DType::kFloat32, hidden.shape);
  };
  // Only sizes are asked for: any memory stands for the scratch to come.
  sums_at(hidden.as<float>());
  std::size_t inner = 0;
  for_products(products, accumulate_params,
               [&](const TensorView& y, const TensorView& a, const TensorView& b,
                   const MatmulOptions& options) {
                 inner = std::max(inner, matmul_workspace_bytes(context.threads, y, a, b, options));
               });
  SpanCutter cutter(
      reserve_workspace(context, piece_bytes<float>(sums) + inner, "output_loss_products"));
  sums_at(cutter.take<float>(sums));
  SpanWorkspace rest(cutter.rest());
  const KernelContext inner_context{context.threads, context.stream, &rest};
  for_products(products, accumulate_params,
               [&](const TensorView& y, const TensorView& a, const TensorView& b,
                   const MatmulOptions& options) { matmul(inner_context, y, a, b, options); });
  if (in_panels) copy(inner_context, dhidden, products.dhidden);
}

}  // namespace meshloom::kernels::cpu
