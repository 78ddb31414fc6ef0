// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/embedding.h"

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/class_slice.h"
#include "daemon/tensor/ops/distributed_ops.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;

/// Rows of weight by id, zeros for -1. Ids in `grad_ids` equal to skipped_id add nothing to the
/// gradient.
Tensor look_up(const Tensor& weight_given, const Tensor& ids, const Tensor& grad_ids,
               std::int64_t skipped_id) {
  const Tensor weight = contiguous(weight_given);
  Shape shape = ids.shape();
  shape.push_back(weight.size(1));

  ExecutionContext& context = weight.context();
  Tensor y = empty(context, shape, weight.dtype());
  context.backend().embedding(context.kernel_context(), y.view(), weight.view(), ids.view());

  if (autograd::should_record({&weight})) {
    auto backward = [=](GradOutputs grads, GradSink& sink) {
      const Tensor dy = contiguous(grads[0]);
      ParamGrad grad(sink, 0, weight);
      grad.clear_if_empty();
      ExecutionContext& c = dy.context();
      c.backend().embedding_backward(c.kernel_context(), grad.view(), dy.view(), grad_ids.view(),
                                     skipped_id);
      grad.finish();
    };
    autograd::record_op("embedding", {&weight}, {&y}, std::move(backward));
  }
  return y;
}

}  // namespace

/// This rank's rows of the table. Every id is one rank's, so that the sum over ranks is the result.
std::vector<Tensor> embedding_by_rows(const LocalCall& call) {
  const planner::IndexRanges& slice = call.parts[0].ranges(0);
  const std::int64_t padding_idx = call.attributes.ints[0];
  const Tensor& ids = call.inputs[1];
  check_indices("embedding", "id", ids, call.decision.inputs[0]->shape()[0]);
  const Tensor places = slice_places(ids, slice);
  const Tensor grad_places = padding_idx < 0 ? places : slice_places(ids, slice, padding_idx);
  return {look_up(call.inputs[0], places, grad_places, kernels::kOtherSlice)};
}

Tensor embedding(const Tensor& weight, const Tensor& ids_given, std::int64_t padding_idx) {
  check_floating("embedding", weight);
  check_dtype("embedding", "ids", ids_given, DType::kInt64);
  check(weight.ndim() == 2, "embedding: weight of shape {}, expected [V,C]", weight.shape());
  if (LayoutEngine* engine = layout_engine({&weight, &ids_given}))
    return run_call(
        *engine, planner::OpId::kEmbedding, {&weight, &ids_given}, {{}, {padding_idx}},
        [&](const LocalCall& c) { return embedding(c.inputs[0], c.inputs[1], padding_idx); });
  check_indices("embedding", "id", ids_given, weight.size(0));
  const Tensor ids = contiguous(ids_given);
  return look_up(weight, ids, ids, padding_idx);
}

}  // namespace meshloom::ops
