// SPDX-License-Identifier: Apache-2.0
// The product that a rank makes alone inside a fused operation, with the scales of float8 operands.
#pragma once

#include <optional>
#include <vector>

#include "daemon/tensor/tensor.h"

namespace meshloom::comm {

bool is_float8(DType dtype);

/// y [M,N] = a [M,K] b [K,N], or y + that, any of the sizes 0; strides and dtypes as
/// Backend::matmul takes them.
void multiply(ExecutionContext& context, const TensorView& y, const TensorView& a,
              const TensorView& b, bool accumulate = false);

/// What float8 operands with K inner elements are decoded to, without loss.
DType decoded_dtype(const ExecutionContext& context, std::int64_t inner);
/// x in that dtype, contiguous; x itself, of any strides, where it is not float8.
Tensor decoded(const Tensor& x, std::int64_t inner);

/// Factors of rows, or of columns: one for all (stride 0) or one each.
struct Factors {
  const float* data = nullptr;  ///< null: none
  std::int64_t stride = 0;

  Factors from(std::int64_t first) const {
    return data == nullptr ? *this : Factors{data + first * stride, stride};
  }
};

/// x = (x * rows[i] * columns[j] + bias[j]) * result, in place; x float32 [M,N] contiguous.
struct Epilogue {
  Factors rows, columns;
  const float* bias = nullptr;  ///< null: none
  float result = 1.0f;

  bool empty() const {
    return rows.data == nullptr && columns.data == nullptr && bias == nullptr && result == 1.0f;
  }
};
void apply(Threads threads, const TensorView& x, const Epilogue& epilogue);

/// One B of a fused operation with what belongs to it, made ready once.
struct ProductTerms {
  Tensor b;        ///< [K,N], decoded
  Tensor b_scale;  ///< float32 contiguous, one element or N; undefined: not scaled
  Tensor bias;     ///< float32 [N] or undefined
  float result = 1.0f;
  DType out = DType::kFloat32;

  bool scaled() const { return b_scale.defined(); }
  Epilogue epilogue(const Factors& rows) const;
  Factors columns() const;

  /// y [M,N] of the out dtype, contiguous = the whole formula for rows a [M,K] (decoded).
  void run(ExecutionContext& context, const TensorView& y, const TensorView& a,
           const Factors& rows) const;
};

/// Makes ready a float8 B with what belongs to it; bias and result_scale may be undefined.
ProductTerms make_terms(const Tensor& b, const Tensor& b_scale, const Tensor& bias,
                        const Tensor& result_scale, DType out);

}  // namespace meshloom::comm
