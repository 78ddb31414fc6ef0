// SPDX-License-Identifier: Apache-2.0
// The attributes of a collective's case, and how many rows every rank brings and gets by them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/case.h"

namespace meshloom::conformance {

struct GroupAttributes {
  comm::AllReduceAlgorithm algorithm = comm::AllReduceAlgorithm::kAuto;
  comm::ReduceOp reduce_op = comm::ReduceOp::kSum;
  bool in_place = false;
  int root = 0;
  std::vector<std::pair<int, int>> pairs;         ///< from, to
  std::vector<std::vector<std::int64_t>> counts;  ///< one list, or one per rank; none: not given
};

/// Throws InvalidArgument naming the attribute.
GroupAttributes read_group_attributes(const std::string& op, const Case&, const TensorFile&);
/// "sum", "avg", "max", "min", "prod".
comm::ReduceOp read_reduce_op(const std::string& op, const std::string& text);

struct RowCounts {
  std::vector<std::int64_t> brings;              ///< of a gather, by rank
  std::vector<std::int64_t> parts;               ///< of a scatter, by rank
  std::vector<std::vector<std::int64_t>> sends;  ///< of an exchange, from r to p
  std::vector<std::int64_t> results;             ///< of y[r]
};

/// `shape` is x's, with the leading dim of ranks. Throws InvalidArgument where x has no such rows.
RowCounts row_counts(const std::string& op, const GroupAttributes&, const Shape& shape, int ranks);

}  // namespace meshloom::conformance
