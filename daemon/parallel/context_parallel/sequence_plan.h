// SPDX-License-Identifier: Apache-2.0
// SequencePlan: who holds what of a sequence, and the schedule of this rank, for one attention
// call; the calls of a batch share it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "daemon/parallel/context_parallel/block_positions.h"
#include "daemon/parallel/context_parallel/document_rows.h"
#include "daemon/parallel/context_parallel/row_group.h"
#include "daemon/tensor/local_call.h"
#include "daemon/tensor/ops/attention.h"

namespace meshloom::parallel {

/// Places among the inputs of attention's call.
inline constexpr std::size_t kQuery = 0, kKey = 1, kValue = 2, kBias = 3, kDocuments = 4;
inline constexpr int kSequenceDim = 2;  ///< of q, k and v [B,H,S,D]

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
  BlockPositions positions;                 ///< of the groups' blocks
  std::vector<std::int64_t> queries, keys;  ///< of a row, by rank
  bool bias_by_query = false;  ///< a rank has the rows of a bias that belong to its queries
};

/// SequencePlanCache holds the plans of the attention calls of an engine: one for all layers and
/// passes of a batch that have the same layouts, mask and documents. One with documents goes once
/// nobody holds their rows.
class SequencePlanCache {
 public:
  /// `rotate`: how keys come (BlockPositions).
  explicit SequencePlanCache(planner::Rotate rotate) : rotate_(rotate) {}

  /// `neighbours` divides the ranks along the mesh dims that have the role of a sequence. The keys
  /// are sharded over the same mesh dims as the queries, in that order or another one, or whole on
  /// every rank: then each is its only member. Documents that the options do not tell are read from
  /// the device. Nothing is sent.
  std::shared_ptr<const SequencePlan> plan(const LocalCall& call, const ops::SdpaOptions& options,
                                           int neighbours);
  planner::Rotate rotate() const { return rotate_; }
  DocumentReader& documents() { return documents_; }
  /// Returns how many plans were made.
  std::int64_t made() const { return made_; }

 private:
  /// A plan depends on these.
  struct Key {
    planner::SpecPtr queries, keys, bias;
    std::vector<int> coordinates;
    planner::AttentionMask mask;
    int neighbours;
    bool has_documents;
    std::weak_ptr<const planner::DocumentRows> documents;

    bool operator==(const Key& other) const;
  };
  struct Entry {
    Key key;
    std::shared_ptr<const SequencePlan> plan;
  };

  planner::Rotate rotate_;
  DocumentReader documents_;
  std::vector<Entry> entries_;  ///< the latest last
  std::int64_t made_ = 0;
};

}  // namespace meshloom::parallel
