// SPDX-License-Identifier: Apache-2.0
// OpMemory: what backward of each op keeps, and what it makes again (daemon/tensor/ops).
#pragma once

#include <cstdint>
#include <vector>

#include "planner/estimate/model_graph.h"

namespace meshloom::planner {

/// The gradient of an input lies in one of these places.
enum class GradientMemory : std::uint8_t {
  kNone,     ///< it has none
  kOwn,      ///< in memory that backward takes
  kShared,   ///< in that of the output's gradient, or what forward made
  kInPlace,  ///< in that of the second output's gradient, where nobody else holds it
};

/// OpMemory describes one op of a graph. Tensors are numbered as the op's inputs and outputs.
struct OpMemory {
  bool is_view = false;      ///< outputs lie in the memory of input 0
  bool makes_again = false;  ///< who would keep output 0 keeps what makes it again
  bool keeps_input = false;  ///< input 0; not kept if it can be made again
  std::vector<int> keeps_inputs = {}, keeps_outputs = {};
  std::int64_t row_statistics = 0;  ///< floats that are kept of each row of output 0
  bool keeps_gradient = false;      ///< forward makes the gradient of input 0, and keeps it
  // In passing, times the memory of input 0.
  int forward_copies = 0, backward_copies = 0;
  std::vector<GradientMemory> gradients = {};  ///< of the inputs
};

OpMemory op_memory(const GraphStep& step, const ModelGraph& graph);

}  // namespace meshloom::planner
