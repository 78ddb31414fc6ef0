// SPDX-License-Identifier: Apache-2.0
#include "planner/index_ranges.h"

#include <algorithm>

namespace meshloom::planner {

std::int64_t total_size(const IndexRanges& ranges) {
  std::int64_t total = 0;
  for (const ShardRange& range : ranges) total += range.size();
  return total;
}

void append_range(IndexRanges& ranges, ShardRange range) {
  if (range.size() == 0) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

IndexRanges sub_ranges(const IndexRanges& ranges, ShardRange wanted) {
  IndexRanges result;
  std::int64_t at = 0;
  for (const ShardRange& range : ranges) {
    const std::int64_t begin = std::max(wanted.begin, at);
    const std::int64_t end = std::min(wanted.end, at + range.size());
    if (begin < end) result.push_back({range.begin + begin - at, range.begin + end - at});
    at += range.size();
  }
  return result;
}

}  // namespace meshloom::planner
