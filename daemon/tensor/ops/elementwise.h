// SPDX-License-Identifier: Apache-2.0
// Pointwise ops with broadcasting. Inputs of a binary op have one dtype.
#pragma once

#include "daemon/tensor/tensor.h"
#include "kernels/base/philox.h"

namespace meshloom::ops {

/// These take two tensors of one floating dtype whose shapes broadcast as NumPy's do, and give one
/// of that dtype. Throws InvalidArgument naming the op and the dtypes or shapes for others.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);

/// These functions take a number on one side, and a floating tensor as those below do.
Tensor add(const Tensor& x, double value);
Tensor sub(const Tensor& x, double value);
Tensor sub(double value, const Tensor& x);
Tensor mul(const Tensor& x, double value);
Tensor div(const Tensor& x, double value);
Tensor div(double value, const Tensor& x);

/// Each takes a floating tensor of any shape and gives one of its shape and dtype. Throws
/// InvalidArgument naming the op for another dtype.
Tensor neg(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor pow(const Tensor& x, double exponent);
Tensor relu(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor silu(const Tensor& x);
/// Computes, with tanh_approximation, 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); else the
/// erf form.
Tensor gelu(const Tensor& x, bool tanh_approximation);
/// Computes silu(gate) * up. Throws InvalidArgument unless both have one shape and one floating
/// dtype.
Tensor swiglu(const Tensor& gate, const Tensor& up);

/// Takes a where `condition`, which is bool, is true, else b; all three broadcast. a and b have one
/// dtype, any. Throws InvalidArgument for others.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// Returns x with `value` where `mask`, which is bool and broadcasts to x, is true. Throws
/// InvalidArgument for another mask.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
/// Both give x, of at least two dims, with 0 on one side of a diagonal of its last two: triu below
/// it, tril above. `diagonal` counts from the main one to the right. Throws InvalidArgument for
/// fewer dims.
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);

/// Zeroes elements with probability p and scales the rest by 1 / (1 - p); element i of the global
/// tensor draws value first_index + i of `random`, so every sharding gives the same mask. p 0:
/// returns x. Throws InvalidArgument for p outside [0, 1) and for x of no floating dtype.
Tensor dropout(const Tensor& x, double p, const PhiloxStream& random,
               std::uint64_t first_index = 0);

/// Returns x in another dtype; the gradient comes back in x's. Same dtype: returns x.
Tensor cast(const Tensor& x, DType dtype);

}  // namespace meshloom::ops
