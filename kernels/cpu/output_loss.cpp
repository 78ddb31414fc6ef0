// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linear_cross_entropy.h"

#include <algorithm>
#include <set>

#include "kernels/base/half.h"
#include "kernels/cpu/copy.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matmul_table.h"
#include "kernels/cpu/span_workspace.h"

namespace meshloom::kernels::cpu {
namespace {

// Room for one chunk of logits: 256 rows of GPT-2's 50257 columns. Larger chunks read and write
// dweight fewer times (once per chunk).
constexpr std::int64_t kLogitsBytes = 52 << 20;
// In bfloat16 dweight is written once per block of the logits' gradients, half as large as logits,
// and a chunk of logits is but a way to them: it stays in the last-level cache.
constexpr std::int64_t kGradientBytes = 40 << 20;
constexpr std::int64_t kPassingLogitsBytes = 24 << 20;

// Columns of those gradients that go through the products at a time, so that both find them in the
// cache, and what their rows are padded to: the products lose a third of their rate where rows do
// not begin at a cache line.
constexpr std::int64_t kPanelColumns = 8192;
constexpr std::int64_t kLineColumns = 64;

// Pieces depend on the shapes alone: as few as fit, of nearly equal size.
std::int64_t rows_per_piece(std::int64_t rows, std::int64_t row_bytes, std::int64_t piece_bytes) {
  const std::int64_t most = std::clamp<std::int64_t>(piece_bytes / row_bytes, 1, rows);
  const std::int64_t pieces = (rows + most - 1) / most;
  return (rows + pieces - 1) / pieces;
}

TensorView transposed(const TensorView& view) {
  return {view.data,
          view.dtype,
          {view.size(1), view.size(0)},
          {view.stride(1), view.stride(0)},
          view.device};
}

TensorView as_row(const TensorView& view) {
  return {view.data, view.dtype, {1, view.size(0)}, {view.size(0), view.stride(0)}, view.device};
}

struct Parameters {
  TensorView dweight, dbias, weight, bias;
};

// One chunk of rows: from their logits to the gradients of those.
struct Chunk {
  TensorView losses, hidden, targets;
  TensorView logits;    // float32, or float64 for float64
  TensorView gradient;  // theirs, as the products take it: bfloat16, or in the place of the logits
  TensorView lse;       // of the logits' dtype
};

// One or several chunks, whose gradients go through the products together.
struct Block {
  TensorView hidden, dhidden, gradient;
  TensorView dhidden_sum;  // float32, where dhidden is a sum over several panels; else undefined
};

MatmulOptions projection(const TensorView& bias) {
  MatmulOptions options;
  if (bias.defined()) {
    options.epilogue = Epilogue::kBias;
    options.bias = bias;
  }
  return options;
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

void run_chunk(const KernelContext& context, const Chunk& chunk, const Parameters& parameters,
               const CrossEntropyOptions& options, bool with_gradient) {
  matmul(context, chunk.logits, chunk.hidden, transposed(parameters.weight),
         projection(parameters.bias));
  cross_entropy(context, chunk.losses, chunk.lse, chunk.logits, chunk.targets, options);
  if (options.slice.total > 0) options.slice.combine(chunk.losses, chunk.lse, chunk.targets);
  if (with_gradient)
    cross_entropy_backward(context, chunk.gradient, {}, chunk.logits, chunk.lse, chunk.targets,
                           options);
}

// Calls product(y, a, b, options) for each that the block's gradients take part in, by panels of
// the vocabulary.
template <typename Product>
void for_products(const Block& block, const Parameters& parameters, std::int64_t panel,
                  bool accumulate, Product&& product) {
  const std::int64_t vocabulary = block.gradient.size(1);
  const TensorView& dhidden = block.dhidden_sum.defined() ? block.dhidden_sum : block.dhidden;
  std::int64_t begin = 0;
  // Once also where this rank's slice of the vocabulary is empty: its share of dhidden is 0.
  do {
    const std::int64_t count = std::min(panel, vocabulary - begin);
    const TensorView gradient = transposed(rows_of(transposed(block.gradient), begin, count));
    if (dhidden.defined())
      product(dhidden, gradient, rows_of(parameters.weight, begin, count), adding(begin > 0));
    if (parameters.dweight.defined())
      product(rows_of(parameters.dweight, begin, count), transposed(gradient), block.hidden,
              adding(accumulate));
    begin += panel;
  } while (begin < vocabulary);
  if (parameters.dbias.defined())
    product(as_row(parameters.dbias), ones(block.gradient, block.gradient.size(0)), block.gradient,
            adding(accumulate));
}

// Whether the products run in bfloat16: then they want the logits' gradient in it as well.
bool narrow_gradient(const TensorView& hidden, const TensorView& weight) {
  Gemm gemm;
  gemm.m = weight.size(0);
  gemm.n = weight.size(1);
  gemm.k = hidden.size(0);
  return hidden.dtype == DType::kBFloat16 &&
         takes_bfloat16(choose_matmul_provider(cpu_class(), hidden.dtype, gemm));
}

std::int64_t size_of(DType dtype) { return static_cast<std::int64_t>(dtype_size(dtype)); }

// How rows are cut.
struct LossPieces {
  LossPieces(const TensorView& hidden, const TensorView& weight, const CrossEntropyOptions& options)
      : narrow(narrow_gradient(hidden, weight)) {
    const std::int64_t rows = hidden.size(0);
    // Of all ranks' slices the widest, so that all exchange equally often.
    const std::int64_t widest = options.slice.total > 0 ? options.slice.widest : weight.size(0);
    if (hidden.dtype == DType::kFloat64) logits_dtype = DType::kFloat64;
    gradient_dtype = narrow ? DType::kBFloat16 : logits_dtype;
    const std::int64_t logits_row = widest * size_of(logits_dtype);
    panel = row = std::max<std::int64_t>(weight.size(0), 1);
    if (narrow) {
      row = (row + kLineColumns - 1) / kLineColumns * kLineColumns;
      panel = rows_per_piece(row / kLineColumns, kLineColumns, kPanelColumns) * kLineColumns;
      block = rows_per_piece(rows, widest * size_of(gradient_dtype), kGradientBytes);
      chunk = rows_per_piece(block, logits_row, kPassingLogitsBytes);
    } else {
      block = chunk = rows_per_piece(rows, logits_row, kLogitsBytes);
    }
  }

  TensorView rows_in(std::byte* data, DType dtype, std::int64_t count,
                     std::int64_t vocabulary) const {
    return {data, dtype, {count, vocabulary}, {row, 1}, kCpuDevice};
  }

  // The different ones of a call with so many rows.
  std::set<std::int64_t> chunk_sizes(std::int64_t rows) const {
    std::set<std::int64_t> sizes;
    for (const std::int64_t begin : {std::int64_t{0}, (rows - 1) / block * block}) {
      const std::int64_t count = std::min(block, rows - begin);
      sizes.insert(std::min(chunk, count));
      sizes.insert((count - 1) % chunk + 1);
    }
    return sizes;
  }

  bool narrow;  // gradients of logits are bfloat16
  DType logits_dtype = DType::kFloat32, gradient_dtype = DType::kFloat32;
  std::int64_t block = 0, chunk = 0;  // rows
  std::int64_t panel = 0;             // columns
  std::int64_t row = 0;               // columns from row to row in memory
};

}  // namespace

void linear_cross_entropy(const KernelContext& context, const TensorView& losses,
                          const TensorView& dhidden, const TensorView& dweight,
                          const TensorView& dbias, const TensorView& hidden,
                          const TensorView& weight, const TensorView& bias,
                          const TensorView& targets, const CrossEntropyOptions& options,
                          bool accumulate_params) {
  const std::int64_t rows = hidden.size(0), vocabulary = weight.size(0);
  if (rows == 0) {
    for (const TensorView& gradient : {dweight, dbias})
      if (gradient.defined() && !accumulate_params) fill(context, gradient, 0.0);
    return;
  }
  const LossPieces pieces(hidden, weight, options);
  const Parameters parameters{dweight, dbias, weight, bias};
  const bool with_gradient = dhidden.defined() || dweight.defined() || dbias.defined();
  const bool in_panels = dhidden.defined() && pieces.panel < vocabulary;
  // Where only sizes are asked for, any memory stands for the scratch to come.
  const auto block_at = [&](std::int64_t begin, std::byte* gradient, float* dhidden_sum) {
    const std::int64_t count = std::min(pieces.block, rows - begin);
    Block block{rows_of(hidden, begin, count),
                dhidden.defined() ? rows_of(dhidden, begin, count) : dhidden,
                pieces.rows_in(gradient, pieces.gradient_dtype, count, vocabulary),
                {}};
    if (in_panels) block.dhidden_sum = make_view(dhidden_sum, DType::kFloat32, block.hidden.shape);
    return block;
  };
  const auto logits_at = [&](std::int64_t count, std::byte* logits) {
    return pieces.rows_in(logits, pieces.logits_dtype, count, vocabulary);
  };
  auto* anywhere = hidden.as<std::byte>();
  std::size_t inner = 0;
  const auto include = [&](const TensorView& y, const TensorView& a, const TensorView& b,
                           const MatmulOptions& product) {
    inner = std::max(inner, matmul_workspace_bytes(context.threads, y, a, b, product));
  };
  for (const std::int64_t count : pieces.chunk_sizes(rows))
    include(logits_at(count, anywhere), rows_of(hidden, 0, count), transposed(weight),
            projection(bias));
  for (const std::int64_t begin : {std::int64_t{0}, (rows - 1) / pieces.block * pieces.block})
    for (const bool accumulate : {false, true})
      for_products(block_at(begin, anywhere, hidden.as<float>()), parameters, pieces.panel,
                   accumulate, include);

  const std::int64_t logits_bytes = pieces.chunk * pieces.row * size_of(pieces.logits_dtype);
  const std::int64_t gradient_bytes =
      pieces.narrow ? pieces.block * pieces.row * size_of(pieces.gradient_dtype) : 0;
  const std::int64_t lse_bytes = pieces.chunk * size_of(pieces.logits_dtype);
  const std::int64_t sums = in_panels ? pieces.block * hidden.size(1) : 0;
  const std::size_t own_bytes = piece_bytes<float>(sums) + piece_bytes<std::byte>(logits_bytes) +
                                piece_bytes<std::byte>(gradient_bytes) +
                                piece_bytes<std::byte>(lse_bytes);
  SpanCutter cutter(reserve_workspace(context, own_bytes + inner, "linear_cross_entropy"));
  auto* logits = cutter.take<std::byte>(logits_bytes);
  auto* gradient = cutter.take<std::byte>(gradient_bytes);
  auto* dhidden_sum = cutter.take<float>(sums);
  auto* lse = cutter.take<std::byte>(lse_bytes);
  SpanWorkspace rest(cutter.rest());
  const KernelContext inner_context{context.threads, context.stream, &rest};
  for (std::int64_t begin = 0; begin < rows; begin += pieces.block) {
    const Block block = block_at(begin, pieces.narrow ? gradient : logits, dhidden_sum);
    const std::int64_t end = begin + block.hidden.size(0);
    for (std::int64_t row = begin; row < end; row += pieces.chunk) {
      const std::int64_t count = std::min(pieces.chunk, end - row);
      run_chunk(
          inner_context,
          {rows_of(losses, row, count), rows_of(hidden, row, count), rows_of(targets, row, count),
           logits_at(count, logits), rows_of(block.gradient, row - begin, count),
           make_view(lse, pieces.logits_dtype, {count})},
          parameters, options, with_gradient);
    }
    for_products(block, parameters, pieces.panel, accumulate_params || begin > 0,
                 [&](const TensorView& y, const TensorView& a, const TensorView& b,
                     const MatmulOptions& product) { matmul(inner_context, y, a, b, product); });
    if (in_panels) copy(inner_context, block.dhidden, block.dhidden_sum);
  }
}

}  // namespace meshloom::kernels::cpu
