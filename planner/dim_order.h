// SPDX-License-Identifier: Apache-2.0
// DimOrder: which elements of a tensor dim each part of a mesh dim holds, if that is not the
// ceil rule of shard.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planner/index_ranges.h"

namespace meshloom::planner {

class DimOrder;
using DimOrderPtr = std::shared_ptr<const DimOrder>;

/// DimOrder is an immutable sharding of a dim of `size` elements into `parts` parts. Parts are
/// disjoint and cover the dim. Two layouts are alike only if their orders have the same digest, so
/// that shards that merely look equal are never mixed.
class DimOrder {
 public:
  /// Makes an order in which the dim is `groups` equal stretches, each of units of `unit` elements
  /// (the last unit may be smaller); a part holds its shard_range of the units of every stretch.
  /// groups = 3 and unit = head_dim: a fused QKV projection sharded by heads. groups = 1: whole
  /// units stay together. Throws InvalidArgument unless size is a multiple of groups, and groups,
  /// unit, parts >= 1.
  static DimOrderPtr blocked(std::int64_t size, int parts, int groups, std::int64_t unit);
  /// Makes an order of any sharding: ranges[p] is what part p holds, in its order (a balanced
  /// sequence). Throws InvalidArgument if the ranges overlap or leave something out.
  static DimOrderPtr listed(std::int64_t size, std::vector<IndexRanges> ranges);
  /// Makes an order with a sharding for every row of tensor dim `row_dim` (documents that differ
  /// from sequence to sequence of a batch): in row b part p holds rows[b][p]. Rows that are all
  /// alike make a `listed` order. Throws InvalidArgument for no rows, a row that is no sharding,
  /// and parts that differ in size between rows, since a local tensor is rectangular.
  static DimOrderPtr listed_by_row(std::int64_t size, int row_dim,
                                   std::vector<std::vector<IndexRanges>> rows);
  /// Returns the same order of a tensor whose rows lie in another dim; `order` itself if it has no
  /// rows or they lie there. Shares the lists.
  static DimOrderPtr with_row_dim(const DimOrderPtr& order, int row_dim);

  std::int64_t size() const { return size_; }
  int parts() const { return parts_; }
  /// Returns 0 if it was made of lists.
  int groups() const { return groups_; }
  std::int64_t unit() const { return unit_; }
  /// Returns true if rows differ; the next two return their dim (else -1) and number (else 0).
  bool by_row() const { return rows_ != nullptr; }
  int row_dim() const { return row_dim_; }
  std::int64_t rows() const { return rows_ ? static_cast<std::int64_t>(rows_->size()) : 0; }
  /// Returns what part `index` holds; neighbouring ranges are merged. Throws InvalidArgument if
  /// rows differ.
  IndexRanges part(int index) const;
  /// Returns what part `index` holds in row `row`, which is the same in any row of an order without
  /// rows.
  IndexRanges part(int index, std::int64_t row) const;
  std::int64_t part_size(int index) const;
  std::int64_t largest_part() const { return largest_part_; }
  /// Returns a digest of what the parts hold, which is equal however the order was made.
  std::uint64_t digest() const { return digest_; }
  /// Returns the digest but for the dim that rows lie in.
  std::uint64_t lists_digest() const { return lists_digest_; }
  /// Returns true if the parts are those of the ceil rule.
  bool plain() const { return plain_; }

 private:
  using Rows = std::vector<std::vector<IndexRanges>>;

  DimOrder() = default;
  void finish();  ///< sets what is told of the parts
  IndexRanges blocked_part(int index) const;

  std::int64_t size_ = 0;
  int parts_ = 1;
  int groups_ = 0;
  std::int64_t unit_ = 1;
  std::vector<IndexRanges> ranges_;   ///< empty if blocked or by row
  std::shared_ptr<const Rows> rows_;  ///< null if not by row
  int row_dim_ = -1;
  std::uint64_t digest_ = 0;
  std::uint64_t lists_digest_ = 0;
  std::int64_t largest_part_ = 0;
  bool plain_ = false;
};

/// Tells whether both are null, or alike in what the parts hold.
bool same_order(const DimOrderPtr& a, const DimOrderPtr& b);

/// Returns "blocked(3x64)", "listed(1f2e...)" or "listed(1f2e... by row of dim 0)"
std::string to_string(const DimOrder&);

}  // namespace meshloom::planner
