// SPDX-License-Identifier: Apache-2.0
// Matrix products, and linear layers with their fused neighbours.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

/// Multiplies as torch.matmul does: vectors, matrices and broadcast batches, of one floating dtype,
/// which the result has too. Throws InvalidArgument naming op, dtypes and shapes for others, as the
/// two below do.
Tensor matmul(const Tensor& a, const Tensor& b);
/// Multiplies [B,M,K] by [B,K,N], without broadcasting.
Tensor bmm(const Tensor& a, const Tensor& b);
/// Computes input + a b for matrices a [M,K] and b [K,N], with input broadcast to [M,N].
Tensor addmm(const Tensor& input, const Tensor& a, const Tensor& b);

enum class Activation { kNone, kGelu, kGeluTanh };

struct LinearOptions {
  bool weight_is_in_out = false;  ///< weight is [in, out] (GPT-2's files) instead of [out, in]
  /// Applied to x before the product and computed again in backward, so that only the
  /// pre-activation is kept: linear(gelu(x)).
  Activation input_activation = Activation::kNone;
  /// The sums as they are, float32 where x is narrower. Records no gradient.
  bool keep_sums = false;
};

/// x [.., in] times weight (transposed if [out, in]) plus bias [out] (may be undefined). Weight
/// and bias gradients go straight into the leaves' float32 buffers.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& = {});

}  // namespace meshloom::ops
