// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/cache_blocks.h"

#include <algorithm>

namespace meshloom::planner {
namespace {

/// Of the positions before `end`.
std::int64_t kept_before(int rank, int ranks, std::int64_t end) {
  const std::int64_t round = ranks * kCacheBlock;
  return end / round * kCacheBlock +
         std::clamp<std::int64_t>(end % round - rank * kCacheBlock, 0, kCacheBlock);
}

}  // namespace

IndexRanges kept_by_rank(int rank, int ranks, ShardRange positions) {
  const std::int64_t round = ranks * kCacheBlock;
  IndexRanges kept;
  for (std::int64_t block = positions.begin / round * round + rank * kCacheBlock;
       block < positions.end; block += round) {
    const std::int64_t begin = std::max(block, positions.begin);
    const std::int64_t end = std::min(block + kCacheBlock, positions.end);
    if (begin < end) append_range(kept, {begin - positions.begin, end - positions.begin});
  }
  return kept;
}

std::int64_t count_kept_by_rank(int rank, int ranks, ShardRange positions) {
  return kept_before(rank, ranks, positions.end) - kept_before(rank, ranks, positions.begin);
}

int rank_of_position(std::int64_t position, int ranks) {
  return static_cast<int>(position / kCacheBlock % ranks);
}

bool shares_pass(int ranks, ShardRange positions) {
  std::int64_t most = 0;
  for (int rank = 0; rank < ranks; ++rank)
    most = std::max(most, count_kept_by_rank(rank, ranks, positions));
  return 4 * most <= 3 * positions.size();
}

std::int64_t even_pass(int ranks, std::int64_t least) {
  const std::int64_t round = ranks * kCacheBlock;
  return (least + round - 1) / round * round;
}

}  // namespace meshloom::planner
