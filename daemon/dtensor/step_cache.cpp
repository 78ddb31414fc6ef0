// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/step_cache.h"

namespace meshloom::dtensor {
namespace {

bool belongs(const Recipes& recipes, const planner::RedistributePlan& plan) {
  if (recipes.size() != plan.steps.size()) return false;
  for (std::size_t i = 0; i < recipes.size(); ++i)
    if (recipes[i].from != plan.steps[i].from || recipes[i].to != plan.steps[i].to ||
        recipes[i].kind != plan.steps[i].kind)
      return false;
  return true;
}

}  // namespace

const std::shared_ptr<Recipes>& StepCache::recipes(const planner::RedistributePlan& plan,
                                                   DeviceMesh& mesh) {
  const auto found = plans_.find(&plan);
  if (found != plans_.end() && belongs(*found->second, plan)) return found->second;
  if (plans_.size() >= kMostPlans) plans_.clear();
  auto made = std::make_shared<Recipes>();
  for (const planner::RedistributeStep& step : plan.steps) made->push_back(make_recipe(step, mesh));
  return plans_.insert_or_assign(&plan, std::move(made)).first->second;
}

}  // namespace meshloom::dtensor
