// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/schedule_blocks.h"

#include <algorithm>

namespace meshloom::planner {
namespace {

/// Neighbouring positions of one document.
struct DocumentPiece {
  ShardRange range;
  int document = -1;
};

std::vector<DocumentPiece> pieces_of(const RowMask& row, const IndexRanges& list) {
  std::vector<DocumentPiece> pieces;
  for (const ShardRange& range : list) {
    if (!row.documents) {
      pieces.push_back({range, -1});
      continue;
    }
    for (const DocumentRun& run : row.documents->runs()) {
      const ShardRange part{std::max(run.range.begin, range.begin),
                            std::min(run.range.end, range.end)};
      if (part.begin < part.end) pieces.push_back({part, run.document});
    }
  }
  return pieces;
}

/// Without its limit to one side a mask shows more of the block exactly if that limit hides some.
HiddenPart hidden_part(const AttentionMask& mask, const AttentionBlock& block) {
  AttentionMask without_right = mask, without_left = mask;
  without_right.is_causal = false;
  without_right.window_right = -1;
  without_left.window_left = -1;
  const bool later = visible_area(without_right, block.queries, block.keys) > block.area;
  const bool earlier = visible_area(without_left, block.queries, block.keys) > block.area;
  if (later) return earlier ? HiddenPart::kBoth : HiddenPart::kLater;
  return earlier ? HiddenPart::kEarlier : HiddenPart::kNone;
}

}  // namespace

std::vector<AttentionBlock> attention_blocks(const RowMask& row, const IndexRanges& queries,
                                             const IndexRanges& keys) {
  std::vector<AttentionBlock> blocks;
  const std::vector<DocumentPiece> of_keys = pieces_of(row, keys);
  for (const DocumentPiece& q : pieces_of(row, queries))
    for (const DocumentPiece& k : of_keys) {
      if (q.document != k.document) continue;
      AttentionBlock block{q.range, k.range, q.document, HiddenPart::kNone,
                           visible_area(row.mask, q.range, k.range)};
      if (block.area == 0) continue;
      block.hidden = hidden_part(row.mask, block);
      blocks.push_back(block);
    }
  return blocks;
}

const char* to_string(HiddenPart part) {
  switch (part) {
    case HiddenPart::kLater: return "later keys masked";
    case HiddenPart::kEarlier: return "earlier keys masked";
    case HiddenPart::kBoth: return "both ends masked";
    default: return "whole";
  }
}

}  // namespace meshloom::planner
