// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace meshloom::train {

std::int64_t LrSchedule::decay_steps() const {
  const std::int64_t most = std::max<std::int64_t>(total_steps - warmup_steps, 0);
  if (decay == Decay::kConstant) return 0;
  if (decay_ratio >= 1.0) return most;
  const auto wanted = std::llround(decay_ratio * static_cast<double>(total_steps));
  return std::clamp<std::int64_t>(wanted, 0, most);
}

double LrSchedule::factor(std::int64_t i) const {
  if (i < warmup_steps) return static_cast<double>(i + 1) / static_cast<double>(warmup_steps);
  const std::int64_t steps = decay_steps();
  const std::int64_t start = total_steps - steps;
  if (steps == 0 || i < start) return 1.0;
  const double p = std::min(1.0, static_cast<double>(i - start) / static_cast<double>(steps));
  const double shape =
      decay == Decay::kCosine ? 0.5 * (1.0 + std::cos(std::numbers::pi * p)) : 1.0 - p;
  return min_factor + (1.0 - min_factor) * shape;
}

LrSchedule make_lr_schedule(const v1::LrSchedulerConfig& config, std::int64_t total_steps) {
  LrSchedule schedule;
  switch (config.decay_type()) {
    case v1::DECAY_TYPE_CONSTANT: schedule.decay = LrSchedule::Decay::kConstant; break;
    case v1::DECAY_TYPE_LINEAR: schedule.decay = LrSchedule::Decay::kLinear; break;
    case v1::DECAY_TYPE_WSD: schedule.decay = LrSchedule::Decay::kWsd; break;
    default: schedule.decay = LrSchedule::Decay::kCosine; break;
  }
  schedule.total_steps = total_steps;
  schedule.warmup_steps = config.warmup_steps();
  schedule.decay_ratio = config.decay_ratio();
  schedule.min_factor = config.min_lr_factor();
  return schedule;
}

std::optional<std::int64_t> first_difference(const LearningRate& a, const LearningRate& b,
                                             std::int64_t begin, std::int64_t end) {
  // A decay of one step has min + (1 - min), which may be a rounding below 1.
  constexpr double kRounding = 1e-9;
  const auto differ = [&](std::int64_t i) {
    const double x = a.at(i), y = b.at(i);
    return std::abs(x - y) > kRounding * std::max(std::abs(x), std::abs(y));
  };
  // Between two edges each rate is one formula: those that agree at both ends are the same.
  std::vector<std::int64_t> looks{begin, end - 1};
  for (const LrSchedule& schedule : {a.schedule, b.schedule})
    for (const std::int64_t edge : {schedule.warmup_steps, schedule.total_steps,
                                    schedule.total_steps - schedule.decay_steps()})
      looks.insert(looks.end(), {edge - 1, edge, edge + 1});
  std::erase_if(looks, [&](std::int64_t i) { return i < begin || i >= end; });
  std::sort(looks.begin(), looks.end());
  const auto found = std::find_if(looks.begin(), looks.end(), differ);
  if (found == looks.end()) return std::nullopt;
  // A long cosine leaves the rate before it more slowly than rounding shows.
  std::int64_t same = found == looks.begin() ? begin - 1 : *(found - 1), different = *found;
  while (different - same > 1) {
    const std::int64_t middle = same + (different - same) / 2;
    (differ(middle) ? different : same) = middle;
  }
  return different;
}

}  // namespace meshloom::train
