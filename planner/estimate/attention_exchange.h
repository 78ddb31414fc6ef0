// SPDX-License-Identifier: Apache-2.0
// What one call of context-parallel attention sends, by the way in which keys and heads travel.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/attention/context_parallel_plan.h"
#include "planner/estimate/collective_bytes.h"

namespace meshloom::planner {

/// AttentionSizes are those of one call of attention over a sequence that `ranks` ranks share;
/// heads are those of one of them.
struct AttentionSizes {
  std::int64_t rows = 1;    ///< sequences
  std::int64_t tokens = 1;  ///< of a sequence
  std::int64_t heads = 1, kv_heads = 1;
  std::int64_t dims = 1, dims_v = 1;  ///< of a head of q and k, and of v
  std::int64_t element_bytes = 4;
  int ranks = 1;
  /// So many pairs of a query and a key see each other in a row and head; 0 stands for those of a
  /// causal mask.
  double pairs = 0.0;
  /// The queries of a rank see this share of the keys of other ranks, on the average over the
  /// ranks. Causal, with heads and tails: all of half of the sequence behind a rank and half of
  /// that before it.
  double seen_share = 0.75;
  double balance = 1.0;  ///< mean over largest work of a rank
};

/// AttentionExchange stands for equal collectives of one call.
struct AttentionExchange {
  CollectiveKind kind = CollectiveKind::kAllToAll;
  bool backward = false;
  const char* what = "";
  std::int64_t calls = 1;
  std::int64_t elements = 0;  ///< that a rank gets from others in one of the calls
  std::int64_t element_bytes = 4;
  int stride = 1;         ///< ranks of the sequence from one that takes part to the next
  int size = 1;           ///< ranks that take part
  bool is_ring = false;   ///< every rank hears from its neighbour alone
  bool of_heads = false;  ///< neighbours exchange places for heads
  double copies = 1.0;    ///< elements that are copied within a rank, per element that travels
  bool in_place = false;  ///< on one host they are read where they lie, without a copy
};

/// Returns the exchanges of forward and then backward, in their order; none with one rank. kAuto is
/// kPull, and a ulysses_degree of 0 all ranks.
std::vector<AttentionExchange> attention_exchanges(const AttentionSizes& sizes,
                                                   const ContextParallelPlan& plan);

/// Returns the bytes that the exchange needs in a rank in backward, when it needs most: float32
/// sums of the gradients of keys, and keys that are passed round a ring. Those of other ways are
/// read in place; between hosts they come by messages, which are not counted: a rank does not know
/// yet who is on its host, and they are those of one layer.
std::int64_t attention_message_bytes(const AttentionSizes& sizes, const ContextParallelPlan& plan);

}  // namespace meshloom::planner
