// SPDX-License-Identifier: Apache-2.0
// The pieces of balance.h: token budgets, head and tail chunks, and the balance of documents.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/attention/mask.h"

namespace meshloom::planner {

/// Returns the number of tokens of rank `rank`: floor(size / ranks), one more on the first size %
/// ranks ranks.
constexpr std::int64_t token_budget(std::int64_t size, int ranks, int rank) {
  return size / ranks + (rank < size % ranks ? 1 : 0);
}

/// A rank holds so many elements in the first and in the second half of a stretch.
struct ChunkPair {
  std::int64_t head = 0, tail = 0;
};
/// Lays out chunks: the heads follow each other from rank 0 on, the tails from the last rank back.
/// The chunks cover `stretch`. A rank's head and tail are two ranges, or one if they meet.
std::vector<IndexRanges> zigzag(const std::vector<ChunkPair>& chunks, ShardRange stretch);

/// Returns each part's ranges by position, neighbours merged.
std::vector<IndexRanges> joined_parts(std::vector<std::vector<ShardRange>> ranges);

/// Lays out a zigzag in every document, token budgets kept. A document of at most an eighth of a
/// budget goes whole to one rank, unless ranks would then have unlike numbers of tokens or areas:
/// then it is cut among a few.
std::vector<IndexRanges> document_parts(const SequenceDocuments& documents,
                                        const AttentionMask& mask, int ranks);

}  // namespace meshloom::planner
