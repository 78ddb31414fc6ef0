// SPDX-License-Identifier: Apache-2.0
// StyledModel: the modules of a model with what the styles of a plan do with them over tp.
#pragma once

#include <string>
#include <vector>

#include "planner/estimate/model_graphs.h"
#include "planner/plan/parallel_plan.h"
#include "planner/plan/style_action.h"

namespace meshloom::planner {

/// ModelParameter is a parameter as the ranks of tp hold it.
struct ModelParameter {
  std::string name;  ///< Hugging Face's; of a block, behind "PREFIX.LAYER."
  Shape shape;       ///< of the whole parameter
  SpecPtr spec;      ///< over a mesh of the one dim tp
  /// Every rank computes a share of its gradient: those are summed over tp once a step.
  bool summands = false;
  int groups = 1;         ///< stretches of the sharded dim, each of units of `unit` features
  std::int64_t unit = 1;  ///< that stay together

  /// Returns the dim that tp shards; -1: none.
  int sharded_dim() const;
  /// Returns the shape of what tp rank `index` holds.
  Shape local_shape(int index) const { return spec->local_shape({index}); }
};

struct StyledModule {
  ModuleShape shape;
  std::vector<StyleAction> actions;  ///< in the order in which they act
  std::vector<ModelParameter> parameters;
};

/// The modules are in the order of ModelModules; `block` stands for every layer.
struct StyledModel {
  MeshPtr mesh;  ///< of the one dim tp
  std::string block_prefix;
  std::vector<StyledModule> before, block, after;
};

/// Without tensor_parallel, or on one rank of tp, no module has a style. Throws InvalidArgument for
/// patterns that tie and for a style that does not fit a module, and Unimplemented for styles of
/// some layers only and of the model itself.
StyledModel styled_model(const ModelGraphs& model, const ParallelPlan& plan, int tp);

/// Returns the parameters of some modules, in order.
std::vector<ModelParameter> parameters_of(const std::vector<StyledModule>& modules);

/// Returns a text for each pattern of the plan's styles that matches no module, naming near misses.
std::vector<std::string> unmatched_styles(const ModelModules& modules, const ParallelPlan& plan);

}  // namespace meshloom::planner
