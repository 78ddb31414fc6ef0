// SPDX-License-Identifier: Apache-2.0
// ModelTrace: a model made without memory, and what its forward does with a batch.
#pragma once

#include <memory>

#include "daemon/nn/models/model.h"
#include "daemon/nn/trace/recording_engine.h"
#include "planner/estimate/model_modules.h"

namespace meshloom::nn {

/// Holds the model. Nothing is computed and no memory is read or written. Used by one thread at a
/// time.
class ModelTrace {
 public:
  /// Throws as make_model, and as planner::sort_modules.
  explicit ModelTrace(const ModelConfig& config);
  ~ModelTrace();

  const planner::ModelModules& modules() const { return modules_; }
  /// Records the loss of a training batch of input ids and labels [rows, tokens], all steps in
  /// order and no runs. Throws InvalidArgument for more tokens than the model takes.
  planner::ModelGraph loss(std::int64_t rows, std::int64_t tokens);

 private:
  void watch(Module& module, int number, int layer);

  ExecutionContext context_;
  DeferParametersGuard defer_;
  RecordingEngine engine_;
  std::unique_ptr<Model> model_;
  planner::ModelModules modules_;
};

}  // namespace meshloom::nn
