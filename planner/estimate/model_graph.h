// SPDX-License-Identifier: Apache-2.0
// ModelGraph: the ops of a model on a micro batch, in their order, as a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/base/shape.h"
#include "planner/sharding/op_call.h"

namespace meshloom::planner {

/// GraphTensor is a tensor of the whole model, as on one rank.
struct GraphTensor {
  Shape shape = {};
  std::int64_t element_bytes = 0;  ///< 0: of the plan's dtype
  bool recorded = false;           ///< has a gradient
  /// They name a parameter: its module (ModelModules) and its place among that module's; else -1.
  int module = -1, parameter = -1;
  /// The step that makes it; -1 if it is there before.
  int made = -1;
  /// Forward holds it until before this step; one behind the last if to the end.
  int released = 0;

  bool is_parameter() const { return parameter >= 0; }
};

enum class GraphStepKind : std::uint8_t {
  kOp,
  /// A module's forward begins or ends: every output stands for the input at its place, which
  /// styles may have brought into another layout.
  kEnter,
  kLeave,
};

/// Tensors are named by their index in ModelGraph::tensors.
struct GraphStep {
  GraphStepKind kind = GraphStepKind::kOp;
  /// The module that begins or ends, or the innermost that an op runs in (ModelModules); -1: the
  /// model itself.
  int module = -1;
  int layer = -1;  ///< the block that the module is part of; -1: outside blocks
  OpId op = OpId::kUnary;
  OpAttributes attributes = {};
  std::vector<int> inputs = {};  ///< -1: left out
  std::vector<int> outputs = {};
  // Costs depend on these, but layouts do not.
  bool input_activation = false;  ///< kLinear: x is activated first, and so again in backward
  bool keeps_output = false;      ///< kUnary: backward reads what it gives, not what it takes
  bool causal = false;            ///< kAttention
  std::int64_t window = 0;        ///< kAttention: positions that a query sees at most; 0: all
};

/// GraphRun covers steps [begin, end) of one block, or of what is outside blocks, so many times in
/// a row.
struct GraphRun {
  std::size_t begin = 0, end = 0;
  std::int64_t times = 1;
  bool is_block = false;
  /// Before each further time: (a, b), what the time before left in a stands where b stood.
  std::vector<std::pair<int, int>> carried = {};
};

struct ModelGraph {
  std::int64_t rows = 0, tokens = 0;  ///< of the micro batch: sequences, and tokens of each
  std::vector<GraphTensor> tensors;
  std::vector<GraphStep> steps;
  std::vector<GraphRun> runs;  ///< in order, all steps together
};

/// Gathers the steps of each block and of what is between them into runs, and keeps of equal blocks
/// that follow each other the first alone. `graph` has all steps and no runs.
ModelGraph fold_blocks(ModelGraph graph);

}  // namespace meshloom::planner
