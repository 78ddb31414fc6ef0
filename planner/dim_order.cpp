// SPDX-License-Identifier: Apache-2.0
#include "planner/dim_order.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/base/hash.h"

namespace meshloom::planner {
namespace {

std::uint64_t mix_part(std::uint64_t hash, const IndexRanges& held) {
  hash = hash_mix(hash, held.size());
  for (const ShardRange& range : held)
    hash = hash_mix(hash_mix(hash, static_cast<std::uint64_t>(range.begin)),
                    static_cast<std::uint64_t>(range.end));
  return hash;
}

/// Neighbouring ranges merged, empty ones dropped. Throws if the parts are no sharding.
std::vector<IndexRanges> checked_parts(std::int64_t size, std::vector<IndexRanges> parts) {
  for (IndexRanges& part : parts)
    std::erase_if(part, [](const ShardRange& range) { return range.size() == 0; });
  IndexRanges all;
  for (std::size_t p = 0; p < parts.size(); ++p)
    for (const ShardRange& range : parts[p]) {
      check(range.begin >= 0 && range.end <= size && range.size() > 0,
            "dim order of size {}: part {} holds [{}, {})", size, p, range.begin, range.end);
      all.push_back(range);
    }
  // Sorted, the ranges of all parts tile [0, size).
  std::sort(all.begin(), all.end(),
            [](const ShardRange& a, const ShardRange& b) { return a.begin < b.begin; });
  std::int64_t next = 0;
  for (const ShardRange& range : all) {
    check(range.begin >= next, "dim order of size {}: element {} is held twice", size, range.begin);
    check(range.begin == next, "dim order of size {}: nobody holds element {}", size, next);
    next = range.end;
  }
  check(next == size, "dim order of size {}: nobody holds element {}", size, next);
  for (IndexRanges& part : parts) {
    IndexRanges merged;
    for (const ShardRange& range : part) append_range(merged, range);
    part = std::move(merged);
  }
  return parts;
}

}  // namespace

DimOrderPtr DimOrder::blocked(std::int64_t size, int parts, int groups, std::int64_t unit) {
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

DimOrderPtr DimOrder::listed(std::int64_t size, std::vector<IndexRanges> ranges) {
  check(size >= 0 && !ranges.empty(), "dim order of size {} over {} parts", size, ranges.size());
  const std::shared_ptr<DimOrder> order(new DimOrder());
  order->size_ = size;
  order->parts_ = static_cast<int>(ranges.size());
  order->ranges_ = checked_parts(size, std::move(ranges));
  order->finish();
  return order;
}

DimOrderPtr DimOrder::listed_by_row(std::int64_t size, int row_dim, Rows rows) {
  check(!rows.empty(), "dim order of size {} by row of dim {}: no rows", size, row_dim);
  check(size >= 0 && row_dim >= 0 && !rows[0].empty(),
        "dim order of size {} over {} parts by row of dim {}", size, rows[0].size(), row_dim);
  for (std::size_t b = 0; b < rows.size(); ++b) {
    rows[b] = checked_parts(size, std::move(rows[b]));
    check(rows[b].size() == rows[0].size(), "dim order of size {}: {} parts in row {}, {} in row 0",
          size, rows[b].size(), b, rows[0].size());
    for (std::size_t p = 0; p < rows[b].size(); ++p)
      check(total_size(rows[b][p]) == total_size(rows[0][p]),
            "dim order of size {}: part {} holds {} elements in row {} but {} in row 0; a local "
            "tensor has as many in every row",
            size, p, total_size(rows[b][p]), b, total_size(rows[0][p]));
  }
  if (std::all_of(rows.begin(), rows.end(), [&](const auto& row) { return row == rows[0]; }))
    return listed(size, std::move(rows[0]));
  const std::shared_ptr<DimOrder> order(new DimOrder());
  order->size_ = size;
  order->parts_ = static_cast<int>(rows[0].size());
  order->row_dim_ = row_dim;
  order->rows_ = std::make_shared<const Rows>(std::move(rows));
  order->finish();
  return order;
}

DimOrderPtr DimOrder::with_row_dim(const DimOrderPtr& order, int row_dim) {
  if (order == nullptr || !order->by_row() || order->row_dim_ == row_dim) return order;
  const std::shared_ptr<DimOrder> moved(new DimOrder(*order));
  moved->row_dim_ = row_dim;
  moved->digest_ = hash_mix(moved->lists_digest_, static_cast<std::uint64_t>(row_dim) + 1);
  return moved;
}

IndexRanges DimOrder::blocked_part(int index) const {
  const std::int64_t stretch = size_ / groups_;
  const std::int64_t units = stretch / unit_ + (stretch % unit_ != 0 ? 1 : 0);
  const ShardRange held = shard_range(units, parts_, index);
  const ShardRange inside{std::min(stretch, held.begin * unit_),
                          held.end == units ? stretch : held.end * unit_};
  IndexRanges result;
  for (int g = 0; g < groups_; ++g)
    append_range(result, {g * stretch + inside.begin, g * stretch + inside.end});
  return result;
}

IndexRanges DimOrder::part(int index) const {
  check(rows_ == nullptr, "dim order: part {} has one list per row of dim {}", index, row_dim_);
  return part(index, 0);
}

IndexRanges DimOrder::part(int index, std::int64_t row) const {
  check(index >= 0 && index < parts_, "dim order of {} parts: no part {}", parts_, index);
  if (groups_ > 0) return blocked_part(index);
  if (rows_ == nullptr) return ranges_[static_cast<std::size_t>(index)];
  check(row >= 0 && row < rows(), "dim order of {} rows: no row {}", rows(), row);
  return (*rows_)[static_cast<std::size_t>(row)][static_cast<std::size_t>(index)];
}

std::int64_t DimOrder::part_size(int index) const { return total_size(part(index, 0)); }

void DimOrder::finish() {
  lists_digest_ = hash_mix(hash_mix(0x6d657368, static_cast<std::uint64_t>(size_)), parts_);
  plain_ = rows_ == nullptr;
  for (int p = 0; p < parts_; ++p) {
    const IndexRanges held = part(p, 0);
    const ShardRange rule = shard_range(size_, parts_, p);
    plain_ = plain_ && (held.empty() ? rule.size() == 0 : held.size() == 1 && held[0] == rule);
    lists_digest_ = mix_part(lists_digest_, held);
    largest_part_ = std::max(largest_part_, total_size(held));
  }
  for (std::size_t b = 1; rows_ != nullptr && b < rows_->size(); ++b)
    for (const IndexRanges& held : (*rows_)[b]) lists_digest_ = mix_part(lists_digest_, held);
  digest_ = lists_digest_;
  if (rows_ != nullptr) digest_ = hash_mix(digest_, static_cast<std::uint64_t>(row_dim_) + 1);
}

bool same_order(const DimOrderPtr& a, const DimOrderPtr& b) {
  if (a == b) return true;
  return a != nullptr && b != nullptr && a->digest() == b->digest();
}

std::string to_string(const DimOrder& order) {
  if (order.groups() > 0) return fmt::format("blocked({}x{})", order.groups(), order.unit());
  if (order.by_row())
    return fmt::format("listed({:016x} by row of dim {})", order.lists_digest(), order.row_dim());
  return fmt::format("listed({:016x})", order.digest());
}

}  // namespace meshloom::planner
