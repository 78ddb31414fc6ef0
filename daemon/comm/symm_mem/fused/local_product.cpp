// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/fused/local_product.h"

#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/float8_products.h"

namespace meshloom::comm {

bool is_float8(DType dtype) { return dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2; }

void multiply(ExecutionContext& context, const TensorView& y, const TensorView& a,
              const TensorView& b, bool accumulate) {
  if (y.numel() == 0) return;
  if (a.size(1) == 0) {
    if (!accumulate) context.backend().fill(context.kernel_context(), y, 0.0);
    return;
  }
  kernels::MatmulOptions options;
  options.beta = accumulate ? 1.0f : 0.0f;
  context.backend().matmul(context.kernel_context(), y, a, b, options);
}

void multiply_scaled(ExecutionContext& context, const TensorView& y, const TensorView& a,
                     const TensorView& b, const ProductFactors& factors) {
  if (y.numel() == 0) return;
  kernels::MatmulOptions options;
  options.scales = factors.scales;
  options.bias = factors.bias;
  if (factors.bias.defined()) options.epilogue = kernels::Epilogue::kBias;
  context.backend().matmul(context.kernel_context(), y, a, b, options);
}

DType decoded_dtype(const ExecutionContext& context, std::int64_t inner) {
  // bfloat16 holds every float8 number, and products of two are exact in float32 either way.
  return context.backend().fast_dtype(inner);
}

bool takes_float8(const ExecutionContext& context) {
  const auto* const products = dynamic_cast<const kernels::Float8Products*>(&context.backend());
  return products != nullptr && products->takes_float8();
}

Tensor decoded(const Tensor& x, std::int64_t inner) {
  if (!is_float8(x.dtype()) || takes_float8(x.context())) return x;
  const Tensor wide = empty(x.context(), x.shape(), decoded_dtype(x.context(), inner));
  copy_into(wide, x);
  return wide;
}

TensorView flat(const Tensor& x) {
  if (!x.defined()) return {};
  const TensorView view = x.view();
  return make_view(view.data, view.dtype, {view.numel()}, view.device);
}

TensorView factors_of(const TensorView& factors, std::int64_t first, std::int64_t count) {
  return factors.defined() && factors.size(0) != 1 ? rows_of(factors, first, count) : factors;
}

ProductTerms make_terms(const Tensor& b, const Tensor& b_scale, const Tensor& bias,
                        const Tensor& result_scale, DType out) {
  ProductTerms terms{decoded(b, b.size(0)), ops::contiguous(b_scale), {}, {}, out};
  if (bias.defined()) {
    terms.bias = empty(b.context(), bias.shape(), DType::kFloat32);
    copy_into(terms.bias, bias);
  }
  if (result_scale.defined()) terms.result = ops::contiguous(result_scale);
  return terms;
}

void ProductTerms::run(ExecutionContext& context, const TensorView& y, const TensorView& a,
                       const TensorView& rows) const {
  if (!scaled()) return multiply(context, y, a, b.view());
  multiply_scaled(context, y, a, b.view(), {{rows, flat(b_scale), flat(result)}, flat(bias)});
}

}  // namespace meshloom::comm
