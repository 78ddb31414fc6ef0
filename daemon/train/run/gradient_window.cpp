// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/gradient_window.h"

#include <utility>

#include "daemon/base/field_error.h"

namespace meshloom::train {

GradientWindow::Reduction GradientWindow::reduction_of(const v1::LossBatch& batch) {
  const bool mean = batch.reduction() == v1::LOSS_REDUCTION_TOKEN_MEAN;
  return {mean, mean ? batch.tokens() : 0};
}

void GradientWindow::check(const v1::LossBatch& batch) const {
  if (!reduction_) return;
  const Reduction now = reduction_of(batch);
  if (now.mean != reduction_->mean)
    base::refuse_field("reduction",
                       "is {}, but that of the calls since the last optimizer step is {}",
                       now.mean ? "token_mean" : "sum", reduction_->mean ? "token_mean" : "sum");
  if (now.tokens != reduction_->tokens)
    base::refuse_field("tokens",
                       "is {}, but {} in the calls since the last optimizer step: they are the "
                       "targets of all its calls",
                       now.tokens, reduction_->tokens);
}

void GradientWindow::add(const v1::LossBatch& batch, std::int64_t samples, std::int64_t tokens) {
  reduction_ = reduction_of(batch);
  samples_ += samples;
  counted_ += tokens;
}

double GradientWindow::mean_of(double reduced) const {
  const auto counted = static_cast<double>(counted_);
  if (!reduction_ || !reduction_->mean) return reduced / counted;
  return reduction_->tokens > 0 ? reduced * static_cast<double>(reduction_->tokens) / counted
                                : reduced;
}

float GradientWindow::scale(const v1::LossBatch& batch) {
  const std::int64_t tokens = reduction_of(batch).tokens;
  return tokens > 0 ? 1.0f / static_cast<float>(tokens) : 1.0f;
}

void GradientWindow::poison(const std::string& cause) {
  if (!poison_) poison_ = cause;
}

double GradientWindow::close() {
  const GradientWindow closed = std::exchange(*this, {});
  if (closed.poison_)
    throw FailedPrecondition(
        fmt::format("optim_step: the gradients since the last optimizer step were discarded: {}",
                    *closed.poison_),
        kGradientsPoisoned, {{"cause", *closed.poison_}});
  if (closed.empty())
    throw FailedPrecondition("optim_step: there are no gradients; call forward_backward first",
                             "NO_GRADIENTS");
  if (!closed.reduction_->mean || closed.reduction_->tokens > 0) return 1.0;
  if (closed.counted_ == 0)
    throw FailedPrecondition(
        "optim_step: the mean over tokens is over none: no target of the calls since the last "
        "optimizer step has a weight that is not 0",
        "NO_TARGETS");
  return 1.0 / static_cast<double>(closed.counted_);
}

}  // namespace meshloom::train
