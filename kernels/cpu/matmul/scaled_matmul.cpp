// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/scaled_matmul.h"

#include "kernels/base/parallel_for.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/span_workspace.h"
#include "kernels/scaled_product.h"

namespace meshloom::kernels::cpu {
namespace {

bool has_own_sums(const TensorView& y) { return y.dtype != DType::kFloat32; }

TensorView sums_in(const TensorView& y, void* memory) {
  return has_own_sums(y) ? make_view(memory, DType::kFloat32, y.shape) : y;
}

void apply_scales(Threads threads, const TensorView& sums, const MatmulOptions& options) {
  constexpr std::int64_t kGrain = 32 * 1024;
  static constexpr float kOne = 1.0f;
  const auto data = [](const TensorView& factors) {
    return factors.defined() ? factors.as<const float>() : &kOne;
  };
  const ProductScales& scales = options.scales;
  const float *rows = data(scales.rows), *of_column = data(scales.columns);
  const float result = *data(scales.result);
  const std::int64_t row_stride = factor_stride(scales.rows);
  const std::int64_t column_stride = factor_stride(scales.columns);
  const float* bias = options.epilogue == Epilogue::kBias ? options.bias.as<float>() : nullptr;
  const std::int64_t bias_stride = bias != nullptr ? options.bias.stride(0) : 0;
  const std::int64_t columns = sums.size(1);
  parallel_for(threads, sums.size(0), kGrain / columns + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   float* const row = sums.as<float>() + i * columns;
                   const float scale = rows[i * row_stride];
                   for (std::int64_t j = 0; j < columns; ++j) {
                     float value = row[j] * scale * of_column[j * column_stride];
                     if (bias != nullptr) value += bias[j * bias_stride];
                     row[j] = value * result;
                   }
                 }
               });
}

}  // namespace

void scaled_matmul(const KernelContext& context, const TensorView& y, const TensorView& a,
                   const TensorView& b, const MatmulOptions& options) {
  check_scaled_product(y, a, options);
  SpanCutter cutter(reserve_workspace(
      context, scaled_matmul_workspace_bytes(context.threads, y, a, b, options), "matmul"));
  const TensorView sums = sums_in(y, has_own_sums(y) ? cutter.take<float>(y.numel()) : nullptr);
  SpanWorkspace rest(cutter.rest());
  KernelContext inner = context;
  inner.workspace = &rest;
  cpu_backend().matmul(inner, sums, a, b, {});
  apply_scales(context.threads, sums, options);
  if (has_own_sums(y)) cpu_backend().copy(inner, y, sums);
}

std::size_t scaled_matmul_workspace_bytes(Threads threads, const TensorView& y, const TensorView& a,
                                          const TensorView& b, const MatmulOptions&) {
  const std::size_t own = has_own_sums(y) ? piece_bytes<float>(y.numel()) : 0;
  return own + matmul_workspace_bytes(threads, sums_in(y, nullptr), a, b, {});
}

}  // namespace meshloom::kernels::cpu
