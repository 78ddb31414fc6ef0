// SPDX-License-Identifier: Apache-2.0
// RowGroup: rows of a batch that one call of the attention kernel takes, with their schedule.
#pragma once

#include <memory>
#include <vector>

#include "daemon/tensor/tensor.h"
#include "planner/attention/document_rows.h"
#include "planner/attention/schedule.h"

namespace meshloom::parallel {

/// RowGroup names rows [first, first + count) of the local batch, which are attended to by one call
/// of the kernel: all of them, or one if rows differ in their order or in their documents.
struct RowGroup {
  std::int64_t first = 0, count = 0;
  std::vector<planner::SequencePart> parts;     ///< by member
  std::vector<planner::AttentionStep> steps;    ///< of this member
  std::vector<planner::IndexRanges> requested;  ///< by member: which of this one's keys it reads
  std::shared_ptr<const planner::DocumentRow> documents;  ///< of the whole sequence; null: none
};

/// Returns the elements of the ranges, one by one.
std::vector<std::int64_t> elements(const planner::IndexRanges& ranges);
/// Returns the rows of a group of x [B,...]: a view. A dim of size 1 that stands for all rows
/// stays.
Tensor rows_of(const Tensor& x, const RowGroup& group);

}  // namespace meshloom::parallel
