// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace meshloom::planner {
namespace {

/// The keys of all ranks by position.
struct HeldKeys {
  ShardRange range;
  int rank;
};

std::vector<HeldKeys> keys_by_position(const std::vector<SequencePart>& parts) {
  std::vector<HeldKeys> keys;
  for (std::size_t r = 0; r < parts.size(); ++r)
    for (const ShardRange& range : parts[r].keys) keys.push_back({range, static_cast<int>(r)});
  std::sort(keys.begin(), keys.end(),
            [](const HeldKeys& a, const HeldKeys& b) { return a.range.begin < b.range.begin; });
  return keys;
}

/// Collects per source what queries see.
class ScheduleMaker {
 public:
  ScheduleMaker(const std::vector<SequencePart>& parts, const RowMask& row)
      : row_(row), keys_(keys_by_position(parts)), seen_(parts.size()), area_(parts.size(), 0) {
    for (const HeldKeys& held : keys_) end_ = std::max(end_, held.range.end);
  }

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

  AttentionStep step(int source, const SequencePart& part, std::int64_t queries) {
    AttentionStep step{source, {}, area_[static_cast<std::size_t>(source)], false};
    std::vector<ShardRange>& seen = seen_[static_cast<std::size_t>(source)];
    std::sort(seen.begin(), seen.end(),
              [](const ShardRange& a, const ShardRange& b) { return a.begin < b.begin; });
    for (const ShardRange& held : part.keys) append_seen(step.keys, seen, held);
    step.whole = step.area == queries * total_size(step.keys);
    return step;
  }

 private:
  void add_pair(ShardRange queries, ShardRange keys) {
    const ShardRange visible = visible_keys(row_.mask, queries, end_);
    const ShardRange wanted{std::max(visible.begin, keys.begin), std::min(visible.end, keys.end)};
    auto held = std::partition_point(
        keys_.begin(), keys_.end(), [&](const HeldKeys& k) { return k.range.end <= wanted.begin; });
    for (; held != keys_.end() && held->range.begin < wanted.end; ++held) {
      const ShardRange part{std::max(wanted.begin, held->range.begin),
                            std::min(wanted.end, held->range.end)};
      const auto source = static_cast<std::size_t>(held->rank);
      seen_[source].push_back(part);
      area_[source] += visible_area(row_.mask, queries, part);
    }
  }

  /// The union of what is seen inside one range that is held; `seen` is sorted.
  static void append_seen(IndexRanges& keys, const std::vector<ShardRange>& seen, ShardRange held) {
    std::int64_t reached = held.begin;
    for (const ShardRange& range : seen) {
      if (range.begin >= held.end) break;
      const std::int64_t begin = std::max(range.begin, reached);
      const std::int64_t end = std::min(range.end, held.end);
      if (begin >= end) continue;
      append_range(keys, {begin, end});
      reached = end;
    }
  }

  const RowMask& row_;
  std::vector<HeldKeys> keys_;
  std::int64_t end_ = 0;
  std::vector<std::vector<ShardRange>> seen_;
  std::vector<std::int64_t> area_;
};

}  // namespace

std::vector<AttentionStep> attention_schedule(int rank, const std::vector<SequencePart>& parts,
                                              const RowMask& row) {
  const SequencePart& own = parts[static_cast<std::size_t>(rank)];
  ScheduleMaker maker(parts, row);
  for (const ShardRange& queries : own.queries) maker.add_queries(queries);
  const int ranks = static_cast<int>(parts.size());
  std::vector<AttentionStep> steps;
  for (int s = 0; s < ranks; ++s) {
    const int source = (rank - s + ranks) % ranks;
    steps.push_back(
        maker.step(source, parts[static_cast<std::size_t>(source)], total_size(own.queries)));
  }
  return steps;
}

std::vector<IndexRanges> requested_keys(int source, const std::vector<SequencePart>& parts,
                                        const RowMask& row) {
  std::vector<SequencePart> alone(parts.size());
  const auto at = static_cast<std::size_t>(source);
  alone[at].keys = parts[at].keys;
  std::vector<IndexRanges> requested;
  for (const SequencePart& part : parts) {
    ScheduleMaker maker(alone, row);
    for (const ShardRange& queries : part.queries) maker.add_queries(queries);
    requested.push_back(maker.step(source, parts[at], total_size(part.queries)).keys);
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

std::string to_string(int rank, const std::vector<AttentionStep>& steps) {
  std::string text;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const AttentionStep& step = steps[s];
    text += fmt::format("rank {} step {}: keys of rank {}", rank, s, step.source);
    for (const ShardRange& range : step.keys)
      text += fmt::format(" [{}, {})", range.begin, range.end);
    text += step.keys.empty()
                ? std::string(": none\n")
                : fmt::format(": {} pairs, {}\n", step.area, step.whole ? "whole" : "masked");
  }
  return text;
}

}  // namespace meshloom::planner
