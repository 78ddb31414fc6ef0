// SPDX-License-Identifier: Apache-2.0
// WatchConditions: whether a job still looks well, as run.training.watch says.
#pragma once

#include <deque>
#include <vector>

#include "v1/config.pb.h"
#include "v1/job.pb.h"

namespace meshloom::train {

/// Looks at each step of an attempt. A condition is told when it comes to hold, and again once it
/// has not held in between. A loss or a norm that is NaN is above any limit.
class WatchConditions {
 public:
  explicit WatchConditions(const v1::TrainingConfig& config);

  /// Returns the conditions that hold since this step.
  std::vector<v1::WatchNotice> add(const v1::StepMetrics& step);

 private:
  struct Item {
    v1::WatchCondition condition;
    bool holds = false;
  };
  /// Returns that of the steps before; 0 while there are too few.
  double median_rate() const;

  std::vector<Item> items_;
  bool with_rates_ = false;   ///< one of them is about tokens per second
  std::deque<double> rates_;  ///< of the last steps
};

}  // namespace meshloom::train
