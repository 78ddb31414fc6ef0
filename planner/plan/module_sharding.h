// SPDX-License-Identifier: Apache-2.0
// From what a module says about its features to the layouts of its parameters on a mesh.
#pragma once

#include <string>
#include <vector>

#include "planner/plan/module_shape.h"
#include "planner/plan/style_dims.h"

namespace meshloom::planner {

/// ParameterSpec is the layout that a parameter is to get.
struct ParameterSpec {
  std::string name;  ///< as the module registered it
  SpecPtr spec;
  /// If a rank holds it whole, it computes a share of its gradient only (its part of the
  /// sequence; a bias that counts once): the gradient is held as summands.
  bool summands = false;
  /// The dim that is sharded has `groups` stretches, and `unit` features stay together in each.
  int groups = 1;
  std::int64_t unit = 1;
};

/// ShardedFeatures is a dim of features as the ranks of a mesh hold it.
struct ShardedFeatures {
  std::int64_t count = 0;
  bool whole = false;  ///< too few units: every rank has all
  int groups = 1;
  std::int64_t unit = 1;  ///< so many features stay together
  /// The orders are by mesh dim, null for the ceil rule.
  std::vector<DimOrderPtr> orders = {};
};

/// Shards `count` features over the acting dims of the mesh: the outermost takes whole units, those
/// inside shard what it left by the ceil rule.
ShardedFeatures shard_features(std::int64_t count, const FeatureUnits& units,
                               const StyleDims& dims);

struct ModuleSharding {
  std::vector<ParameterSpec> parameters;
  ShardedFeatures features;  ///< of the first parameter that is sharded
};

/// `where` names style and module in errors.
ModuleSharding shard_module(const ModuleShape& module, const FeatureSharding& sharding,
                            const StyleDims& dims, const std::string& where);

}  // namespace meshloom::planner
