// SPDX-License-Identifier: Apache-2.0
#include "daemon/plan/traced_model.h"

#include "daemon/nn/models/default_styles.h"
#include "daemon/nn/trace/model_trace.h"
#include "daemon/plan/model_shape.h"

namespace meshloom::plan {

TracedModel::TracedModel(const nn::ModelConfig& config)
    : shape_(make_model_shape(config)), architecture_(config.architecture) {
  planner::check_model_shape(shape_);
  trace_ = std::make_unique<nn::ModelTrace>(config);
}

TracedModel::~TracedModel() = default;

const planner::ModelModules& TracedModel::modules() const { return trace_->modules(); }

planner::StylePlan TracedModel::default_styles(bool sequence_parallel) const {
  return nn::default_styles(architecture_, sequence_parallel);
}

const planner::ModelGraph& TracedModel::of(std::int64_t rows, std::int64_t tokens) {
  const auto [known, is_new] = graphs_.try_emplace({rows, tokens});
  if (is_new) known->second = planner::fold_blocks(trace_->loss(rows, tokens));
  return known->second;
}

}  // namespace meshloom::plan
