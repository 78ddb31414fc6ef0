// SPDX-License-Identifier: Apache-2.0
// Estimates of the models that configs describe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/plan/model_shape.h"
#include "daemon/plan/traced_model.h"
#include "planner/estimate/estimate.h"
#include "planner/estimate/parameter_layout.h"
#include "planner/estimate/search.h"

namespace meshloom::planner {

/// The graph that it is made of lives on. One thread calls it.
inline LocalModel local_model(const nn::ModelConfig& config, const MeshSizes& mesh,
                              const ParallelPlan& plan, const Workload& work) {
  static std::vector<std::unique_ptr<plan::TracedModel>> traced;
  traced.push_back(std::make_unique<plan::TracedModel>(config));
  return local_model(*traced.back(), mesh, plan, work);
}

inline std::vector<std::string> parameter_names(const nn::ModelConfig& config) {
  return parameter_names(plan::TracedModel(config).modules());
}

inline std::vector<ParameterLayout> parameter_layouts(const nn::ModelConfig& config,
                                                      const MeshSizes& mesh,
                                                      const ParallelPlan& plan,
                                                      const std::vector<int>& coordinates) {
  return parameter_layouts(plan::TracedModel(config), mesh, plan, coordinates);
}

inline StyledModel styled_model(const nn::ModelConfig& config, const ParallelPlan& plan, int tp) {
  return styled_model(plan::TracedModel(config), plan, tp);
}

inline Estimate estimate(const nn::ModelConfig& config, const MeshSizes& mesh,
                         const ParallelPlan& plan, const Workload& work, const Machine& machine) {
  plan::TracedModel traced(config);
  return estimate(traced, mesh, plan, work, machine);
}

inline SearchResult search_plans(const nn::ModelConfig& config, const SearchRequest& request,
                                 const Machine& machine) {
  plan::TracedModel traced(config);
  return search_plans(traced, request, machine);
}

}  // namespace meshloom::planner
