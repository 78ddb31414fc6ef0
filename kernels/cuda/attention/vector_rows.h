// SPDX-License-Identifier: Apache-2.0
// Whether heads lie in memory so that their rows are loaded by 16 bytes.
#pragma once

#include <cstdint>

#include "kernels/base/tensor_view.h"

namespace meshloom::kernels::cuda {

inline constexpr std::size_t kVectorRowBytes = 16;

/// Whether every row of a view [B, H, S, D] is dense, begins at a multiple of 16 bytes and is whole
/// numbers of 16 bytes. Strides of dims of size 1 say nothing.
inline bool has_vector_rows(const TensorView& view) {
  const auto whole = [size = dtype_size(view.dtype)](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * size % kVectorRowBytes == 0;
  };
  if (reinterpret_cast<std::uintptr_t>(view.data) % kVectorRowBytes != 0) return false;
  if (view.size(3) > 1 && view.stride(3) != 1) return false;
  for (int dim = 0; dim < 3; ++dim)
    if (view.size(dim) > 1 && !whole(view.stride(dim))) return false;
  return whole(view.size(3));
}

}  // namespace meshloom::kernels::cuda
