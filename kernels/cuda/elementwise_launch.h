// SPDX-License-Identifier: Apache-2.0
// Launches of the elementwise kernels. Views of one call have one shape, with elements; those that
// are broadcast have strides of 0. Dtypes may be mixed; all float32 and all bfloat16 are fast.
// Throws Unimplemented for float8.
#pragma once

#include <driver_types.h>

#include "kernels/cuda/device_view.h"
#include "kernels/op_ids.h"

namespace meshloom::kernels::cuda {

void launch_unary(UnaryOp op, const DeviceView& y, const DeviceView& x, double scalar,
                  cudaStream_t stream);

/// Whether launch_unary_backward wants the output of `op`, or its input.
bool unary_backward_reads_output(UnaryOp op);
/// dx = dy * op'(x); `saved` is what unary_backward_reads_output says, or dy where the derivative
/// is constant.
void launch_unary_backward(UnaryOp op, const DeviceView& dx, const DeviceView& dy,
                           const DeviceView& saved, double scalar, cudaStream_t stream);

/// Integers of one dtype are exact, in 64 bits that wrap around; a quotient by 0 is 0.
void launch_binary(BinaryOp op, const DeviceView& y, const DeviceView& a, const DeviceView& b,
                   cudaStream_t stream);

/// y, a and b have one dtype, of any kind.
void launch_where(const DeviceView& y, const DeviceView& condition, const DeviceView& a,
                  const DeviceView& b, cudaStream_t stream);

/// y and x have one dtype, of any kind, and at least 2 dims.
void launch_triangle(const DeviceView& y, const DeviceView& x, bool upper, std::int64_t diagonal,
                     cudaStream_t stream);

void launch_swiglu(const DeviceView& y, const DeviceView& gate, const DeviceView& up,
                   cudaStream_t stream);
void launch_swiglu_backward(const DeviceView& dgate, const DeviceView& dup, const DeviceView& dy,
                            const DeviceView& gate, const DeviceView& up, cudaStream_t stream);

}  // namespace meshloom::kernels::cuda
