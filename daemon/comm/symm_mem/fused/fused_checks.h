// SPDX-License-Identifier: Apache-2.0
// Checks of a rank's own arguments of the fused operations. They throw InvalidArgument naming the
// op, what was given and what was expected.
#pragma once

#include <optional>
#include <span>

#include "daemon/comm/process_group.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::comm {

/// Checks that A has at least two dims, B two, neither has a layout or lies elsewhere than in host
/// memory.
void check_matrices(const char* op, const Tensor& a, const Tensor& b);
/// Checks the inner sizes that this rank sees whole.
void check_inner(const char* op, const Tensor& a, const Tensor& b);
/// Checks that A and B make a product of the same shape and dtype as the first ones.
void check_summands(const char* op, const Tensor& first_a, const Tensor& first_b, const Tensor& a,
                    const Tensor& b);
/// Checks that A and B of a plain product have one floating dtype that is no float8, and that
/// `out`, where given, is that dtype or float32 in the place of a narrower one.
void check_plain_dtypes(const char* op, const Tensor& a, const Tensor& b,
                        const std::optional<DType>& out);
/// Checks that the operation is sum or avg.
void check_reduce_op(const char* op, ReduceOp reduce_op);

/// Checks dtypes and scales of a scaled product, where A is `a` [.., K] and B is `b` [K, N].
void check_scaled(const char* op, const Tensor& a, const Tensor& b, const Tensor& a_scale,
                  const Tensor& b_scale);
void check_scaled_terms(const char* op, const Tensor& b, const Tensor& bias,
                        const Tensor& result_scale, DType out);
/// Checks that a list has one entry per B, or none.
void check_list(const char* op, const char* name, std::size_t entries, std::size_t bs);

}  // namespace meshloom::comm
