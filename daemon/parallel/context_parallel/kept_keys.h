// SPDX-License-Identifier: Apache-2.0
// Attention of queries that every rank has to keys of which each rank keeps some.
//
// Source: the merge of partial results is that of Dao et al., "Flash-Decoding for long-context
// inference", 2023.
#pragma once

#include <vector>

#include "daemon/tensor/local_call.h"
#include "planner/index_ranges.h"

namespace meshloom::parallel {

/// KeptPositions holds positions in device memory, made once for the layers of a pass, which ask
/// for the same ones. Used by the thread of one engine.
class KeptPositions {
 public:
  /// Returns int64 [n]: the elements of the ranges.
  Tensor of(ExecutionContext& context, const planner::IndexRanges& ranges);

 private:
  struct Entry {
    planner::IndexRanges ranges;
    Tensor positions;
  };
  std::vector<Entry> entries_;  ///< the latest last
};

/// Computes kAttention with the role kKeys, without a gradient: o [B,H,n,Dv] in q's dtype and lse
/// [B,H,n] in float32, the same on all ranks. Each attends to its own keys, which may be none; its
/// result and lse, in float32, go to all others in one all_gather and are merged in rank order.
/// Queries need not travel, since every rank has them.
std::vector<Tensor> attend_to_kept_keys(const LocalCall& call, KeptPositions& positions);
/// Computes kAttentionRows with the role kKeys: the same for one query of each row and the keys of
/// that row, with one all_gather for all rows, each of which has the bits that it has alone.
std::vector<Tensor> attend_rows_to_kept_keys(const LocalCall& call);

}  // namespace meshloom::parallel
