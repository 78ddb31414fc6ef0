// SPDX-License-Identifier: Apache-2.0
// The blocks of a step of a schedule: neighbouring queries of one document against neighbouring
// keys, and which part of them the mask hides.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/attention/mask.h"

namespace meshloom::planner {

/// HiddenPart says which pairs of a block do not see each other.
enum class HiddenPart : std::uint8_t {
  kNone,     ///< all do
  kLater,    ///< keys behind those that a query sees: the causal diagonal runs through the block
  kEarlier,  ///< keys before its window
  kBoth,
};

struct AttentionBlock {
  ShardRange queries, keys;
  int document = -1;  ///< of the row's documents; -1: it has none
  HiddenPart hidden = HiddenPart::kNone;
  std::int64_t area = 0;  ///< pairs that see each other
};

/// Returns the blocks of `queries` against `keys`, by the queries and then by the keys, each as
/// they are held; those in which nothing is seen are left out.
std::vector<AttentionBlock> attention_blocks(const RowMask& row, const IndexRanges& queries,
                                             const IndexRanges& keys);

/// Returns "whole", "later keys masked", "earlier keys masked" or "both ends masked".
const char* to_string(HiddenPart part);

}  // namespace meshloom::planner
