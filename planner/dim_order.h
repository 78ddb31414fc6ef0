// SPDX-License-Identifier: Apache-2.0
// DimOrder: which elements of a tensor dim each part of a mesh dim holds, where that is not the
// ceil rule of shard.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planner/shard.h"

namespace meshloom::planner {

/// Elements [begin, end) of a dim, in the order in which a part holds them.
using IndexRanges = std::vector<ShardRange>;

/// An immutable cut of a dim of `size` elements into `parts` parts. Parts are disjoint and cover
/// the dim. Two layouts are alike only if their orders have the same digest, so that shards that
/// merely look equal are never mixed.
class DimOrder {
 public:
  /// The dim is `groups` equal stretches, each of units of `unit` elements (the last unit may be
  /// smaller); a part holds its shard_range of the units of every stretch. groups = 3 and unit =
  /// head_dim: a fused QKV projection cut by heads. groups = 1: whole units stay together.
  /// Throws InvalidArgument unless size is a multiple of groups, and groups, unit, parts >= 1.
  static std::shared_ptr<const DimOrder> blocked(std::int64_t size, int parts, int groups,
                                                 std::int64_t unit);
  /// Any cut: ranges[p] is what part p holds, in its order (a balanced sequence). Throws
  /// InvalidArgument where the ranges overlap or leave something out.
  static std::shared_ptr<const DimOrder> listed(std::int64_t size, std::vector<IndexRanges> ranges);

  std::int64_t size() const { return size_; }
  int parts() const { return parts_; }
  /// 0 where it was made by `listed`.
  int groups() const { return groups_; }
  std::int64_t unit() const { return unit_; }
  /// What part `index` holds; neighbouring ranges are merged.
  IndexRanges part(int index) const;
  std::int64_t part_size(int index) const;
  std::int64_t largest_part() const { return largest_part_; }
  /// Of what the parts hold: equal however the order was made.
  std::uint64_t digest() const { return digest_; }
  /// True where the parts are those of the ceil rule.
  bool plain() const { return plain_; }

 private:
  DimOrder() = default;
  void finish();  ///< sets what is told of the parts

  std::int64_t size_ = 0;
  int parts_ = 1;
  int groups_ = 0;
  std::int64_t unit_ = 1;
  std::vector<IndexRanges> ranges_;  ///< empty where blocked
  std::uint64_t digest_ = 0;
  std::int64_t largest_part_ = 0;
  bool plain_ = false;
};

using DimOrderPtr = std::shared_ptr<const DimOrder>;

/// "blocked(3x64)" or "listed(1f2e...)"
std::string to_string(const DimOrder&);

}  // namespace meshloom::planner
