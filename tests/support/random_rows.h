// SPDX-License-Identifier: Apache-2.0
// Random shardings of a dim that differ from row to row.
#pragma once

#include <algorithm>
#include <vector>

#include "planner/dim_order.h"
#include "planner/placement.h"

namespace meshloom::test {

/// For each of `rows` rows (one at least) a sharding of `size` elements into `parts` parts in any
/// order. A part's size, drawn too, is the same in all rows; now and then a row is as the one
/// before.
template <typename Random>
std::vector<std::vector<planner::IndexRanges>> random_rows(Random& random, std::int64_t size,
                                                           int parts, std::int64_t rows) {
  const auto below = [&random](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  std::vector<std::int64_t> ends{size};
  for (int p = 1; p < parts; ++p) ends.push_back(below(size + 1));
  std::sort(ends.begin(), ends.end());
  std::vector<std::int64_t> elements;
  for (std::int64_t i = 0; i < size; ++i) elements.push_back(i);
  std::vector<std::vector<planner::IndexRanges>> result;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (row == 0 || below(4) > 0) std::shuffle(elements.begin(), elements.end(), random);
    std::vector<planner::IndexRanges>& sharding =
        result.emplace_back(static_cast<std::size_t>(parts));
    std::size_t part = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      while (i >= ends[part]) ++part;
      const std::int64_t element = elements[static_cast<std::size_t>(i)];
      sharding[part].push_back({element, element + 1});
    }
  }
  return result;
}

/// Whether a layout may shard `tensor_dim` by rows of `row_dim`, beside the orders that it has by
/// mesh dim: a row dim is not sharded by rows itself.
inline bool may_order_by_rows(const planner::Placements& placements,
                              const std::vector<planner::DimOrderPtr>& orders, int tensor_dim,
                              int row_dim) {
  if (tensor_dim == row_dim) return false;
  for (std::size_t m = 0; m < orders.size(); ++m)
    if (orders[m] && orders[m]->by_row() &&
        (placements[m].dim == row_dim || orders[m]->row_dim() == tensor_dim))
      return false;
  return true;
}

}  // namespace meshloom::test
