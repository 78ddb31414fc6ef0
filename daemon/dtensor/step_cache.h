// SPDX-License-Identifier: Apache-2.0
// StepCache: recipes of the plans that a rank has run.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "daemon/dtensor/step_recipe.h"

namespace meshloom::dtensor {

using Recipes = std::vector<StepRecipe>;

/// By the plan's address, checked against what it says, since plans may go and others take their
/// place. Forgets all if it grows beyond kMostPlans (shapes that never come again).
class StepCache {
 public:
  /// Held by runs in flight beyond the cache.
  const std::shared_ptr<Recipes>& recipes(const planner::RedistributePlan& plan, DeviceMesh& mesh);

 private:
  static constexpr std::size_t kMostPlans = 4096;

  std::unordered_map<const planner::RedistributePlan*, std::shared_ptr<Recipes>> plans_;
};

}  // namespace meshloom::dtensor
