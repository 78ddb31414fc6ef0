// SPDX-License-Identifier: Apache-2.0
// Views and memory orders that gathers and scatters along any dim need.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::comm {

/// Returns the same elements with `dim` as the first one, the others in their order.
TensorView with_dim_first(const TensorView& view, int dim);
/// Returns elements [begin, begin + count) of a dim.
TensorView range_of_dim(const TensorView& view, int dim, std::int64_t begin, std::int64_t count);
/// Returns the number of elements of all dims but the last, which is there.
std::int64_t row_count(const Shape& shape);
/// Returns a contiguous view as [row_count, last size].
TensorView folded_rows(const TensorView& view);

/// Returns the same elements with the dim `from` at the place `to`, the others in their order: a
/// view.
Tensor with_dim_moved(const Tensor& x, int from, int to);
/// Returns the same values and shape in memory where `dim` (counted from the end where negative) is
/// outermost, so that its shards are contiguous and a fused operation along it copies nothing; x
/// itself where it lies so already.
Tensor restride_outermost(const Tensor& x, std::int64_t dim);
/// Lays out the shard that fused_all_gather_matmul gathers so that nothing has to be copied.
/// Gathers along the last dim go by rows, so that plain contiguous memory is best for those.
Tensor restride_shard_for_gather(const Tensor& x, std::int64_t gather_dim);
/// Lays out A of fused_matmul_reduce_scatter so that nothing has to be copied; scatters along the
/// last dim shard B instead.
Tensor restride_for_scatter(const Tensor& x, std::int64_t scatter_dim);

}  // namespace meshloom::comm
