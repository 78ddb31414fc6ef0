// SPDX-License-Identifier: Apache-2.0
// The product that a rank makes alone inside a fused operation, with the scales of float8 operands.
#pragma once

#include <optional>
#include <vector>

#include "daemon/tensor/tensor.h"
#include "kernels/options.h"

namespace meshloom::comm {

bool is_float8(DType dtype);

/// Computes y [M,N] = a [M,K] b [K,N], or y + that, any of the sizes 0; strides and dtypes as
/// Backend::matmul takes them.
void multiply(ExecutionContext& context, const TensorView& y, const TensorView& a,
              const TensorView& b, bool accumulate = false);

/// The factors are flat views, float32, or undefined.
struct ProductFactors {
  kernels::ProductScales scales;
  TensorView bias;
};
/// Computes y [M,N] = (a b * rows[i] * columns[j] + bias[j]) * result, contiguous; K may be 0.
void multiply_scaled(ExecutionContext& context, const TensorView& y, const TensorView& a,
                     const TensorView& b, const ProductFactors& factors);

/// Returns the dtype that float8 operands with K inner elements are decoded to, without loss.
DType decoded_dtype(const ExecutionContext& context, std::int64_t inner);
/// Returns whether the backend multiplies float8 operands as they are: then nothing is decoded.
bool takes_float8(const ExecutionContext& context);
/// Returns x in that dtype, contiguous; x itself, of any strides, where it is not float8 or stays
/// so.
Tensor decoded(const Tensor& x, std::int64_t inner);

/// Returns all elements of a contiguous tensor in one dim; of an undefined one an undefined view.
TensorView flat(const Tensor& x);
/// Returns the part of a flat view of factors that belongs to `count` rows, or columns, from
/// `first` on; where one element serves all, or none is given, the view itself.
TensorView factors_of(const TensorView& factors, std::int64_t first, std::int64_t count);

/// ProductTerms is one B of a fused operation with what belongs to it, made ready once.
struct ProductTerms {
  Tensor b;        ///< [K,N], decoded
  Tensor b_scale;  ///< float32 contiguous, one element or N; undefined: not scaled
  Tensor bias;     ///< float32 [N] or undefined
  Tensor result;   ///< float32, one element; undefined: 1
  DType out = DType::kFloat32;

  bool scaled() const { return b_scale.defined(); }

  /// Computes y [M,N] of the out dtype, contiguous = the whole formula for rows a [M,K] (decoded)
  /// with factors of one element or M.
  void run(ExecutionContext& context, const TensorView& y, const TensorView& a,
           const TensorView& rows) const;
};

/// Makes ready a float8 B with what belongs to it; bias and result_scale may be undefined.
ProductTerms make_terms(const Tensor& b, const Tensor& b_scale, const Tensor& bias,
                        const Tensor& result_scale, DType out);

}  // namespace meshloom::comm
