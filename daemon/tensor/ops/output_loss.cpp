// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/output_loss.h"

#include <algorithm>
#include <array>
#include <utility>

#include "daemon/tensor/ops/op_support.h"

namespace meshloom::ops {
namespace {

/// Goes over the rows chunk by chunk. With an exchange one chunk is behind: while its losses
/// travel, the next one's logits are made.
class Loop {
 public:
  Loop(ExecutionContext& context, const OutputLoss& loss)
      : context_(context),
        loss_(loss),
        rows_(loss.hidden.size(0)),
        plan_(context.backend().output_loss_plan(
            loss.hidden, loss.weight,
            loss.exchange ? loss.exchange->widest() : loss.weight.size(0))) {
    const bool two = loss.exchange && plan_.chunk < rows_;
    for (std::size_t i = 0; i < (two ? 2 : 1); ++i)
      logits_[i] = empty(context, {plan_.chunk, plan_.row}, plan_.logits);
    if (!loss.lse.defined()) own_lse_ = empty(context, {rows_}, plan_.logits);
    lse_ = loss.lse.defined() ? loss.lse : own_lse_.view();
    if (with_gradient() && plan_.gradient != plan_.logits)
      gradients_ = empty(context, {plan_.block, plan_.row}, plan_.gradient);
  }

  void run() {
    Chunk behind{};  // none if it has no rows
    std::size_t buffer = 0;
    for (std::int64_t block = 0; block < rows_; block += plan_.block) {
      const std::int64_t end = std::min(block + plan_.block, rows_);
      for (std::int64_t begin = block; begin < end; begin += plan_.chunk) {
        Chunk chunk = begin_chunk(block, begin, std::min(plan_.chunk, end - begin), buffer);
        if (behind.count > 0) end_chunk(behind);
        if (!loss_.exchange) {
          end_chunk(chunk);
          continue;
        }
        behind = std::move(chunk);
        if (logits_[1]) buffer = 1 - buffer;
      }
    }
    if (behind.count > 0) end_chunk(behind);
  }

 private:
  struct Chunk {
    std::int64_t block = 0, begin = 0, count = 0;
    TensorView logits;
    SliceExchange::Pending exchange;
  };

  bool with_gradient() const {
    return loss_.dhidden.defined() || loss_.dweight.defined() || loss_.dbias.defined();
  }
  TensorView columns(const Tensor& rows, std::int64_t begin, std::int64_t count) const {
    TensorView view = rows_of(rows.view(), begin, count);
    view.shape[1] = loss_.weight.size(0);
    return view;
  }

  kernels::CrossEntropyRows rows_of_chunk(const Chunk& chunk, std::int64_t target = 0) const {
    const auto part = [&](const TensorView& view) {
      return part_of_target(view, target, chunk.begin, chunk.count);
    };
    return {chunk.logits, part(loss_.targets), part(loss_.losses),
            rows_of(lse_, chunk.begin, chunk.count)};
  }
  kernels::OutputProjection projection(std::int64_t begin, std::int64_t count) const {
    return {rows_of(loss_.hidden, begin, count), loss_.weight, loss_.bias};
  }

  Chunk begin_chunk(std::int64_t block, std::int64_t begin, std::int64_t count,
                    std::size_t buffer) const {
    Chunk chunk{block, begin, count, columns(logits_[buffer], 0, count), {}};
    for (std::int64_t target = 0; target < loss_.targets.size(0); ++target) {
      const kernels::CrossEntropyRows rows = rows_of_chunk(chunk, target);
      const kernels::KernelContext& kernel = context_.kernel_context();
      if (target == 0) {
        context_.backend().output_loss_chunk(kernel, rows, projection(begin, count), loss_.options);
      } else {
        // An exchange replaces lse, which is that of this rank's slice until then.
        if (loss_.exchange) chunk.exchange.finish();
        context_.backend().cross_entropy(kernel, rows, loss_.options);
      }
      if (loss_.exchange)
        chunk.exchange = loss_.exchange->begin(rows.losses, rows.lse, rows.targets);
    }
    return chunk;
  }

  void end_chunk(Chunk& chunk) const {
    if (loss_.exchange) chunk.exchange.finish();
    if (!with_gradient()) return;
    const auto [block, begin, count] = std::array{chunk.block, chunk.begin, chunk.count};
    const TensorView gradient =
        gradients_ ? columns(gradients_, begin - block, count) : chunk.logits;
    context_.backend().cross_entropy_backward(context_.kernel_context(), gradient,
                                              rows_of(loss_.row_weights, begin, count),
                                              rows_of_chunk(chunk), loss_.options);
    const std::int64_t end = std::min(block + plan_.block, rows_);
    if (begin + count < end) return;
    const kernels::OutputLossGrads grads{rows_of(loss_.dhidden, block, end - block), loss_.dweight,
                                         loss_.dbias, loss_.accumulate || block > 0};
    context_.backend().output_loss_products(
        context_.kernel_context(), grads,
        gradients_ ? columns(gradients_, 0, end - block) : chunk.logits,
        projection(block, end - block));
  }

  ExecutionContext& context_;
  const OutputLoss& loss_;
  std::int64_t rows_;
  kernels::OutputLossPlan plan_;
  std::array<Tensor, 2> logits_;
  Tensor own_lse_, gradients_;
  TensorView lse_;
};

}  // namespace

void check_output_loss(const char* name, const Tensor& hidden, const Tensor& weight,
                       const Tensor& bias, const Tensor& targets, bool several) {
  check_floating(name, hidden);
  check_same_dtype(name, hidden, weight);
  check_dtype(name, "targets", targets, DType::kInt64);
  check(hidden.ndim() >= 1 && weight.ndim() == 2 && hidden.size(-1) == weight.size(1),
        "{}: hidden of shape {} does not fit weight {}", name, hidden.shape(), weight.shape());
  Shape expected = hidden.shape();
  expected.erase(expected.size() - 1);
  if (several && targets.ndim() == hidden.ndim()) expected.push_back(targets.size(-1));
  check(targets.shape() == expected, "{}: targets of shape {} for hidden {}", name, targets.shape(),
        hidden.shape());
  if (!bias) return;
  check_same_dtype(name, hidden, bias);
  check(bias.ndim() == 1 && bias.size(0) == weight.size(0), "{}: bias of shape {}, expected [{}]",
        name, bias.shape(), weight.size(0));
}

void run_output_loss(ExecutionContext& context, const OutputLoss& loss) {
  if (loss.hidden.size(0) > 0) return Loop(context, loss).run();
  clear_unless_added(context, loss.dweight, loss.dbias, loss.accumulate);
}

TensorView part_of_target(const TensorView& view, std::int64_t k, std::int64_t begin,
                          std::int64_t count) {
  TensorView row = rows_of(view, k, 1);
  row.shape.erase(0);
  row.strides.erase(0);
  return rows_of(row, begin, count);
}

void clear_unless_added(ExecutionContext& context, const TensorView& dweight,
                        const TensorView& dbias, bool accumulate) {
  for (const TensorView& gradient : {dweight, dbias})
    if (gradient.defined() && !accumulate)
      context.backend().fill(context.kernel_context(), gradient, 0.0);
}

}  // namespace meshloom::ops
