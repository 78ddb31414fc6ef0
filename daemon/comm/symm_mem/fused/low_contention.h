// SPDX-License-Identifier: Apache-2.0
// Collectives whose receivers fetch what they need from the memory of the others: a rank that
// computes is asked for nothing but its shard.
#pragma once

#include <memory>

#include "daemon/comm/symm_mem/symmetric_group.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::comm {

/// Returns the shards of all ranks joined along dim 0, where their sizes may differ. Every rank
/// calls it with at least one dim and any strides; any dtype. `symmetric`: the rendezvous of the
/// shards, where they lie in symmetric memory (on all ranks, or none); then nothing is copied but
/// to the result.
Tensor low_contention_all_gather(SymmetricGroup& group, const Tensor& shard,
                                 std::shared_ptr<SymmetricBuffer> symmetric = nullptr);

/// This rank's rows (dim 0, by the ceil rule) of the reduction of every rank's x, in rank order and
/// rounded once. x has the same shape on all ranks; op and dtype as ProcessGroup::reduce_scatter
/// takes them; `symmetric` as above. Refusals come before anything is written.
Tensor low_contention_reduce_scatter(SymmetricGroup& group, const Tensor& x, ReduceOp reduce_op,
                                     std::shared_ptr<SymmetricBuffer> symmetric = nullptr);

}  // namespace meshloom::comm
