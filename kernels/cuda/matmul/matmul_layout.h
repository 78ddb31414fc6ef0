// SPDX-License-Identifier: Apache-2.0
// From views of any strides to products that a library can be given.
#pragma once

#include <optional>

#include "kernels/base/tensor_view.h"
#include "kernels/cuda/matmul/matmul_shape.h"

namespace meshloom::kernels::cuda {

/// The views of one call, [.., rows, columns] each; `kept`, y's shape, may be undefined.
struct ProductViews {
  TensorView y, a, b, kept;
};

/// The layout of the last two dims; none where neither rows nor columns are dense, or where they
/// overlap. Dense rows win where both are. Batch stride and alignment are left at 0.
std::optional<MatrixLayout> matrix_layout(const TensorView& view);

/// The same elements in as few dims as strides allow: dims of size 1 are dropped, dims that lie one
/// behind the other are merged, and rows absorb dims that share b (stride 0). All views get equal
/// numbers of dims, sizes of y. The largest dim that is left comes right before the rows: the
/// library's batch; the dims before it are to be looped over.
ProductViews folded(ProductViews views);

/// y = a b as y^T = b^T a^T: the last two dims of all views swapped, a and b exchanged.
ProductViews swapped(const ProductViews& views);

/// The largest power of two, at most 16, that divides an address.
int address_alignment(const void* address);

/// The largest power of two, at most 16, that divides the address of every matrix of the view: of
/// its data, and of all strides but the last two dims' dense one, in bytes.
int matrix_alignment(const TensorView& view, const MatrixLayout& layout);

/// Products in all dims but the batch and the matrices.
std::int64_t loop_count(const TensorView& view);
/// Elements from the first matrix of a folded view to that of loop `i`.
std::int64_t loop_offset(const TensorView& view, std::int64_t i);

/// The plan's key for folded views whose matrices all have a layout (y and kept: dense rows).
MatmulShape matmul_shape(const ProductViews& folded_views, LibraryEpilogue epilogue);

}  // namespace meshloom::kernels::cuda
