// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/embedding.h"

#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {

using autograd::GradOutputs;
using autograd::GradSink;

Tensor embedding(const Tensor& weight_given, const Tensor& ids_given, std::int64_t padding_idx) {
  const Tensor weight = contiguous(weight_given);
  check_floating("embedding", weight);
  check_dtype("embedding", "ids", ids_given, DType::kInt64);
  check(weight.ndim() == 2, "embedding: weight of shape {}, expected [V,C]",
        to_string(weight.shape()));
  check_indices("embedding", "id", ids_given, weight.size(0));
  const Tensor ids = contiguous(ids_given);
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
      c.backend().embedding_backward(c.kernel_context(), grad.view(), dy.view(), ids.view(),
                                     padding_idx);
      grad.finish();
    };
    autograd::record_op("embedding", {&weight}, {&y}, std::move(backward));
  }
  return y;
}

}  // namespace meshloom::ops
