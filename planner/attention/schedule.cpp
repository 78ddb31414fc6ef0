// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/schedule.h"

#include <algorithm>

namespace meshloom::planner {
namespace {

std::int64_t end_of_keys(const std::vector<SequencePart>& parts) {
  std::int64_t end = 0;
  for (const SequencePart& part : parts)
    for (const ShardRange& range : part.keys) end = std::max(end, range.end);
  return end;
}

/// Which keys some queries see.
class SeenKeys {
 public:
  /// `end`: of all keys.
  SeenKeys(const RowMask& row, std::int64_t end) : row_(row), end_(end) {}

  /// From now on those of `queries`.
  void look_from(const IndexRanges& queries) {
    pairs_.clear();
    for (const ShardRange& range : queries) add_queries(range);
    const auto by_key = [](const Pair& a, const Pair& b) { return a.keys.begin < b.keys.begin; };
    if (!std::is_sorted(pairs_.begin(), pairs_.end(), by_key))
      std::sort(pairs_.begin(), pairs_.end(), by_key);
    reached_.clear();
    for (const Pair& pair : pairs_)
      reached_.push_back(std::max(pair.keys.end, reached_.empty() ? 0 : reached_.back()));
  }

  /// Those of the keys `held`, in their order; adds to `area`, if it is given, how many pairs of a
  /// query and a key of them see each other.
  IndexRanges among(const IndexRanges& held, std::int64_t* area = nullptr) const {
    IndexRanges keys;
    keys.reserve(held.size());
    for (const ShardRange& range : held) {
      std::int64_t covered = range.begin;
      const auto first = std::partition_point(reached_.begin(), reached_.end(),
                                              [&](std::int64_t end) { return end <= range.begin; });
      for (auto pair = pairs_.begin() + (first - reached_.begin());
           pair != pairs_.end() && pair->keys.begin < range.end; ++pair) {
        const ShardRange common{std::max(pair->keys.begin, range.begin),
                                std::min(pair->keys.end, range.end)};
        if (common.begin >= common.end) continue;
        // Those that no earlier pair had.
        append_range(keys, {std::max(common.begin, covered), std::max(common.end, covered)});
        if (area) *area += visible_area(row_.mask, pair->queries, common);
        covered = std::max(covered, common.end);
      }
    }
    return keys;
  }

 private:
  /// Neighbouring queries of one document, and a stretch of it that some of them sees.
  struct Pair {
    ShardRange queries, keys;
  };

  void add_queries(ShardRange queries) {
    if (!row_.documents) return add_pair(queries, {0, end_});
    const auto& runs = row_.documents->runs();
    auto run = std::partition_point(runs.begin(), runs.end(), [&](const DocumentRun& r) {
      return r.range.end <= queries.begin;
    });
    for (; run != runs.end() && run->range.begin < queries.end; ++run) {
      const ShardRange part{std::max(queries.begin, run->range.begin),
                            std::min(queries.end, run->range.end)};
      for (const ShardRange& keys : row_.documents->elements(run->document)) add_pair(part, keys);
    }
  }

  void add_pair(ShardRange queries, ShardRange keys) {
    const ShardRange visible = visible_keys(row_.mask, queries, end_);
    const ShardRange seen{std::max(visible.begin, keys.begin), std::min(visible.end, keys.end)};
    if (seen.begin < seen.end) pairs_.push_back({queries, seen});
  }

  const RowMask& row_;
  std::int64_t end_;
  std::vector<Pair> pairs_;            ///< by their first keys
  std::vector<std::int64_t> reached_;  ///< the furthest end of a pair and those before it
};

}  // namespace

std::vector<AttentionStep> attention_schedule(int rank, const std::vector<SequencePart>& parts,
                                              const RowMask& row) {
  const SequencePart& own = parts[static_cast<std::size_t>(rank)];
  SeenKeys seen(row, end_of_keys(parts));
  seen.look_from(own.queries);
  const int ranks = static_cast<int>(parts.size());
  std::vector<AttentionStep> steps;
  for (int s = 0; s < ranks; ++s) {
    const int source = (rank - s + ranks) % ranks;
    const IndexRanges& held = parts[static_cast<std::size_t>(source)].keys;
    AttentionStep step{source, {}, 0};
    step.keys = seen.among(held, &step.area);
    steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<IndexRanges> requested_keys(int source, const std::vector<SequencePart>& parts,
                                        const RowMask& row) {
  const IndexRanges& held = parts[static_cast<std::size_t>(source)].keys;
  SeenKeys seen(row, end_of_keys(parts));
  std::vector<IndexRanges> requested;
  for (const SequencePart& part : parts) {
    seen.look_from(part.queries);
    requested.push_back(seen.among(held));
  }
  return requested;
}

std::int64_t remote_keys(int rank, const std::vector<AttentionStep>& steps) {
  std::int64_t keys = 0;
  for (const AttentionStep& step : steps)
    if (step.source != rank) keys += total_size(step.keys);
  return keys;
}

IndexRanges places_in(const IndexRanges& held, const IndexRanges& wanted) {
  IndexRanges places;
  std::int64_t before = 0;
  auto next = wanted.begin();
  std::int64_t begin = next == wanted.end() ? 0 : next->begin;
  for (const ShardRange& range : held) {
    // A wanted range may go on in the next range that is held.
    while (next != wanted.end() && begin >= range.begin && begin < range.end) {
      const std::int64_t end = std::min(next->end, range.end);
      append_range(places, {before + begin - range.begin, before + end - range.begin});
      begin = end;
      if (begin == next->end && ++next != wanted.end()) begin = next->begin;
    }
    before += range.size();
  }
  return places;
}

}  // namespace meshloom::planner
