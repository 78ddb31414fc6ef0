// SPDX-License-Identifier: Apache-2.0
// Launches of the reductions: in two steps, both of an order that shapes alone decide.
#pragma once

#include <driver_types.h>

#include <cstddef>

#include "kernels/cuda/device_view.h"
#include "kernels/op_ids.h"

namespace meshloom::kernels::cuda {

/// Scratch memory of launch_reduce.
std::size_t reduce_workspace(ReduceOp op, const DeviceView& y, const DeviceView& x);
/// y = op over the dims where y's size is 1 and x's is not. y has elements; dtypes are any but
/// float8, which is refused with Unimplemented. Sums of floats go on in float64 where float32 would
/// lose digits; sums and maxima of integers are exact.
void launch_reduce(ReduceOp op, const DeviceView& y, const DeviceView& x, double correction,
                   void* workspace, cudaStream_t stream);

/// Scratch memory of the two calls below.
std::size_t tensors_workspace(const DeviceView* views, int count);
/// *out = sum of squares of all views (float32 or bfloat16, dense), plus what it was where
/// `accumulate`.
void launch_sum_of_squares(float* out, const DeviceView* views, int count, bool accumulate,
                           void* workspace, cudaStream_t stream);
/// *index = that of the first view with a NaN or infinite element, or -1. Any strides; integers are
/// finite.
void launch_first_nonfinite(std::int64_t* index, const DeviceView* views, int count,
                            void* workspace, cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
