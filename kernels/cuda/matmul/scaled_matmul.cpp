// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/scaled_matmul.h"

#include <optional>

#include "kernels/cuda/host_views.h"
#include "kernels/cuda/matmul/product.h"
#include "kernels/cuda/matmul/scale_product_launch.h"
#include "kernels/cuda/scratch.h"
#include "kernels/scaled_product.h"

namespace meshloom::kernels::cuda {
namespace {

ScaleProduct scale_product(const TensorView& y, const TensorView& sums,
                           const MatmulOptions& options) {
  const ProductScales& scales = options.scales;
  ScaleProduct call;
  call.y = y.data;
  call.dtype = y.dtype;
  call.sums = sums.as<const float>();
  call.rows = y.size(0);
  call.columns = y.size(1);
  call.row_scales = {scales.rows.as<const float>(), factor_stride(scales.rows)};
  call.column_scales = {scales.columns.as<const float>(), factor_stride(scales.columns)};
  call.result_scale = scales.result.as<const float>();
  if (options.epilogue == Epilogue::kBias)
    call.bias = {options.bias.as<const float>(), options.bias.stride(0)};
  return call;
}

}  // namespace

void scaled_matmul(Backend& copies, int device, const KernelContext& context, const TensorView& y,
                   const TensorView& a, const TensorView& b, const MatmulOptions& options) {
  check_scaled_product(y, a, options);
  const bool own = y.dtype != DType::kFloat32;
  const auto sums_in = [&](void* memory) {
    return own ? make_view(memory, DType::kFloat32, y.shape, y.device) : y;
  };
  const bool has_terms = a.size(1) > 0;
  const std::size_t product_bytes =
      has_terms ? Product(copies, device, sums_in(nullptr), a, b, {}).scratch_bytes() : 0;
  const std::size_t sums_bytes = own ? scratch_piece(sums_in(nullptr).bytes()) : 0;
  const std::span<std::byte> scratch =
      reserve_scratch(context, sums_bytes + product_bytes, "matmul");
  const TensorView sums = sums_in(scratch.data());
  if (has_terms)
    Product(copies, device, sums, a, b, {}).run(context, scratch.last(product_bytes));
  else
    copies.fill(context, sums, 0.0);
  launch_scale_product(scale_product(y, sums, options), stream_of(context));
}

}  // namespace meshloom::kernels::cuda
