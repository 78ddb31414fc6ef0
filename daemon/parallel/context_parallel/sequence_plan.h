// SPDX-License-Identifier: Apache-2.0
// SequencePlan: who holds what of a sequence, and the schedule of this rank, for one attention
// call.
#pragma once

#include <memory>
#include <vector>

#include "daemon/tensor/local_call.h"
#include "daemon/tensor/ops/attention.h"
#include "planner/attention/schedule.h"

namespace meshloom::parallel {

/// Rows [first, first + count) of the local batch, which are attended to by one call of the kernel:
/// all of them, or one if rows differ in their order or in their documents.
struct RowGroup {
  std::int64_t first = 0, count = 0;
  std::vector<planner::SequencePart> parts;     ///< by member
  std::vector<planner::AttentionStep> steps;    ///< of this member
  std::vector<planner::IndexRanges> requested;  ///< by member: which of this one's keys it reads
  std::vector<std::int64_t> documents;          ///< ids of the whole sequence; empty: none
};

/// Members are those ranks along the mesh dims of the sequence that exchange keys: all of them, or,
/// if neighbouring ranks exchange heads, those at the same place among their neighbours. Then the
/// part of a member is what its neighbours and it hold together, in rank order.
struct SequencePlan {
  std::vector<int> mesh_dims;
  int ranks = 1, rank = 0;   ///< along the mesh dims
  int neighbours = 1;        ///< ranks that exchange heads
  std::vector<int> members;  ///< ranks, ascending
  int member = 0;            ///< the place of this rank among them
  std::vector<RowGroup> groups;
  std::vector<std::int64_t> queries, keys;  ///< of a row, by rank
  bool bias_by_query = false;  ///< a rank has the rows of a bias that belong to its queries
};

/// The rows of a group of x [B,...]: a view. A dim of size 1 that stands for all rows stays.
Tensor rows_of(const Tensor& x, const RowGroup& group);

/// `neighbours` divides the ranks along the mesh dims that have the role of a sequence. The keys
/// are sharded as the queries are, or whole on every rank: then each is its only member.
SequencePlan make_sequence_plan(const LocalCall& call, const ops::SdpaOptions& options,
                                int neighbours);

}  // namespace meshloom::parallel
