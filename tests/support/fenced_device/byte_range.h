// SPDX-License-Identifier: Apache-2.0
// ByteRange: the addresses of a piece of memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/tensor_view.h"

namespace meshloom::testing {

/// Numbers, not pointers, since a range may lie outside of any object.
struct ByteRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  bool overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
  bool holds(const ByteRange& other) const { return begin <= other.begin && other.end <= end; }
};

inline ByteRange range_at(const void* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  return {begin, begin + bytes};
}

/// From the lowest to the highest byte that a view with elements shows.
inline ByteRange range_of(const TensorView& view) {
  std::int64_t lowest = 0, highest = 0;
  for (int dim = 0; dim < view.ndim(); ++dim) {
    const std::int64_t reach = (view.size(dim) - 1) * view.stride(dim);
    (reach < 0 ? lowest : highest) += reach;
  }
  const auto size = static_cast<std::int64_t>(dtype_size(view.dtype));
  const auto data = reinterpret_cast<std::uintptr_t>(view.data);
  return {data + static_cast<std::uintptr_t>(lowest * size),
          data + static_cast<std::uintptr_t>((highest + 1) * size)};
}

}  // namespace meshloom::testing
