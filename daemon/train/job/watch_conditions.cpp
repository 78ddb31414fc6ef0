// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/job/watch_conditions.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace meshloom::train {
namespace {

constexpr std::size_t kMostRates = 100;
constexpr std::size_t kFewestRates = 20;

/// The notice of a condition that holds; nothing if it does not.
std::optional<v1::WatchNotice> notice_of(const v1::WatchCondition& condition,
                                         const v1::StepMetrics& step, double median) {
  v1::WatchNotice notice;
  notice.set_step(step.step());
  notice.set_cancel(condition.cancel());
  if (condition.has_tokens_per_second_below()) {
    const double share = condition.tokens_per_second_below();
    if (!(median > 0) || step.tokens_per_second() >= share * median) return std::nullopt;
    notice.set_condition(fmt::format("tokens/s below {:g} of the median, {:.4g}", share, median));
    notice.set_value(step.tokens_per_second());
    return notice;
  }
  const bool of_loss = condition.has_loss_above();
  const double limit = of_loss ? condition.loss_above() : condition.grad_norm_above();
  const double value = of_loss ? step.loss() : step.grad_norm();
  if (value <= limit) return std::nullopt;
  notice.set_condition(fmt::format("{} above {:g}", of_loss ? "loss" : "gradient norm", limit));
  notice.set_value(value);
  return notice;
}

}  // namespace

WatchConditions::WatchConditions(const v1::TrainingConfig& config) {
  for (const v1::WatchCondition& condition : config.watch()) {
    items_.push_back({condition});
    with_rates_ = with_rates_ || condition.has_tokens_per_second_below();
  }
}

double WatchConditions::median_rate() const {
  if (rates_.size() < kFewestRates) return 0.0;
  std::vector<double> sorted(rates_.begin(), rates_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

std::vector<v1::WatchNotice> WatchConditions::add(const v1::StepMetrics& step) {
  std::vector<v1::WatchNotice> told;
  const double median = with_rates_ ? median_rate() : 0.0;
  for (Item& item : items_) {
    const auto notice = notice_of(item.condition, step, median);
    if (notice && !item.holds) told.push_back(*notice);
    item.holds = notice.has_value();
  }
  if (!with_rates_) return told;
  rates_.push_back(step.tokens_per_second());
  if (rates_.size() > kMostRates) rates_.pop_front();
  return told;
}

}  // namespace meshloom::train
