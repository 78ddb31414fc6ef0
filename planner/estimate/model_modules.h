// SPDX-License-Identifier: Apache-2.0
// ModelModules: the modules of a model by what they are part of: a block, or none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "planner/plan/module_shape.h"

namespace meshloom::planner {

/// ModelModules lists all modules in the order in which the model registers their parameters:
/// `before`, then `block` once per layer, then `after`. The model itself is none of them. A weight
/// that is tied is a parameter of the embedding alone. A module's number is its place in the three
/// lists together.
struct ModelModules {
  std::string block_prefix;  ///< "transformer.h"
  std::int64_t layers = 0;
  /// Modules of `block` have the names that stand behind "PREFIX.LAYER."; "" is the block itself.
  std::vector<ModuleShape> before, block, after;

  bool is_block(int module) const;  ///< whether this number is one of `block`
  const ModuleShape& at(int module) const;
};

/// Sorts the modules of a model, in their order and without the model itself. Blocks are the
/// modules "PREFIX.0" and on. Throws Unimplemented where blocks differ in their modules, and
/// InvalidArgument where there is none.
ModelModules sort_modules(std::vector<ModuleShape> modules);

/// Returns the full name of a module of layer `layer`, or of one outside the layers if that is
/// negative.
std::string full_name(const ModelModules& modules, const std::string& module, std::int64_t layer);
/// Returns the names of all modules of all layers, in order, the model's own ("") first.
std::vector<std::string> module_names(const ModelModules& modules);
/// Returns the names of all parameters of all layers, in order.
std::vector<std::string> parameter_names(const ModelModules& modules);
std::int64_t parameter_count(const ModelModules& modules);

}  // namespace meshloom::planner
