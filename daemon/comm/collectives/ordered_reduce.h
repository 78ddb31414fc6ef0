// SPDX-License-Identifier: Apache-2.0
// The arithmetic of reductions: element by element, in rank order.
#pragma once

#include <span>

#include "daemon/comm/process_group.h"
#include "kernels/base/dtype.h"
#include "kernels/base/parallel_for.h"

namespace meshloom::comm {

/// Computes out[i] = ((inputs[0][i] op inputs[1][i]) op inputs[2][i]) ... for n elements. Sums of
/// float32, bfloat16 and float16 are kept in float32 and rounded once; float64 in float64; integers
/// wrap; bool sums are "or", products "and". kAvg divides the sum by the number of inputs before it
/// is rounded. kMax and kMin give NaN if any input is NaN. `out` may be one of the inputs. Throws
/// Unimplemented for float8, InvalidArgument for kAvg of what is not floating.
void reduce_in_order(Threads threads, DType dtype, ReduceOp op, void* out,
                     std::span<const void* const> inputs, std::int64_t n);

/// Returns the dtype that reductions of `dtype` are kept in until they are rounded: float32 for
/// bfloat16 and float16, else the dtype itself.
DType partial_dtype(DType dtype);

/// Reduces some of the contributions as reduce_in_order does, but `out`, of partial_dtype(dtype),
/// is neither divided nor rounded. It may be one of the inputs where the dtypes are the same.
void reduce_partially(Threads threads, DType dtype, ReduceOp op, void* out,
                      std::span<const void* const> inputs, std::int64_t n);

/// Ends a reduction: reduces partial results in their order; kAvg divides by `contributions`, those
/// of all of them. `out`, of `dtype`, may be one of the partial results where the dtypes are the
/// same.
void finish_reduction(Threads threads, DType dtype, ReduceOp op, void* out,
                      std::span<const void* const> partials, std::int64_t n,
                      std::size_t contributions);

}  // namespace meshloom::comm
