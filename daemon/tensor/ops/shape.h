// SPDX-License-Identifier: Apache-2.0
// Views (no copy if strides allow) and concatenation.
#pragma once

#include <vector>

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

/// Returns a view with two dims exchanged. Dims may count from the end, here and below; all throw
/// InvalidArgument naming the op for a dim that x has not.
Tensor transpose(const Tensor& x, std::int64_t dim0, std::int64_t dim1);
/// Returns a view whose dim i is dim dims[i] of x. Throws InvalidArgument unless every dim is named
/// once.
Tensor permute(const Tensor& x, const Dims& dims);
/// Returns the elements in row-major order in another shape, of which one size may be -1. Copies if
/// the strides do not allow a view. Throws InvalidArgument naming both shapes if the numbers of
/// elements differ.
Tensor reshape(const Tensor& x, const Shape& shape);
/// Returns a view with a new dim of size 1 at `dim`.
Tensor unsqueeze(const Tensor& x, std::int64_t dim);
/// Returns a view without the dim if it has size 1, else x as it is (as in torch).
Tensor squeeze(const Tensor& x, std::int64_t dim);
/// Returns a view that is Python's x[start:end:step] along dim; negative and too large bounds as in
/// Python. Throws InvalidArgument for a step below 1.
Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end,
             std::int64_t step = 1);
/// Returns views of pieces of split_size along dim, the last smaller; one empty piece if there is
/// nothing to split. Throws InvalidArgument for a split_size below 1.
std::vector<Tensor> split(const Tensor& x, std::int64_t split_size, std::int64_t dim);
/// Returns a view with dims of size 1 repeated (strides of 0). -1 keeps a size; new leading dims
/// are allowed. Throws InvalidArgument naming both shapes if they do not fit.
Tensor expand(const Tensor& x, const Shape& shape);
/// Joins at least one tensor along a dim, in a new one. Throws InvalidArgument unless they have one
/// dtype, and one shape but for that dim.
Tensor cat(const std::vector<Tensor>& xs, std::int64_t dim);
/// Returns x itself if it is contiguous, else a copy.
Tensor contiguous(const Tensor& x);

}  // namespace meshloom::ops
