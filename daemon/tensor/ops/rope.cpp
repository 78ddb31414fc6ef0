// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;

Tensor rotate(const Tensor& given, const Tensor& cos, const Tensor& sin, const Tensor& positions,
              std::int64_t position_offset, bool inverse) {
  const Tensor x = given.strides()[3] == 1 ? given : contiguous(given);

  Tensor y = empty_heads(x.context(), x.shape(), x.dtype());
  kernels::RopeOptions options;
  options.cos = cos.view();
  options.sin = sin.view();
  options.positions = positions.view();
  options.position_offset = position_offset;
  options.inverse = inverse;
  x.context().backend().rope(x.context().kernel_context(), y.view(), x.view(), options);

  if (autograd::should_record({&x}))
    autograd::record_op("rope", {&x}, {&y}, [=](GradOutputs dy, GradSink& sink) {
      sink.emit(0, rotate(dy[0], cos, sin, positions, position_offset, !inverse));
    });
  return y;
}

/// A part whose rows lie anywhere in the sequence.
Tensor rotate_part(const Tensor& x, const planner::LocalPart& part, const Tensor& cos,
                   const Tensor& sin, std::int64_t position_offset) {
  int row_dim = 0;
  for (const planner::RowLists& rows : part.row_lists())
    if (rows.dim == 2) row_dim = rows.row_dim;
  // [B,S]; [H,S] if they differ by head.
  std::vector<std::int64_t> values;
  for (std::int64_t row = 0; row < part.shape()[row_dim]; ++row)
    for (const planner::ShardRange& range : part.ranges_of_row(2, row))
      for (std::int64_t s = range.begin; s < range.end; ++s) values.push_back(position_offset + s);
  const Tensor positions =
      from_values(x.context(), {part.shape()[row_dim], part.shape()[2]}, values);
  if (row_dim == 0) return rotate(x, cos, sin, positions, position_offset, false);
  const Tensor by_head = contiguous(transpose(x, 0, 1));
  return transpose(rotate(by_head, cos, sin, positions, position_offset, false), 0, 1);
}

/// The tables are plain tensors that every rank has; positions may be too.
Tensor rotate_with_layout(LayoutEngine& engine, const Tensor& x, const Tensor& cos,
                          const Tensor& sin, const Tensor& positions,
                          std::int64_t position_offset) {
  const Tensor none;
  return run_call(
      engine, planner::OpId::kRope, {&x, &none, &none, &positions}, {}, [&](const LocalCall& c) {
        const Tensor& local = c.inputs[0];
        if (c.inputs[3]) check_indices("rope", "position", c.inputs[3], cos.size(0));
        if (c.inputs[3]) return rotate(local, cos, sin, contiguous(c.inputs[3]), 0, false);
        const planner::LocalPart& part = c.parts[0];
        const bool one_range = c.decision.inputs[0]->sharding_dims(2).empty() ||
                               (part.is_product() && part.ranges(2).size() == 1);
        return one_range
                   ? rotate(local, cos, sin, none, position_offset + c.attributes.dims[0], false)
                   : rotate_part(local, part, cos, sin, position_offset);
      });
}

}  // namespace

Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& positions,
            std::int64_t position_offset) {
  check_floating("rope", x);
  check(x.ndim() == 4 && x.size(3) % 2 == 0, "rope: x of shape {}, expected [B,H,S,D] with even D",
        x.shape());
  for (const Tensor* table : {&cos, &sin}) {
    check_dtype("rope", "cos and sin", *table, DType::kFloat32);
    check(table->ndim() == 2 && table->size(1) == x.size(3) / 2 && table->contiguous() &&
              table->shape() == cos.shape(),
          "rope: a table of shape {} for x {}, expected [positions, {}]", table->shape(), x.shape(),
          x.size(3) / 2);
  }
  if (positions) {
    check_dtype("rope", "positions", positions, DType::kInt64);
    check(positions.shape() == Shape{x.size(0), x.size(2)},
          "rope: positions of shape {} for x {}, expected [B,S]", positions.shape(), x.shape());
    if (LayoutEngine* engine = layout_engine({&x, &positions}))
      return rotate_with_layout(*engine, x, cos, sin, positions, 0);
    check_indices("rope", "position", positions, cos.size(0));
    return rotate(x, cos, sin, contiguous(positions), 0, false);
  }
  check(position_offset >= 0 && position_offset + x.size(2) <= cos.size(0),
        "rope: positions {} to {} are outside the table of {}", position_offset,
        position_offset + x.size(2), cos.size(0));
  if (LayoutEngine* engine = layout_engine({&x}))
    return rotate_with_layout(*engine, x, cos, sin, {}, position_offset);
  return rotate(x, cos, sin, {}, position_offset, false);
}

}  // namespace meshloom::ops
