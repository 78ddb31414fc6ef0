// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/fused/local_product.h"

#include "daemon/tensor/ops/shape.h"

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

DType decoded_dtype(const ExecutionContext& context, std::int64_t inner) {
  // bfloat16 holds every float8 number, and products of two are exact in float32 either way.
  return context.backend().fast_dtype(inner);
}

Tensor decoded(const Tensor& x, std::int64_t inner) {
  if (!is_float8(x.dtype())) return x;
  const Tensor wide = empty(x.context(), x.shape(), decoded_dtype(x.context(), inner));
  copy_into(wide, x);
  return wide;
}

void apply(Threads threads, const TensorView& x, const Epilogue& epilogue) {
  if (epilogue.empty() || x.numel() == 0) return;
  constexpr std::int64_t kGrain = 32 * 1024;
  const std::int64_t columns = x.size(1);
  static constexpr float kOne = 1.0f;
  const Factors rows = epilogue.rows.data == nullptr ? Factors{&kOne, 0} : epilogue.rows;
  const Factors of_column = epilogue.columns.data == nullptr ? Factors{&kOne, 0} : epilogue.columns;
  parallel_for(threads, x.size(0), kGrain / columns + 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* const row = x.as<float>() + i * columns;
      const float scale = rows.data[i * rows.stride];
      for (std::int64_t j = 0; j < columns; ++j) {
        float value = row[j] * scale * of_column.data[j * of_column.stride];
        if (epilogue.bias != nullptr) value += epilogue.bias[j];
        row[j] = value * epilogue.result;
      }
    }
  });
}

Factors ProductTerms::columns() const {
  if (!b_scale.defined()) return {};
  return {b_scale.data<float>(), b_scale.numel() == 1 ? 0 : 1};
}

Epilogue ProductTerms::epilogue(const Factors& rows) const {
  return {rows, columns(), bias.defined() ? bias.data<float>() : nullptr, result};
}

ProductTerms make_terms(const Tensor& b, const Tensor& b_scale, const Tensor& bias,
                        const Tensor& result_scale, DType out) {
  ProductTerms terms{decoded(b, b.size(0)), ops::contiguous(b_scale), {}, 1.0f, out};
  if (bias.defined()) {
    terms.bias = empty(b.context(), bias.shape(), DType::kFloat32);
    copy_into(terms.bias, bias);
  }
  if (result_scale.defined()) terms.result = result_scale.data<float>()[0];
  return terms;
}

void ProductTerms::run(ExecutionContext& context, const TensorView& y, const TensorView& a,
                       const Factors& rows) const {
  if (!scaled()) return multiply(context, y, a, b.view());
  const Tensor own =
      y.dtype == DType::kFloat32 ? Tensor() : empty(context, y.shape, DType::kFloat32);
  const TensorView sums = own.defined() ? own.view() : y;
  multiply(context, sums, a, b.view());
  apply(context.threads(), sums, epilogue(rows));
  if (own.defined()) context.backend().copy(context.kernel_context(), y, sums);
}

}  // namespace meshloom::comm
