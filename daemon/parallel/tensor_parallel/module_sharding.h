// SPDX-License-Identifier: Apache-2.0
// From what a module says about its features to the layouts of its parameters on a mesh.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "daemon/nn/module.h"
#include "daemon/parallel/tensor_parallel/style_mesh.h"

namespace meshloom::parallel {

/// The layout that a parameter is to get; its spec is not interned yet.
struct ParameterLayout {
  nn::Parameter* parameter;
  planner::SpecPtr spec;
  /// Where a rank holds it whole, it computes a share of its gradient only (its part of the
  /// sequence; a bias that counts once): the gradient is held as summands.
  bool summands = false;
};

/// A dim of features as the ranks of a mesh hold it.
struct ShardedFeatures {
  std::int64_t count = 0;
  bool whole = false;  ///< too few units: every rank has all
  /// By mesh dim, null for the ceil rule.
  std::vector<planner::DimOrderPtr> orders = {};
};

/// `count` features over the acting dims of the mesh: the outermost takes whole units, those inside
/// shard what it left by the ceil rule.
ShardedFeatures shard_features(std::int64_t count, const nn::FeatureUnits& units,
                               const StyleDims& dims);

struct ModuleSharding {
  std::vector<ParameterLayout> parameters;
  ShardedFeatures features;  ///< of the first parameter that is sharded
};

/// Throws InvalidArgument beginning with `where` for a parameter that has a layout already.
ModuleSharding shard_module(nn::Module& module, const nn::FeatureSharding& sharding,
                            const StyleDims& dims, const std::string& where);

/// Gives the parameter its layout: from here on its value is a leaf whose local tensor is this
/// rank's part of the values of rank `src_data_rank` along the acting dims (nullopt: of its own,
/// without communication; then also if the value has no memory).
void distribute_parameter(const ParameterLayout& layout, const StyleMesh& mesh,
                          std::optional<int> src_data_rank);

}  // namespace meshloom::parallel
