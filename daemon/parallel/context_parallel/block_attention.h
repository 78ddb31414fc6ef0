// SPDX-License-Identifier: Apache-2.0
// BlockAttention: this rank's queries against the keys of all members of a plan, block by block.
#pragma once

#include <memory>

#include "daemon/parallel/context_parallel/sequence_plan.h"
#include "daemon/tensor/ops/attention_part.h"
#include "planner/attention/rotate.h"

namespace meshloom::parallel {

/// BlockCall holds the queries, keys and values of one call after heads were exchanged, and what
/// the kernel is told of them. Tensors have dense rows and no gradient.
struct BlockCall {
  std::shared_ptr<const SequencePlan> plan;
  planner::Rotate rotate = planner::Rotate::kPull;
  Collectives* collectives = nullptr;
  Tensor q, k, v;
  ops::AttentionPart part;
};

/// Returns o [B,H,n,Dv] in q's dtype and lse [B,H,n] in float32. All members call it; the keys of
/// others arrive while those before are attended to.
ops::SdpaResult attend_blocks(const BlockCall& call);

struct BlockGrads {
  Tensor dq, dk, dv;  ///< float32
  Tensor dbias;       ///< float32, of the shape of the bias; undefined if it was not wanted
};
/// Keys come once more, gradients of keys and values go back to their owners. All members call it.
BlockGrads attend_blocks_backward(const BlockCall& call, const ops::SdpaResult& result,
                                  const Tensor& grad_o, bool wants_bias);

}  // namespace meshloom::parallel
