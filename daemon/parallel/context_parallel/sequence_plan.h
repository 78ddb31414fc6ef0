// SPDX-License-Identifier: Apache-2.0
// SequencePlan: who holds what of a sequence, and the schedule of this rank, for one attention
// call; the calls of a batch share it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "daemon/parallel/context_parallel/document_rows.h"
#include "daemon/tensor/local_call.h"
#include "daemon/tensor/ops/attention.h"
#include "planner/attention/schedule.h"

namespace meshloom::parallel {

/// Places among the inputs of attention's call.
inline constexpr std::size_t kQuery = 0, kKey = 1, kValue = 2, kBias = 3, kDocuments = 4;
inline constexpr int kSequenceDim = 2;  ///< of q, k and v [B,H,S,D]

/// Rows [first, first + count) of the local batch, which are attended to by one call of the kernel:
/// all of them, or one if rows differ in their order or in their documents.
struct RowGroup {
  std::int64_t first = 0, count = 0;
  std::vector<planner::SequencePart> parts;     ///< by member
  std::vector<planner::AttentionStep> steps;    ///< of this member
  std::vector<planner::IndexRanges> requested;  ///< by member: which of this one's keys it reads
  const DocumentRow* documents = nullptr;       ///< of the whole sequence; null: none
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
  std::shared_ptr<const DocumentRows> documents;  ///< what the groups point to; null: none
  std::vector<std::int64_t> queries, keys;        ///< of a row, by rank
  bool bias_by_query = false;  ///< a rank has the rows of a bias that belong to its queries
};

/// The elements of the ranges, one by one.
std::vector<std::int64_t> elements(const planner::IndexRanges& ranges);
/// The rows of a group of x [B,...]: a view. A dim of size 1 that stands for all rows stays.
Tensor rows_of(const Tensor& x, const RowGroup& group);

/// The plans of the attention calls of an engine: one for all layers and passes of a batch that
/// have the same layouts, mask and documents.
class SequencePlanCache {
 public:
  /// `neighbours` divides the ranks along the mesh dims that have the role of a sequence. The keys
  /// are sharded over the same mesh dims as the queries, in that order or another one, or whole on
  /// every rank: then each is its only member. Nothing is sent.
  std::shared_ptr<const SequencePlan> plan(const LocalCall& call, const ops::SdpaOptions& options,
                                           int neighbours);
  DocumentReader& documents() { return documents_; }
  /// How many plans were made.
  std::int64_t made() const { return made_; }

 private:
  /// What a plan depends on.
  struct Key {
    planner::SpecPtr queries, keys, bias;
    std::vector<int> coordinates;
    planner::AttentionMask mask;
    int neighbours;
    std::shared_ptr<const DocumentRows> documents;

    bool operator==(const Key& other) const;
  };
  struct Entry {
    Key key;
    std::shared_ptr<const SequencePlan> plan;
  };

  DocumentReader documents_;
  std::vector<Entry> entries_;  ///< the latest last
  std::int64_t made_ = 0;
};

}  // namespace meshloom::parallel
