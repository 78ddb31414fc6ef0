// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/mask.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace meshloom::planner {
namespace {

constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() / 4;

/// Key j is seen by query i if j - i is within [nearest, farthest].
struct Distances {
  std::int64_t nearest, farthest;
};

Distances distances(const AttentionMask& mask) {
  const std::int64_t right = mask.window_right < 0 ? kFar : mask.window_right;
  return {mask.window_left < 0 ? -kFar : mask.shift - mask.window_left,
          mask.shift + (mask.is_causal ? 0 : right)};
}

/// The sum over i in `queries` of the number of keys j in `keys` with j - i <= distance.
std::int64_t keys_within(ShardRange queries, ShardRange keys, std::int64_t distance) {
  const ShardRange moved{queries.begin - keys.begin, queries.end - keys.begin};
  const std::int64_t end = keys.end - keys.begin;
  // Counted from the first key on, query i counts min(end, max(0, i + distance + 1)): none below
  // -distance, all from end - 1 - distance on, one more with each query between.
  const std::int64_t first = std::clamp(-distance, moved.begin, moved.end);
  const std::int64_t full = std::clamp(end - 1 - distance, first, moved.end);
  const std::int64_t growing = full - first;
  const std::int64_t least = first + distance + 1;
  return growing * least + growing * (growing - 1) / 2 + (moved.end - full) * end;
}

ShardRange common(ShardRange a, ShardRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

std::int64_t area_of_lists(const AttentionMask& mask, const IndexRanges& queries,
                           const IndexRanges& keys) {
  std::int64_t area = 0;
  for (const ShardRange& q : queries)
    for (const ShardRange& k : keys) area += visible_area(mask, q, k);
  return area;
}

/// The pieces of a list that lie in a document.
std::vector<IndexRanges> by_document(const SequenceDocuments& documents, const IndexRanges& list) {
  std::vector<IndexRanges> pieces(static_cast<std::size_t>(documents.count()));
  const auto& runs = documents.runs();
  for (const ShardRange& range : list) {
    auto run = std::partition_point(
        runs.begin(), runs.end(), [&](const DocumentRun& r) { return r.range.end <= range.begin; });
    for (; run != runs.end() && run->range.begin < range.end; ++run)
      append_range(pieces[static_cast<std::size_t>(run->document)], common(run->range, range));
  }
  return pieces;
}

}  // namespace

ShardRange visible_keys(const AttentionMask& mask, ShardRange queries, std::int64_t keys) {
  if (queries.begin >= queries.end) return {0, 0};
  const auto [nearest, farthest] = distances(mask);
  const std::int64_t begin = std::clamp<std::int64_t>(queries.begin + nearest, 0, keys);
  const std::int64_t end = std::clamp<std::int64_t>(queries.end + farthest, 0, keys);
  return {begin, std::max(begin, end)};
}

std::int64_t visible_area(const AttentionMask& mask, ShardRange queries, ShardRange keys) {
  if (queries.begin >= queries.end || keys.begin >= keys.end) return 0;
  const auto [nearest, farthest] = distances(mask);
  if (farthest < nearest) return 0;
  return keys_within(queries, keys, farthest) - keys_within(queries, keys, nearest - 1);
}

SequenceDocuments::SequenceDocuments(std::span<const std::int64_t> ids)
    : size_(static_cast<std::int64_t>(ids.size())) {
  std::unordered_map<std::int64_t, int> known;
  for (std::int64_t begin = 0; begin < size_;) {
    const std::int64_t id = ids[static_cast<std::size_t>(begin)];
    std::int64_t end = begin + 1;
    while (end < size_ && ids[static_cast<std::size_t>(end)] == id) ++end;
    const int document = known.try_emplace(id, count()).first->second;
    if (document == count()) elements_.emplace_back();
    append_range(elements_[static_cast<std::size_t>(document)], {begin, end});
    runs_.push_back({{begin, end}, document});
    begin = end;
  }
}

std::int64_t visible_area(const RowMask& row, const IndexRanges& queries, const IndexRanges& keys) {
  if (!row.documents) return area_of_lists(row.mask, queries, keys);
  const auto of_queries = by_document(*row.documents, queries);
  const auto of_keys = by_document(*row.documents, keys);
  std::int64_t area = 0;
  for (std::size_t d = 0; d < of_queries.size(); ++d)
    area += area_of_lists(row.mask, of_queries[d], of_keys[d]);
  return area;
}

}  // namespace meshloom::planner
