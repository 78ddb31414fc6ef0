// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "daemon/tensor/ops/output_loss.h"

namespace meshloom::ops {
namespace {

/// Goes over the rows chunk by chunk, as the loop that made the losses.
class BackwardLoop {
 public:
  BackwardLoop(ExecutionContext& context, const OutputLossBackward& loss)
      : context_(context),
        loss_(loss),
        rows_(loss.hidden.size(0)),
        plan_(context.backend().output_loss_plan(loss.hidden, loss.weight, loss.weight.size(0))) {
    logits_ = empty(context, {plan_.chunk, plan_.row}, plan_.logits);
    losses_ = empty(context, {plan_.chunk}, plan_.logits);
    lse_ = empty_like(losses_);
    if (plan_.gradient != plan_.logits)
      gradients_ = empty(context, {plan_.block, plan_.row}, plan_.gradient);
    if (loss.targets.size(0) > 1) {
      sum_ = empty_like(logits_);
      summand_ = empty_like(logits_);
    }
  }

  void run() const {
    for (std::int64_t block = 0; block < rows_; block += plan_.block) {
      const std::int64_t end = std::min(block + plan_.block, rows_);
      TensorView gradient = columns(gradients_ ? gradients_ : logits_, 0, end - block);
      for (std::int64_t begin = block; begin < end; begin += plan_.chunk) {
        const std::int64_t count = std::min(plan_.chunk, end - begin);
        const TensorView part = gradients_ ? rows_of(gradient, begin - block, count) : gradient;
        run_chunk(part, begin, count);
      }
      const kernels::OutputLossGrads grads{rows_of(loss_.dhidden, block, end - block),
                                           loss_.dweight, loss_.dbias,
                                           loss_.accumulate || block > 0};
      context_.backend().output_loss_products(context_.kernel_context(), grads, gradient,
                                              projection(block, end - block));
    }
  }

 private:
  TensorView columns(const Tensor& rows, std::int64_t begin, std::int64_t count) const {
    TensorView view = rows_of(rows.view(), begin, count);
    view.shape[1] = loss_.weight.size(0);
    return view;
  }
  kernels::OutputProjection projection(std::int64_t begin, std::int64_t count) const {
    return {rows_of(loss_.hidden, begin, count), loss_.weight, loss_.bias};
  }

  void run_chunk(const TensorView& gradient, std::int64_t begin, std::int64_t count) const {
    const TensorView logits = columns(logits_, 0, count);
    const auto targets = [&](std::int64_t k) {
      return part_of_target(loss_.targets, k, begin, count);
    };
    // The losses are not asked for again, and lse is known: of this call only the logits count.
    context_.backend().output_loss_chunk(
        context_.kernel_context(),
        {logits, targets(0), rows_of(losses_.view(), 0, count), rows_of(lse_.view(), 0, count)},
        projection(begin, count), loss_.options);
    const auto back = [&](const TensorView& to, std::int64_t k) {
      context_.backend().cross_entropy_backward(
          context_.kernel_context(), to, part_of_target(loss_.loss_grads, k, begin, count),
          {logits, targets(k), {}, rows_of(loss_.lse, begin, count)}, loss_.options);
    };
    if (!sum_) return back(gradient, 0);
    const TensorView sum = columns(sum_, 0, count), summand = columns(summand_, 0, count);
    back(sum, 0);
    for (std::int64_t k = 1; k < loss_.targets.size(0); ++k) {
      back(summand, k);
      context_.backend().binary(context_.kernel_context(), kernels::BinaryOp::kAdd, sum, sum,
                                summand);
    }
    context_.backend().copy(context_.kernel_context(), gradient, sum);
  }

  ExecutionContext& context_;
  const OutputLossBackward& loss_;
  std::int64_t rows_;
  kernels::OutputLossPlan plan_;
  Tensor logits_, losses_, lse_, gradients_;
  Tensor sum_, summand_;  ///< over targets
};

}  // namespace

void run_output_loss_backward(ExecutionContext& context, const OutputLossBackward& loss) {
  if (loss.hidden.size(0) > 0) return BackwardLoop(context, loss).run();
  clear_unless_added(context, loss.dweight, loss.dbias, loss.accumulate);
}

}  // namespace meshloom::ops
