// SPDX-License-Identifier: Apache-2.0
// What every block of an attention call has in common, whether the keys lie in one block or many.
#pragma once

#include "daemon/tensor/ops/attention.h"
#include "planner/sharding/op_call.h"

namespace meshloom::ops {

/// AttentionPart is the part of an attention call that a rank has, as the kernel is told of it.
/// Positions, documents and the view of the bias are those of a block: whoever runs one adds them.
struct AttentionPart {
  Tensor bias;    ///< float32; undefined if there is none
  Tensor slopes;  ///< of this rank's query heads
  kernels::AttentionOptions options;

  /// q [B,h,n,D]: this rank's queries; `place` by planner::AttentionDim.
  AttentionPart(const Tensor& q, const SdpaOptions& given, const Dims& place);
};

/// Returns x [B,H,n,D] without its gradient, its rows dense as kernels want them.
Tensor dense_rows(const Tensor& x);
/// Returns those of this rank's kv heads [B,h,n,D] that its `count` query heads read: one kv head
/// per equal number of query heads.
Tensor heads_read(const Tensor& kv, std::int64_t count, const Dims& place);

}  // namespace meshloom::ops
