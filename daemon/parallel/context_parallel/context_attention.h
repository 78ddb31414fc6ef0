// SPDX-License-Identifier: Apache-2.0
// Attention over a sequence that is sharded over ranks.
//
// Sources: Liu, Zaharia, Abbeel, "Ring Attention with Blockwise Transformers", 2023; the merge of
// partial results and the backward from the final lse are Dao, "FlashAttention-2", 2023.
#pragma once

#include <memory>

#include "daemon/dtensor/distributed_engine.h"
#include "daemon/parallel/context_parallel/sequence_plan.h"
#include "planner/attention/context_parallel_plan.h"

namespace meshloom::parallel {

/// The dealer makes the orders of the sequences of calls.
enum class SequenceDealer : std::uint8_t {
  kAnyone,    ///< models: caches of generation have an order of their own
  kBalancer,  ///< the balancer of the plan alone
};

/// From now on attention of tensors of `engine` may be sharded along its sequence: q, k, v and o
/// [B,H,S,D] are S(2) over a mesh dim, in any order of positions, the documents and the key dim of
/// a bias are whole, its query dim goes with q. Every rank's queries are attended to in the order
/// of planner::attention_schedule and in float32; gradients of keys and values are added in a fixed
/// order. Results do not depend on timing.
///
/// Without gradients, bias and documents, k and v may be S(2) in any order while q is whole, as in
/// a cache of generation: then results are merged (attend_to_kept_keys), whatever the plan says.
///
/// The plan's balancer has made the order, of which calls are told by layouts. All ranks of the
/// mesh call it alike, between ops. Throws InvalidArgument if ulysses_degree is given without
/// kUlysses. The op throws InvalidArgument if ulysses_degree does not divide the ranks, and, if
/// `dealer` is kBalancer and the balancer kHeadTail, for causal attention of queries and keys of
/// unlike lengths: heads and tails of the two do not match then.
///
/// Returns the plans that calls share. Document ids whose rows no call tells
/// (ops::SdpaOptions::document_rows) are read once for them (DocumentReader).
std::shared_ptr<SequencePlanCache> enable_context_parallel(
    dtensor::DistributedEngine& engine, const planner::ContextParallelPlan& plan,
    SequenceDealer dealer = SequenceDealer::kAnyone);

}  // namespace meshloom::parallel
