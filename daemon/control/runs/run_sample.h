// SPDX-License-Identifier: Apache-2.0
// RunSample: sequences that are drawn from a run, as one operation.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/runs/operations.h"
#include "kernels/base/error.h"

namespace meshloom::control {

/// Of a sample that was to be drawn from the weights of `wanted` steps.
Error stale_weights(std::int64_t wanted, std::int64_t step);

/// Lives until its operation has ended.
class RunSample : public std::enable_shared_from_this<RunSample> {
 public:
  struct Task {
    std::string operation;
    std::string run;
    std::vector<train::SampleStart> starts;
    int samples = 1;  ///< of each prompt
    std::optional<std::int64_t> weights_step;
    std::shared_ptr<const void> memory;  ///< held while it draws
  };
  /// Throws what SampleScheduler::start throws.
  static void start(SampleScheduler& scheduler, Operations& operations, Task task);

 private:
  RunSample(Operations& operations, Task task);
  /// Takes what was drawn; ends the operation after the last token.
  void collect();
  void add(const DrawnToken& token);

  Operations& operations_;
  const Task task_;
  std::mutex mutex_;
  v1::SampleOutput output_;
  std::optional<std::int64_t> other_step_;  ///< of weights that were not asked for
  std::shared_ptr<TokenChannel> channel_;
  std::shared_ptr<RunSample> self_;  ///< until it has ended
};

}  // namespace meshloom::control
