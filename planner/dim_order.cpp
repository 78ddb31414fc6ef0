// SPDX-License-Identifier: Apache-2.0
#include "planner/dim_order.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

void append(IndexRanges& ranges, ShardRange range) {
  if (range.size() == 0) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

/// Throws unless the ranges of all parts, sorted, tile [0, size).
void check_tiling(std::int64_t size, const std::vector<IndexRanges>& parts) {
  IndexRanges all;
  for (std::size_t p = 0; p < parts.size(); ++p)
    for (const ShardRange& range : parts[p]) {
      check(range.begin >= 0 && range.end <= size && range.size() > 0,
            "dim order of size {}: part {} holds [{}, {})", size, p, range.begin, range.end);
      all.push_back(range);
    }
  std::sort(all.begin(), all.end(),
            [](const ShardRange& a, const ShardRange& b) { return a.begin < b.begin; });
  std::int64_t next = 0;
  for (const ShardRange& range : all) {
    check(range.begin >= next, "dim order of size {}: element {} is held twice", size, range.begin);
    check(range.begin == next, "dim order of size {}: nobody holds element {}", size, next);
    next = range.end;
  }
  check(next == size, "dim order of size {}: nobody holds element {}", size, next);
}

}  // namespace

std::shared_ptr<const DimOrder> DimOrder::blocked(std::int64_t size, int parts, int groups,
                                                  std::int64_t unit) {
  check(parts >= 1 && groups >= 1 && unit >= 1,
        "dim order of {} groups in units of {} over {} parts: all must be at least 1", groups, unit,
        parts);
  check(size >= 0 && size % groups == 0, "dim order: size {} is no multiple of {} groups", size,
        groups);
  const std::shared_ptr<DimOrder> order(new DimOrder());
  order->size_ = size;
  order->parts_ = parts;
  order->groups_ = groups;
  order->unit_ = unit;
  order->finish();
  return order;
}

std::shared_ptr<const DimOrder> DimOrder::listed(std::int64_t size,
                                                 std::vector<IndexRanges> ranges) {
  check(size >= 0 && !ranges.empty(), "dim order of size {} over {} parts", size, ranges.size());
  const std::shared_ptr<DimOrder> order(new DimOrder());
  order->size_ = size;
  order->parts_ = static_cast<int>(ranges.size());
  for (IndexRanges& part : ranges)
    std::erase_if(part, [](const ShardRange& range) { return range.size() == 0; });
  check_tiling(size, ranges);
  for (const IndexRanges& part : ranges) {
    IndexRanges& merged = order->ranges_.emplace_back();
    for (const ShardRange& range : part) append(merged, range);
  }
  order->finish();
  return order;
}

IndexRanges DimOrder::part(int index) const {
  check(index >= 0 && index < parts_, "dim order of {} parts: no part {}", parts_, index);
  if (groups_ == 0) return ranges_[static_cast<std::size_t>(index)];
  const std::int64_t stretch = size_ / groups_;
  const std::int64_t units = stretch / unit_ + (stretch % unit_ != 0 ? 1 : 0);
  const ShardRange held = shard_range(units, parts_, index);
  const ShardRange inside{std::min(stretch, held.begin * unit_),
                          held.end == units ? stretch : held.end * unit_};
  IndexRanges result;
  for (int g = 0; g < groups_; ++g)
    append(result, {g * stretch + inside.begin, g * stretch + inside.end});
  return result;
}

std::int64_t DimOrder::part_size(int index) const {
  std::int64_t total = 0;
  for (const ShardRange& range : part(index)) total += range.size();
  return total;
}

void DimOrder::finish() {
  digest_ = mix(mix(0x6d657368, static_cast<std::uint64_t>(size_)), parts_);
  plain_ = true;
  for (int p = 0; p < parts_; ++p) {
    const IndexRanges held = part(p);
    const ShardRange rule = shard_range(size_, parts_, p);
    plain_ = plain_ && (held.empty() ? rule.size() == 0 : held.size() == 1 && held[0] == rule);
    digest_ = mix(digest_, held.size());
    std::int64_t total = 0;
    for (const ShardRange& range : held) {
      digest_ = mix(mix(digest_, static_cast<std::uint64_t>(range.begin)),
                    static_cast<std::uint64_t>(range.end));
      total += range.size();
    }
    largest_part_ = std::max(largest_part_, total);
  }
}

std::string to_string(const DimOrder& order) {
  return order.groups() > 0 ? fmt::format("blocked({}x{})", order.groups(), order.unit())
                            : fmt::format("listed({:016x})", order.digest());
}

}  // namespace meshloom::planner
