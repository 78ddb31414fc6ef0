// SPDX-License-Identifier: Apache-2.0
// ParallelStyle: how one module is spread over the ranks of a mesh, as a value.
//
// The styles and their options are those of PyTorch's torch.distributed.tensor.parallel.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/placement.h"

namespace meshloom::planner {

enum class StyleKind : std::uint8_t {
  kColwise,             ///< the module's output features are sharded
  kRowwise,             ///< its input features are sharded (of an embedding: its rows)
  kSequence,            ///< activations are sharded along the sequence, parameters replicated
  kPrepareInput,        ///< only gives the inputs other layouts
  kPrepareOutput,       ///< only gives the outputs other layouts
  kPrepareInputOutput,  ///< both
};

/// Returns "ColwiseParallel"
const char* style_name(StyleKind kind);
/// Throws InvalidArgument that holds `name` and lists the styles.
StyleKind style_from_name(const std::string& name);

/// ArgumentLayout is the layout of one argument: one placement per mesh dim. A list of one stands
/// for every mesh dim of a 1-D mesh only. nullopt: the argument is left alone.
using ArgumentLayout = std::optional<Placements>;
using ArgumentLayouts = std::vector<ArgumentLayout>;
/// The tensors that modules of a model take and give have at most so many: [B,S,C].
inline constexpr int kMostActivationDims = 3;

struct ParallelStyle {
  StyleKind kind = StyleKind::kColwise;

  /// A plain tensor that comes in (goes out) is taken to have these layouts, by position. Nothing
  /// given: the style's default. Prepare styles need as many as there are desired ones.
  std::optional<ArgumentLayouts> input_layouts = {};
  std::optional<ArgumentLayouts> desired_input_layouts = {};
  std::map<std::string, ArgumentLayout> input_kwarg_layouts = {};  ///< by argument name
  std::map<std::string, ArgumentLayout> desired_input_kwarg_layouts = {};
  std::optional<ArgumentLayouts> output_layouts = {};
  std::optional<ArgumentLayouts> desired_output_layouts = {};
  /// If true, the module is given (gives) plain local tensors. Defaults: inputs false; outputs
  /// true, of SequenceParallel false.
  std::optional<bool> use_local_input = {};
  std::optional<bool> use_local_output = {};
  std::int64_t sequence_dim = 1;  ///< SequenceParallel

  bool operator==(const ParallelStyle&) const = default;
};

/// PatternStyles has styles by name pattern (planner/name_pattern.h); "" is the module itself.
/// Several styles of a module act one after the other, in this order before and after its forward.
struct PatternStyles {
  std::string pattern;
  std::vector<ParallelStyle> styles;

  bool operator==(const PatternStyles&) const = default;
};
using StylePlan = std::vector<PatternStyles>;

/// Returns "RowwiseParallel(input S(2), output R)"
std::string to_string(const ParallelStyle& style);

}  // namespace meshloom::planner
