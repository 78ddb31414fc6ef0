// SPDX-License-Identifier: Apache-2.0
// AttentionMask: which keys the queries of a sequence see, by position and by document.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "planner/index_ranges.h"

namespace meshloom::planner {

/// Query i sees key j if i + shift - window_left <= j <= i + shift + window_right; -1: no limit. A
/// causal query sees no key behind i + shift.
struct AttentionMask {
  bool is_causal = false;
  std::int64_t shift = 0;  ///< Skv - Sq if the last query sees the last key
  std::int64_t window_left = -1;
  std::int64_t window_right = -1;

  bool operator==(const AttentionMask&) const = default;
};

/// Returns the keys of [0, keys) that some of the queries in `queries` sees: one range, maybe
/// empty.
ShardRange visible_keys(const AttentionMask& mask, ShardRange queries, std::int64_t keys);
/// Returns how many pairs of a query in `queries` and a key in `keys` see each other. Takes as long
/// for millions as for one.
std::int64_t visible_area(const AttentionMask& mask, ShardRange queries, ShardRange keys);

/// DocumentRun is a stretch of a sequence that belongs to one document.
struct DocumentRun {
  ShardRange range;
  int document = 0;  ///< 0 to documents - 1, in the order of their first elements
};

/// SequenceDocuments are the documents of one row: queries see keys of their own document alone. A
/// document whose id comes again later in the row is one document. Immutable.
class SequenceDocuments {
 public:
  /// `ids`: one per element, any values.
  explicit SequenceDocuments(std::span<const std::int64_t> ids);

  std::int64_t size() const { return size_; }
  /// They cover the sequence, in its order.
  const std::vector<DocumentRun>& runs() const { return runs_; }
  int count() const { return static_cast<int>(elements_.size()); }
  /// Returns what a document holds, ascending.
  const IndexRanges& elements(int document) const {
    return elements_[static_cast<std::size_t>(document)];
  }

 private:
  std::int64_t size_ = 0;
  std::vector<DocumentRun> runs_;
  std::vector<IndexRanges> elements_;
};

/// The queries of one row may see this: null documents mean that the row is one.
struct RowMask {
  AttentionMask mask;
  std::shared_ptr<const SequenceDocuments> documents;
};

/// Returns the number of pairs of a query and a key of the two lists that see each other.
std::int64_t visible_area(const RowMask& row, const IndexRanges& queries, const IndexRanges& keys);

}  // namespace meshloom::planner
