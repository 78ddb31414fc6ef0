// SPDX-License-Identifier: Apache-2.0
// TensorGroups: which parts of a model tensor parallelism shards, as the styles of a plan say.
#pragma once

#include <string>
#include <vector>

#include "planner/estimate/model_shape.h"

namespace meshloom::planner {

/// A part is sharded as in the model's default plan, or whole on every rank.
struct TensorGroups {
  bool embedding = true;
  bool attention = true;
  bool mlp = true;
  bool output = true;

  bool all() const { return embedding && attention && mlp && output; }
  bool operator==(const TensorGroups&) const = default;
};

/// "attention, mlp"; "nothing".
std::string to_string(const TensorGroups& groups);

/// One style of a plan for the modules that a pattern matches (planner/name_pattern.h).
struct ModuleStyle {
  std::string pattern;
  std::string style;  ///< "ColwiseParallel"
  /// Whether inputs and outputs come and go as in the default plan: its layouts, spelled out or
  /// left out, and nothing else.
  bool plain_layouts = true;
};

/// The parts that these styles shard. Throws InvalidArgument for patterns that tie, and
/// Unimplemented naming the module where they do something else than the default plan does with a
/// part, or with a part of some layers only.
TensorGroups groups_of_styles(const ModelShape& model, const std::vector<ModuleStyle>& styles);

/// The layouts that a style for a module has in the default plan without sequence parallelism.
const char* default_input_layout(const std::string& style, const std::string& pattern);
const char* default_output_layout(const std::string& style, const std::string& pattern);

/// The model's parameters with their shardings among `tp` ranks settled; those of parts that are
/// whole are not sharded.
ModelParameters model_parameters(const ModelShape& model, const TensorGroups& groups, int tp);

}  // namespace meshloom::planner
