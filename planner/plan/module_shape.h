// SPDX-License-Identifier: Apache-2.0
// ModuleShape: what styles have to know of a module, of one that exists and of one that is only
// described.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/base/shape.h"
#include "planner/plan/feature_sharding.h"

namespace meshloom::planner {

struct ParameterShape {
  std::string name;
  Shape shape;  ///< of the whole parameter
};

/// A ModuleShape is a plain value.
struct ModuleShape {
  std::string name;                             ///< dotted; the root's is ""
  std::vector<ParameterShape> parameters = {};  ///< its own, named as registered
  /// The module is sharded in these ways by output and by input features; nullopt: it cannot be.
  std::optional<FeatureSharding> columns = {}, rows = {};
  /// Outputs at a position depend on that position's inputs alone.
  bool positionwise = false;
  std::vector<std::string> inputs = {"input"};  ///< the tensors that hooks are given
};

}  // namespace meshloom::planner
