// SPDX-License-Identifier: Apache-2.0
// LocalPart: which global elements one rank holds, and what two parts have in common.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/shape.h"
#include "planner/index_ranges.h"

namespace meshloom::planner {

/// PartBlock is a piece of a local tensor that is an outer product of ranges, one list per dim.
struct PartBlock {
  Dims first;  ///< its place in the local tensor
  Shape shape;
  std::vector<IndexRanges> ranges;
};

/// Lists of `dim` that differ from row to row of `row_dim` (see DimOrder::listed_by_row).
struct RowLists {
  int dim = 0;
  int row_dim = 0;
  std::vector<IndexRanges> lists;  ///< one per row that is held, in their order; equally long
};

/// A part is what one rank holds. Local element (i, j, ..) is the i-th of the list of dim 0, the
/// j-th of the list of dim 1 and so on; a dim may have a list per row of another dim. Whoever
/// copies by ranges goes block by block.
class LocalPart {
 public:
  /// Makes the part of a tensor without dims, which is one element.
  LocalPart() = default;
  /// One list per dim. `rows` names the dims that have one per row instead; lists that are the same
  /// in every held row become the dim's own. The row dim of an entry is the dim of none.
  explicit LocalPart(std::vector<IndexRanges> ranges, std::vector<RowLists> rows = {});
  /// Makes a part of nothing, of shape [0]: what a rank outside the mesh holds.
  static LocalPart none();

  const Shape& shape() const { return shape_; }
  /// Returns the list of a dim. Throws InternalError if the dim has one per row.
  const IndexRanges& ranges(int dim) const;
  /// Returns the lists of all dims: the part is their outer product. Throws InternalError if a dim
  /// has a list per row.
  const std::vector<IndexRanges>& product() const;
  bool is_product() const { return rows_.empty(); }
  /// Returns the dims with a list per row, ascending.
  const std::vector<RowLists>& row_lists() const { return rows_; }
  /// Returns the list of `dim` in row `row` of the local tensor, counted along the dim's row dim.
  const IndexRanges& ranges_of_row(int dim, std::int64_t row) const;

  /// Returns the part as outer products: one if is_product(), else one per run of rows that are
  /// alike, in their order. None if the part is empty.
  std::vector<PartBlock> blocks() const;
  /// Returns the first global index per dim if every dim is one range; of an empty dim, its size.
  Dims offset(const Shape& global) const;
  bool contiguous() const;  ///< every dim is at most one range

 private:
  const RowLists* rows_of(int dim) const;

  Shape shape_;
  std::vector<IndexRanges> ranges_;  ///< of a dim in rows_: empty
  std::vector<RowLists> rows_;
};

/// Returns the row-major index in a tensor of shape `global` of every element of the part, in local
/// order.
std::vector<std::int64_t> global_indices(const LocalPart& part, const Shape& global);

/// Box is a block of elements with its place in two local tensors.
struct Box {
  Dims from, to;  ///< first element in either, by dim
  Shape size;

  bool operator==(const Box&) const = default;
};
/// Boxes are in a fixed order that every rank finds alike.
using Boxes = std::vector<Box>;

/// Returns what part `from` and part `to` of one global tensor share; row-major over the ranges of
/// `to`, block by block of it. Empty blocks are left out.
Boxes common_boxes(const LocalPart& from, const LocalPart& to);
std::int64_t count_elements(const Boxes&);

}  // namespace meshloom::planner
