// SPDX-License-Identifier: Apache-2.0
// Copying, packing and unpacking the blocks of elements that local tensors have in common.
#pragma once

#include "kernels/backend.h"
#include "planner/local_part.h"

namespace meshloom::dtensor {

using planner::Box;
using planner::Boxes;

/// Sets to[box.to] = from[box.from], both of one dtype.
void copy_boxes(const kernels::KernelContext&, kernels::Backend&, const Boxes&,
                const TensorView& to, const TensorView& from);
/// Copies all blocks one after the other, each row-major, into (or out of) dense memory.
void pack_boxes(const kernels::KernelContext&, kernels::Backend&, const Boxes&, void* packed,
                const TensorView& from);
void unpack_boxes(const kernels::KernelContext&, kernels::Backend&, const Boxes&,
                  const TensorView& to, void* packed);

}  // namespace meshloom::dtensor
