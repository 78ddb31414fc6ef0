// SPDX-License-Identifier: Apache-2.0
// Pointwise ops with broadcasting. Inputs of a binary op have one dtype.
#pragma once

#include "daemon/tensor/tensor.h"
#include "kernels/base/philox.h"

namespace meshloom::ops {

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);

/// These functions take a number on one side.
Tensor add(const Tensor& x, double value);
Tensor sub(const Tensor& x, double value);
Tensor sub(double value, const Tensor& x);
Tensor mul(const Tensor& x, double value);
Tensor div(const Tensor& x, double value);
Tensor div(double value, const Tensor& x);

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
/// tanh_approximation: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); else the erf form.
Tensor gelu(const Tensor& x, bool tanh_approximation);
/// silu(gate) * up.
Tensor swiglu(const Tensor& gate, const Tensor& up);

/// condition is bool; all three broadcast.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
/// mask is bool and broadcasts to x.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
Tensor triu(const Tensor& x, std::int64_t diagonal = 0);
Tensor tril(const Tensor& x, std::int64_t diagonal = 0);

/// Zeroes elements with probability p and scales the rest by 1 / (1 - p); element i of the global
/// tensor draws value first_index + i of `random`, so every sharding gives the same mask. p 0:
/// returns x.
Tensor dropout(const Tensor& x, double p, const PhiloxStream& random,
               std::uint64_t first_index = 0);

/// Returns x in another dtype; the gradient comes back in x's. Same dtype: returns x.
Tensor cast(const Tensor& x, DType dtype);

}  // namespace meshloom::ops
