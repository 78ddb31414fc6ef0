// SPDX-License-Identifier: Apache-2.0
// Sampler: a model to draw from that is not trained.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "daemon/tensor/execution_context.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/config/sampling_params.h"
#include "daemon/train/run/sample.h"

namespace meshloom::train {

/// Sampler is a model for generation only: from a Hugging Face folder or a checkpoint folder. No
/// collectives. Used by one thread at a time.
class Sampler {
 public:
  static std::unique_ptr<Sampler> load(const ExecutionContext::Options&,
                                       const std::filesystem::path& folder);
  /// Returns the bytes that the weights of load(folder) take, from the folder's config. Throws as
  /// load does if there is none.
  static std::int64_t weight_bytes(const std::filesystem::path& folder);
  virtual ~Sampler() = default;
  /// Returns how many optimizer steps are behind its weights; 0: not known (a Hugging Face folder).
  virtual std::int64_t step() const = 0;
  virtual PromptLimits prompt_limits() const = 0;
  virtual std::unique_ptr<Sample> begin_sample(const std::vector<SampleStart>& sequences) = 0;
};

}  // namespace meshloom::train
