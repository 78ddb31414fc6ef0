// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/linear_cross_entropy.h"

#include <algorithm>

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

// Chunks depend on the shapes alone: as few as fit, of nearly equal size.
std::int64_t rows_per_chunk(std::int64_t rows, std::int64_t vocabulary, std::size_t element) {
  const std::int64_t row_bytes = vocabulary * static_cast<std::int64_t>(element);
  const std::int64_t most = std::clamp<std::int64_t>(kLogitsBytes / row_bytes, 1, rows);
  const std::int64_t chunks = (rows + most - 1) / most;
  return (rows + chunks - 1) / chunks;
}

TensorView row_range(const TensorView& view, std::int64_t begin, std::int64_t rows) {
  TensorView part = view;
  part.data = view.as<std::byte>() +
              begin * view.stride(0) * static_cast<std::int64_t>(dtype_size(view.dtype));
  part.shape[0] = rows;
  return part;
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

// The views of one chunk of rows.
struct Chunk {
  TensorView losses, dhidden, hidden, targets;
  TensorView logits;    // float32, or float64 for float64; becomes the logits' gradient
  TensorView gradient;  // that gradient as the products take it: a bfloat16 copy, or logits itself
  TensorView lse;       // of the logits' dtype
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
  const bool wide = like.dtype == DType::kFloat64;
  const void* one = wide ? static_cast<const void*>(&kOneDouble) : &kOne;
  return {const_cast<void*>(one),
          wide ? DType::kFloat64 : DType::kFloat32,
          {1, count},
          {0, 0},
          kCpuDevice};
}

void run_chunk(const KernelContext& context, const Chunk& chunk, const Parameters& parameters,
               const CrossEntropyOptions& options, bool accumulate) {
  matmul(context, chunk.logits, chunk.hidden, transposed(parameters.weight),
         projection(parameters.bias));
  cross_entropy(context, chunk.losses, chunk.lse, chunk.logits, chunk.targets, options);
  if (options.slice.total > 0) options.slice.combine(chunk.losses, chunk.lse, chunk.targets);
  const bool with_weight = parameters.dweight.defined(), with_bias = parameters.dbias.defined();
  if (!chunk.dhidden.defined() && !with_weight && !with_bias) return;
  cross_entropy_backward(context, chunk.logits, {}, chunk.logits, chunk.lse, chunk.targets,
                         options);
  if (chunk.gradient.data != chunk.logits.data) copy(context, chunk.gradient, chunk.logits);
  if (chunk.dhidden.defined())
    matmul(context, chunk.dhidden, chunk.gradient, parameters.weight, {});
  if (with_weight)
    matmul(context, parameters.dweight, transposed(chunk.gradient), chunk.hidden,
           adding(accumulate));
  if (with_bias)
    matmul(context, as_row(parameters.dbias), ones(chunk.logits, chunk.logits.size(0)),
           chunk.logits, adding(accumulate));
}

// The most any product of a chunk takes.
std::size_t inner_bytes(Threads threads, const Chunk& chunk, const Parameters& parameters) {
  std::size_t bytes = 0;
  const auto include = [&](const TensorView& y, const TensorView& a, const TensorView& b,
                           const MatmulOptions& options) {
    bytes = std::max(bytes, matmul_workspace_bytes(threads, y, a, b, options));
  };
  include(chunk.logits, chunk.hidden, transposed(parameters.weight), projection(parameters.bias));
  if (chunk.dhidden.defined()) include(chunk.dhidden, chunk.gradient, parameters.weight, {});
  for (const bool accumulate : {false, true}) {
    if (parameters.dweight.defined())
      include(parameters.dweight, transposed(chunk.gradient), chunk.hidden, adding(accumulate));
    if (parameters.dbias.defined())
      include(as_row(parameters.dbias), ones(chunk.logits, chunk.logits.size(0)), chunk.logits,
              adding(accumulate));
  }
  return bytes;
}

// Whether the products run in bfloat16: then they want the logits' gradient in it as well.
bool narrow_gradient(Threads threads, const TensorView& hidden, const TensorView& weight) {
  Gemm gemm;
  gemm.m = weight.size(0);
  gemm.n = weight.size(1);
  gemm.k = hidden.size(0);
  return hidden.dtype == DType::kBFloat16 &&
         choose_matmul_provider(cpu_class(), hidden.dtype, gemm, threads) ==
             MatmulProvider::kOneDnnMatmul;
}

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
  const DType logits_dtype = hidden.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const bool narrow = narrow_gradient(context.threads, hidden, weight);
  const std::size_t element = dtype_size(logits_dtype) + (narrow ? sizeof(bfloat16) : 0);
  const std::int64_t widest = options.slice.total > 0 ? options.slice.widest : vocabulary;
  const std::int64_t most = rows_per_chunk(rows, widest, element);
  const Parameters parameters{dweight, dbias, weight, bias};
  // Scratch pointers may be null where only sizes are asked for.
  const auto chunk_at = [&](std::int64_t begin, std::byte* logits, bfloat16* gradient,
                            std::byte* lse) {
    const std::int64_t count = std::min(most, rows - begin);
    const TensorView all = make_view(logits, logits_dtype, {count, vocabulary});
    return Chunk{row_range(losses, begin, count),
                 dhidden.defined() ? row_range(dhidden, begin, count) : dhidden,
                 row_range(hidden, begin, count),
                 row_range(targets, begin, count),
                 all,
                 narrow ? make_view(gradient, DType::kBFloat16, {count, vocabulary}) : all,
                 make_view(lse, logits_dtype, {count})};
  };
  const auto logits_bytes = static_cast<std::int64_t>(dtype_size(logits_dtype)) * most * vocabulary;
  const auto lse_bytes = static_cast<std::int64_t>(dtype_size(logits_dtype)) * most;
  const std::int64_t narrow_elements = narrow ? most * vocabulary : 0;
  const std::size_t own_bytes = piece_bytes<std::byte>(logits_bytes) +
                                piece_bytes<bfloat16>(narrow_elements) +
                                piece_bytes<std::byte>(lse_bytes);
  std::size_t inner = 0;
  for (const std::int64_t begin : {std::int64_t{0}, (rows - 1) / most * most})
    inner = std::max(inner, inner_bytes(context.threads, chunk_at(begin, nullptr, nullptr, nullptr),
                                        parameters));
  SpanCutter cutter(reserve_workspace(context, own_bytes + inner, "linear_cross_entropy"));
  auto* logits = cutter.take<std::byte>(logits_bytes);
  auto* gradient = cutter.take<bfloat16>(narrow_elements);
  auto* lse = cutter.take<std::byte>(lse_bytes);
  SpanWorkspace rest(cutter.rest());
  const KernelContext inner_context{context.threads, context.stream, &rest};
  for (std::int64_t begin = 0; begin < rows; begin += most)
    run_chunk(inner_context, chunk_at(begin, logits, gradient, lse), parameters, options,
              accumulate_params || begin > 0);
}

}  // namespace meshloom::kernels::cpu
