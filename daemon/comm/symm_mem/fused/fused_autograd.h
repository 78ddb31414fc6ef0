// SPDX-License-Identifier: Apache-2.0
// The fused products with gradients: the backward of a gather and product is a product and
// reduce_scatter, and the other way round.
#pragma once

#include <span>

#include "daemon/comm/symm_mem/fused/fused_matmul.h"

namespace meshloom::comm {

/// The recorded products do this beside the plain ones.
struct RecordOptions {
  /// The Bs are [N, K], as most linear layers hold their weights. Their gradients go straight into
  /// leaves either way.
  bool b_is_out_in = false;
  /// If true, backward of a gather keeps the shard instead of the gathered A, and gathers it again
  /// for the gradients of the Bs. All ranks alike.
  bool gather_again = false;
};

/// Does what fused_all_gather_matmul does, and records it where A or a B requires a gradient (on
/// all ranks the same ones, and backward runs on all). The gathered A, which backward keeps for the
/// gradients of the Bs, has a gradient too. dA sums what all ranks make of it. Shards follow the
/// ceil rule.
GatheredProducts all_gather_matmul(SymmetricGroup& group, const Tensor& a,
                                   std::span<const Tensor> bs, std::int64_t gather_dim,
                                   const FusedOptions& options = {},
                                   const RecordOptions& record = {});

/// Does what fused_matmul_reduce_scatter does, and records it as all_gather_matmul does.
Tensor matmul_reduce_scatter(SymmetricGroup& group, const Tensor& a, const Tensor& b,
                             ReduceOp reduce_op, std::int64_t scatter_dim,
                             const FusedOptions& options = {}, const RecordOptions& record = {});

}  // namespace meshloom::comm
