// SPDX-License-Identifier: Apache-2.0
// ModelGraphs: what an estimate asks of a model. Whoever knows the model answers it (daemon/plan).
#pragma once

#include <cstdint>

#include "planner/estimate/model_graph.h"
#include "planner/estimate/model_modules.h"
#include "planner/estimate/model_shape.h"
#include "planner/plan/style.h"

namespace meshloom::planner {

/// They are used by one thread at a time.
class ModelGraphs {
 public:
  virtual ~ModelGraphs() = default;
  virtual const ModelShape& shape() const = 0;
  virtual const ModelModules& modules() const = 0;
  /// The styles of tp unless a plan has its own.
  virtual StylePlan default_styles(bool sequence_parallel) const = 0;
  /// Returns the graph of a micro batch of `rows` sequences of `tokens` tokens each, with equal
  /// blocks folded; it lives as long as this. Throws InvalidArgument for more tokens than the model
  /// takes.
  virtual const ModelGraph& of(std::int64_t rows, std::int64_t tokens) = 0;
};

}  // namespace meshloom::planner
