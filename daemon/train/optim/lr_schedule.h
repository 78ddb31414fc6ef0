// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: pure functions of the step.
#pragma once

#include <cstdint>
#include <optional>

#include "v1/config.pb.h"

namespace meshloom::train {

/// Steps are counted from 0 and named as torchtitan names them. With w = warmup_steps and D decay
/// steps at the end:
///   i < w           factor (i + 1) / w
///   w <= i < T - D  factor 1
///   i >= T - D      p = (i - (T - D)) / D, factor f(p) = min + (1 - min) g(p), g linear: 1 - p,
///                   cosine: (1 + cos(pi p)) / 2
/// D = T - w for linear and cosine with decay_ratio 1, round(decay_ratio T) (at most T - w) below
/// that and for wsd, whose decay is linear; constant has no decay. So the last step is one part in
/// D above the lowest factor, which step T would have.
struct LrSchedule {
  enum class Decay { kConstant, kLinear, kCosine, kWsd } decay = Decay::kCosine;
  std::int64_t total_steps = 1;
  std::int64_t warmup_steps = 0;
  double decay_ratio = 1.0;
  double min_factor = 0.1;

  /// Returns the factor that step i's learning rate is multiplied with.
  double factor(std::int64_t i) const;
  std::int64_t decay_steps() const;
};

/// Makes the schedule of a resolved config.
LrSchedule make_lr_schedule(const v1::LrSchedulerConfig&, std::int64_t total_steps);

/// A job trains with a learning rate: a schedule, and the rate that its factors multiply.
struct LearningRate {
  double peak = 0.0;
  LrSchedule schedule;

  double at(std::int64_t i) const { return peak * schedule.factor(i); }
};

/// Returns the first step of begin <= i < end to which two rates give values that differ by more
/// than rounding; nothing where there is none. Steps beyond the end of a schedule have what its
/// last part gives. Looks at as few steps of a long job as of a short one.
std::optional<std::int64_t> first_difference(const LearningRate& a, const LearningRate& b,
                                             std::int64_t begin, std::int64_t end);

}  // namespace meshloom::train
