// SPDX-License-Identifier: Apache-2.0
// What a job draws from its own weights, as run.sample says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/control/ranks/run_client.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/config/sampling_params.h"
#include "v1/config.pb.h"
#include "v1/job.pb.h"

namespace meshloom::control {

/// Used by the driver's thread.
class JobSamples {
 public:
  /// All outlive it; the config is resolved. Throws what train::prompt_tokens throws.
  JobSamples(const RunClient& run, const v1::SampleConfig& config, train::PromptLimits limits);

  /// Whether there is anything to draw from.
  static bool any(const v1::SampleConfig& config) {
    return !config.prompt().empty() || !config.token_ids().empty() || !config.prompts().empty();
  }

  /// One for each prompt: that of prompt or token_ids, then prompts, each as it would be alone.
  struct Drawn {
    std::vector<v1::DrawnSample> samples;
    bool whole = true;  ///< false: `given_up` was true before all was drawn
    bool cut = false;   ///< a text is longer than its share of kMostSampleBytes, and was cut there
  };
  /// From the weights as they are, after `step` steps. Throws what a verb throws.
  Drawn draw(std::int64_t step, const std::function<bool()>& given_up) const;

 private:
  const RunClient& run_;
  const v1::SampleConfig& config_;
  const train::PromptLimits limits_;
  std::vector<std::string> prompts_;  ///< as text; empty for token_ids
  std::vector<train::SampleStart> starts_;
};

}  // namespace meshloom::control
