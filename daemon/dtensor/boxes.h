// SPDX-License-Identifier: Apache-2.0
// Boxes: which elements two local parts of one global tensor have in common, as blocks to copy.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "planner/dtensor_spec.h"

namespace meshloom::dtensor {

/// A block of elements with its place in two local tensors.
struct Box {
  Dims from, to;  ///< first element in either, by dim
  Shape size;
};

/// In a fixed order that any rank finds alike: row-major over the ranges of `to`.
using Boxes = std::vector<Box>;

/// What part `from` and part `to` of one global tensor share; empty blocks are left out.
Boxes common_boxes(const planner::LocalPart& from, const planner::LocalPart& to);
std::int64_t count_elements(const Boxes&);
/// One block, of this whole shape.
bool covers(const Boxes&, const Shape& shape);

/// Elements of a row-major tensor of `shape` from which the block is one piece of memory; -1 where
/// it is not.
std::int64_t dense_offset(const Dims& first, const Shape& size, const Shape& shape);

/// to[box.to] = from[box.from], both of one dtype.
void copy_boxes(const kernels::KernelContext&, kernels::Backend&, const Boxes&,
                const TensorView& to, const TensorView& from);
/// All blocks one after the other, each row-major, into (or out of) dense memory.
void pack_boxes(const kernels::KernelContext&, kernels::Backend&, const Boxes&, void* packed,
                const TensorView& from);
void unpack_boxes(const kernels::KernelContext&, kernels::Backend&, const Boxes&,
                  const TensorView& to, void* packed);

}  // namespace meshloom::dtensor
