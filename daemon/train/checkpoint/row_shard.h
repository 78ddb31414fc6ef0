// SPDX-License-Identifier: Apache-2.0
// Which rows of a tensor a shard of a checkpoint holds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/shape.h"

namespace meshloom::train {

/// Rows of the first dim (one row if there is none).
inline std::int64_t row_count(const Shape& shape) { return shape.empty() ? 1 : shape[0]; }

/// The shape of some rows of a tensor.
inline Shape shape_of_rows(const Shape& shape, std::int64_t rows) {
  Shape part = shape.empty() ? Shape{1} : shape;
  part[0] = rows;
  return part;
}

}  // namespace meshloom::train
