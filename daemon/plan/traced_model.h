// SPDX-License-Identifier: Apache-2.0
// TracedModel: a model's config as the planner sees it, its graphs those of the model itself.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "daemon/nn/models/model_config.h"
#include "planner/estimate/model_graphs.h"

namespace meshloom::nn {
class ModelTrace;
}

namespace meshloom::plan {

/// Makes the model without memory, and traces it once for each size of a micro batch. Used by one
/// thread at a time.
class TracedModel final : public planner::ModelGraphs {
 public:
  /// Throws as planner::check_model_shape and planner::sort_modules.
  explicit TracedModel(const nn::ModelConfig& config);
  ~TracedModel() override;

  const planner::ModelShape& shape() const override { return shape_; }
  const planner::ModelModules& modules() const override;
  planner::StylePlan default_styles(bool sequence_parallel) const override;
  const planner::ModelGraph& of(std::int64_t rows, std::int64_t tokens) override;

 private:
  planner::ModelShape shape_;
  nn::Architecture architecture_;
  std::unique_ptr<nn::ModelTrace> trace_;
  std::map<std::pair<std::int64_t, std::int64_t>, planner::ModelGraph> graphs_;
};

}  // namespace meshloom::plan
