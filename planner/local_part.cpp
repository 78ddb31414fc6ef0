// SPDX-License-Identifier: Apache-2.0
#include "planner/local_part.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

std::size_t place(int dim) { return static_cast<std::size_t>(dim); }

/// Splits blocks so that in each of them all lists by rows of `row_dim` are the same.
std::vector<PartBlock> split_rows(const std::vector<PartBlock>& blocks, int row_dim,
                                  const std::vector<RowLists>& rows) {
  const auto alike = [&](std::int64_t a, std::int64_t b) {
    return std::all_of(rows.begin(), rows.end(), [&](const RowLists& entry) {
      return entry.row_dim != row_dim ||
             entry.lists[static_cast<std::size_t>(a)] == entry.lists[static_cast<std::size_t>(b)];
    });
  };
  std::vector<PartBlock> split;
  for (const PartBlock& block : blocks) {
    const std::int64_t count = block.shape[row_dim];
    for (std::int64_t begin = 0, end = 0; begin < count; begin = end) {
      while (++end < count && alike(begin, end)) {
      }
      PartBlock& next = split.emplace_back(block);
      next.first[row_dim] = begin;
      next.shape[row_dim] = end - begin;
      next.ranges[place(row_dim)] = sub_ranges(block.ranges[place(row_dim)], {begin, end});
      for (const RowLists& entry : rows)
        if (entry.row_dim == row_dim)
          next.ranges[place(entry.dim)] = entry.lists[static_cast<std::size_t>(begin)];
    }
  }
  return split;
}

// --- Boxes

/// Elements of one dim that both hold, next to each other in both.
struct Run {
  std::int64_t from, to, size;
};

struct PlacedRange {
  ShardRange range;
  std::int64_t place;  ///< in the local tensor
};

std::vector<PlacedRange> place_ranges(const IndexRanges& ranges) {
  std::vector<PlacedRange> placed;
  std::int64_t place = 0;
  for (const ShardRange& range : ranges) {
    if (range.size() > 0) placed.push_back({range, place});
    place += range.size();
  }
  return placed;
}

std::vector<Run> common_runs(const IndexRanges& from, const IndexRanges& to) {
  std::vector<PlacedRange> sources = place_ranges(from);
  std::sort(sources.begin(), sources.end(), [](const PlacedRange& a, const PlacedRange& b) {
    return a.range.begin < b.range.begin;
  });
  std::vector<Run> runs;
  for (const PlacedRange& target : place_ranges(to)) {
    auto source = std::partition_point(sources.begin(), sources.end(), [&](const PlacedRange& s) {
      return s.range.end <= target.range.begin;
    });
    for (; source != sources.end() && source->range.begin < target.range.end; ++source) {
      const std::int64_t begin = std::max(source->range.begin, target.range.begin);
      const std::int64_t end = std::min(source->range.end, target.range.end);
      runs.push_back({source->place + begin - source->range.begin,
                      target.place + begin - target.range.begin, end - begin});
    }
  }
  return runs;
}

Boxes common_product(const std::vector<IndexRanges>& from, const std::vector<IndexRanges>& to) {
  Boxes boxes = {Box{}};
  for (std::size_t d = 0; d < to.size() && !boxes.empty(); ++d) {
    const std::vector<Run> runs = common_runs(from[d], to[d]);
    Boxes longer;
    longer.reserve(boxes.size() * runs.size());
    for (const Box& box : boxes) {
      for (const Run& run : runs) {
        Box& next = longer.emplace_back(box);
        next.from.push_back(run.from);
        next.to.push_back(run.to);
        next.size.push_back(run.size);
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

bool may_meet(const IndexRanges& a, const IndexRanges& b) {
  return std::any_of(a.begin(), a.end(), [&](const ShardRange& x) {
    return std::any_of(b.begin(), b.end(),
                       [&](const ShardRange& y) { return x.begin < y.end && y.begin < x.end; });
  });
}

}  // namespace

LocalPart::LocalPart(std::vector<IndexRanges> ranges, std::vector<RowLists> rows)
    : ranges_(std::move(ranges)) {
  for (RowLists& entry : rows) {
    IndexRanges& own = ranges_[place(entry.dim)];
    if (!entry.lists.empty()) own = entry.lists.front();
    const bool alike = std::all_of(entry.lists.begin(), entry.lists.end(),
                                   [&](const IndexRanges& list) { return list == own; });
    if (!alike) rows_.push_back(std::move(entry));
  }
  std::sort(rows_.begin(), rows_.end(),
            [](const RowLists& a, const RowLists& b) { return a.dim < b.dim; });
  for (const IndexRanges& list : ranges_) shape_.push_back(total_size(list));
  for (const RowLists& entry : rows_) ranges_[place(entry.dim)].clear();
}

LocalPart LocalPart::none() { return LocalPart(std::vector<IndexRanges>(1)); }

const RowLists* LocalPart::rows_of(int dim) const {
  for (const RowLists& entry : rows_)
    if (entry.dim == dim) return &entry;
  return nullptr;
}

const IndexRanges& LocalPart::ranges(int dim) const {
  if (const RowLists* rows = rows_of(dim))
    throw InternalError(fmt::format("one list asked for of dim {}, which has one per row of dim {}",
                                    dim, rows->row_dim));
  return ranges_[place(dim)];
}

const std::vector<IndexRanges>& LocalPart::product() const {
  for (const RowLists& entry : rows_) ranges(entry.dim);
  return ranges_;
}

const IndexRanges& LocalPart::ranges_of_row(int dim, std::int64_t row) const {
  const RowLists* rows = rows_of(dim);
  return rows ? rows->lists[static_cast<std::size_t>(row)] : ranges_[place(dim)];
}

std::vector<PartBlock> LocalPart::blocks() const {
  if (numel(shape_) == 0) return {};
  Dims zeros = shape_;
  for (std::int64_t& at : zeros) at = 0;
  std::vector<PartBlock> blocks{{zeros, shape_, ranges_}};
  std::vector<int> done;
  for (const RowLists& entry : rows_) {
    if (std::find(done.begin(), done.end(), entry.row_dim) != done.end()) continue;
    done.push_back(entry.row_dim);
    blocks = split_rows(blocks, entry.row_dim, rows_);
  }
  return blocks;
}

Dims LocalPart::offset(const Shape& global) const {
  Dims result;
  for (int d = 0; d < shape_.size(); ++d) {
    const IndexRanges& list = ranges(d);
    check(list.size() <= 1, "offset of a part that holds {} ranges of dim {}", list.size(), d);
    result.push_back(list.empty() ? global[d] : list[0].begin);
  }
  return result;
}

bool LocalPart::contiguous() const {
  return rows_.empty() && std::all_of(ranges_.begin(), ranges_.end(),
                                      [](const IndexRanges& list) { return list.size() <= 1; });
}

std::vector<std::int64_t> global_indices(const LocalPart& part, const Shape& global) {
  const Shape& shape = part.shape();
  std::vector<std::int64_t> indices;
  Dims at = shape;
  for (std::int64_t& i : at) i = 0;
  const auto element = [&](int d) {
    std::int64_t row = 0, left = at[d];
    for (const RowLists& entry : part.row_lists())
      if (entry.dim == d) row = at[entry.row_dim];
    for (const ShardRange& range : part.ranges_of_row(d, row)) {
      if (left < range.size()) return range.begin + left;
      left -= range.size();
    }
    throw InternalError("a local part whose lists are shorter than its shape");
  };
  for (std::int64_t n = numel(shape); n > 0; --n) {
    std::int64_t index = 0;
    for (int d = 0; d < shape.size(); ++d) index = index * global[d] + element(d);
    indices.push_back(index);
    for (int d = shape.size() - 1; d >= 0 && ++at[d] == shape[d]; --d) at[d] = 0;
  }
  return indices;
}

Boxes common_boxes(const LocalPart& from, const LocalPart& to) {
  if (numel(from.shape()) == 0 || numel(to.shape()) == 0) return {};
  if (from.is_product() && to.is_product()) return common_product(from.product(), to.product());
  const std::vector<PartBlock> sources = from.blocks();
  // Row dims of either part: where blocks of many rows meet in a few pairs only.
  std::vector<int> rows;
  for (const LocalPart* part : {&from, &to})
    for (const RowLists& entry : part->row_lists())
      if (std::find(rows.begin(), rows.end(), entry.row_dim) == rows.end())
        rows.push_back(entry.row_dim);
  Boxes all;
  for (const PartBlock& target : to.blocks())
    for (const PartBlock& source : sources) {
      const bool meet = std::all_of(rows.begin(), rows.end(), [&](int r) {
        return may_meet(source.ranges[place(r)], target.ranges[place(r)]);
      });
      if (!meet) continue;
      for (Box& box : common_product(source.ranges, target.ranges)) {
        for (int d = 0; d < box.size.size(); ++d) {
          box.from[d] += source.first[d];
          box.to[d] += target.first[d];
        }
        all.push_back(std::move(box));
      }
    }
  return all;
}

std::int64_t count_elements(const Boxes& boxes) {
  std::int64_t count = 0;
  for (const Box& box : boxes) count += numel(box.size);
  return count;
}

}  // namespace meshloom::planner
