// SPDX-License-Identifier: Apache-2.0
// The distributed implementations that come with the ops: what a layout engine registers first.
#pragma once

#include <span>

#include "daemon/tensor/local_call.h"

namespace meshloom::ops {

/// Returns one implementation per op that has any.
std::span<const DistributedOp> distributed_ops();

// --- Each beside its op, or (linear and addmm) in bias_once.cpp
std::vector<Tensor> embedding_by_rows(const LocalCall& call);
std::vector<Tensor> cross_entropy_of_shards(const LocalCall& call);
std::vector<Tensor> linear_cross_entropy_by_vocabulary(const LocalCall& call);
/// Does the work of linear_cross_entropy_by_vocabulary where losses of each target are asked for.
Tensor linear_token_losses_by_vocabulary(const LocalCall& call);
std::vector<Tensor> mean_of_shards(const LocalCall& call);
std::vector<Tensor> linear_with_bias_once(const LocalCall& call);
std::vector<Tensor> addmm_with_bias_once(const LocalCall& call);

}  // namespace meshloom::ops
