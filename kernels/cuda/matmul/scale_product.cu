// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/scale_product_launch.h"

#include "kernels/cuda/primitives/any_element.h"
#include "kernels/cuda/primitives/grid.h"

namespace meshloom::kernels::cuda {
namespace {

constexpr int kScaleThreads = 256;

__device__ __forceinline__ float factor_at(const ScaleFactors& factors, std::int64_t i,
                                           float none) {
  return factors.data != nullptr ? factors.data[i * factors.stride] : none;
}

__global__ void __launch_bounds__(kScaleThreads) scale_product(ScaleProduct call) {
  const float result = call.result_scale != nullptr ? *call.result_scale : 1.0f;
  const std::int64_t count = call.rows * call.columns;
  for (std::int64_t at = grid_thread<kScaleThreads>(); at < count;
       at += grid_threads<kScaleThreads>()) {
    const std::int64_t row = at / call.columns, column = at - row * call.columns;
    const float scaled = call.sums[at] * factor_at(call.row_scales, row, 1.0f) *
                         factor_at(call.column_scales, column, 1.0f);
    store_any(call.dtype, call.y, at, (scaled + factor_at(call.bias, column, 0.0f)) * result);
  }
}

}  // namespace

void launch_scale_product(const ScaleProduct& call, cudaStream_t stream) {
  launch(scale_product, strided_grid(call.rows * call.columns, kScaleThreads), dim3(kScaleThreads),
         0, stream, call);
}

}  // namespace meshloom::kernels::cuda
