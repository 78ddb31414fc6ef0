// SPDX-License-Identifier: Apache-2.0
// Which rows of a tensor a shard of a checkpoint holds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/shape.h"

namespace meshloom::train {

struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Rows of the first dim (one row where there is none).
inline std::int64_t row_count(const Shape& shape) { return shape.empty() ? 1 : shape[0]; }

/// The ceil rule: chunk = ceil(rows / shards), last ones smaller or empty.
inline RowRange shard_rows(std::int64_t rows, std::int64_t shard, std::int64_t shards) {
  const std::int64_t chunk = (rows + shards - 1) / shards;
  return {std::min(shard * chunk, rows), std::min((shard + 1) * chunk, rows)};
}

/// The shape of some rows of a tensor.
inline Shape shape_of_rows(const Shape& shape, std::int64_t rows) {
  Shape part = shape.empty() ? Shape{1} : shape;
  part[0] = rows;
  return part;
}

}  // namespace meshloom::train
