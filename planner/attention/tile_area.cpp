// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/tile_area.h"

#include <algorithm>

#include "planner/attention/balance.h"

namespace meshloom::planner {
namespace {

/// A list in stretches of a tile each.
std::vector<IndexRanges> tiles_of(const IndexRanges& list) {
  std::vector<IndexRanges> tiles;
  const std::int64_t size = total_size(list);
  for (std::int64_t begin = 0; begin < size; begin += kAttentionTile)
    tiles.push_back(sub_ranges(list, {begin, std::min(size, begin + kAttentionTile)}));
  return tiles;
}

}  // namespace

std::int64_t tile_area(int rank, const std::vector<IndexRanges>& parts, const RowMask& row) {
  std::vector<SequencePart> all;
  for (const IndexRanges& part : parts) all.push_back({part, part});
  const std::vector<IndexRanges> queries = tiles_of(parts[static_cast<std::size_t>(rank)]);
  std::int64_t tiles = 0;
  for (const AttentionStep& step : attention_schedule(rank, all, row))
    for (const IndexRanges& keys : tiles_of(step.keys))
      for (const IndexRanges& tile : queries) tiles += visible_area(row, tile, keys) > 0 ? 1 : 0;
  return tiles;
}

double tile_balance_of(const std::vector<IndexRanges>& parts, const RowMask& row) {
  std::vector<std::int64_t> tiles;
  for (int rank = 0; rank < static_cast<int>(parts.size()); ++rank)
    tiles.push_back(tile_area(rank, parts, row));
  return balance_of(tiles);
}

}  // namespace meshloom::planner
