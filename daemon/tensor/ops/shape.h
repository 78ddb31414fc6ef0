// SPDX-License-Identifier: Apache-2.0
// Views (no copy if strides allow) and concatenation.
#pragma once

#include <vector>

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

Tensor transpose(const Tensor& x, std::int64_t dim0, std::int64_t dim1);
Tensor permute(const Tensor& x, const Dims& dims);
/// One size may be -1. Copies if the strides do not allow a view.
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor unsqueeze(const Tensor& x, std::int64_t dim);
/// The dim must have size 1, else x comes back as it is (as in torch).
Tensor squeeze(const Tensor& x, std::int64_t dim);
/// Returns Python's x[start:end:step] along dim; negative and too large bounds as in Python; step >
/// 0.
Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end,
             std::int64_t step = 1);
/// Returns pieces of split_size along dim, the last smaller.
std::vector<Tensor> split(const Tensor& x, std::int64_t split_size, std::int64_t dim);
/// -1 keeps a size; new leading dims are allowed.
Tensor expand(const Tensor& x, const Shape& shape);
Tensor cat(const std::vector<Tensor>& xs, std::int64_t dim);
/// Returns x itself if it is contiguous, else a copy.
Tensor contiguous(const Tensor& x);

}  // namespace meshloom::ops
