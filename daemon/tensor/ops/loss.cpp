// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/loss.h"

#include <algorithm>

#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;

/// logits [rows, V], targets [rows] -> losses [rows], float32.
Tensor row_losses(const Tensor& logits, const Tensor& targets,
                  const kernels::CrossEntropyOptions& options) {
  ExecutionContext& context = logits.context();
  Tensor losses = empty(context, targets.shape(), DType::kFloat32);
  const Tensor lse = empty_like(losses);
  context.backend().cross_entropy(context.kernel_context(), losses.view(), lse.view(),
                                  logits.view(), targets.view(), options);

  if (autograd::should_record({&logits})) {
    auto backward = [=, logits = logits.detach()](GradOutputs grads, GradSink& sink) {
      const Tensor dlosses = contiguous(grads[0]);
      Tensor dlogits = empty_like(logits);
      ExecutionContext& c = logits.context();
      c.backend().cross_entropy_backward(c.kernel_context(), dlogits.view(), dlosses.view(),
                                         logits.view(), lse.view(), targets.view(), options);
      sink.emit(0, std::move(dlogits));
    };
    autograd::record_op("cross_entropy", {&logits}, {&losses}, std::move(backward));
  }
  return losses;
}

/// [N,V,d..] -> [N,d..,V] -> [rows, V]; [V] -> [1, V].
Tensor class_dim_last(const Tensor& logits) {
  if (logits.ndim() == 1) return unsqueeze(logits, 0);
  Dims order{0};
  for (int i = 2; i < logits.ndim(); ++i) order.push_back(i);
  order.push_back(1);
  const Tensor permuted = logits.ndim() == 2 ? logits : permute(logits, order);
  return contiguous(reshape(permuted, rows_shape(permuted.shape())));
}

void check_shapes(const Tensor& logits, const Tensor& targets) {
  check(logits.ndim() >= 1, "cross_entropy: logits of shape {}, expected [V], [N,V] or [N,V,d..]",
        to_string(logits.shape()));
  Shape expected = logits.shape();
  expected.erase(logits.ndim() == 1 ? 0 : 1);
  check(targets.shape() == expected,
        "cross_entropy: targets of shape {} for logits {}, expected {}", to_string(targets.shape()),
        to_string(logits.shape()), to_string(expected));
}

std::int64_t counted_rows(const Tensor& targets, std::int64_t ignore_index) {
  const auto* t = targets.data<std::int64_t>();
  return targets.numel() - std::count(t, t + targets.numel(), ignore_index);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options) {
  check_floating("cross_entropy", logits);
  check_dtype("cross_entropy", "targets", targets, DType::kInt64);
  check_shapes(logits, targets);
  check(options.label_smoothing >= 0.0f && options.label_smoothing <= 1.0f,
        "cross_entropy: label_smoothing is {}, expected [0, 1]", options.label_smoothing);
  const std::int64_t classes = logits.size(logits.ndim() == 1 ? 0 : 1);
  check_indices("cross_entropy", "target", targets, classes, options.ignore_index);

  const Tensor flat_targets = reshape(contiguous(targets), {-1});
  kernels::CrossEntropyOptions kernel_options;
  kernel_options.ignore_index = options.ignore_index;
  kernel_options.label_smoothing = options.label_smoothing;
  const Tensor losses = row_losses(class_dim_last(logits), flat_targets, kernel_options);
  Tensor result;
  switch (options.reduction) {
    case Reduction::kNone: result = reshape(losses, targets.shape()); break;
    case Reduction::kSum: result = sum(losses); break;
    case Reduction::kMean:
      result =
          div(sum(losses), static_cast<double>(counted_rows(flat_targets, options.ignore_index)));
      break;
  }
  return cast(result, logits.dtype());
}

}  // namespace meshloom::ops
