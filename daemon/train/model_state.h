// SPDX-License-Identifier: Apache-2.0
// ModelState: a model with its optimizer and where their values come from.
#pragma once

#include <filesystem>
#include <memory>

#include "daemon/nn/models/model.h"
#include "daemon/train/checkpoint/checkpoint_reader.h"
#include "daemon/train/optim/optimizer.h"

namespace meshloom::train {

/// The model in its compute dtype and the optimizer with its float32 masters. Values are undefined
/// until one of the three ways to fill them was called.
class ModelState {
 public:
  ModelState(ExecutionContext&, const nn::ModelConfig&, DType dtype, const OptimizerSettings&);

  nn::Model& model() { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }

  /// By position from `seed`, in float32: the same whatever the compute dtype.
  void initialize(std::uint64_t seed);
  /// Weights of a Hugging Face folder, kept in float32; moments are zero.
  void load_hf(const std::filesystem::path& folder);
  /// Weights and moments. Throws FailedPrecondition where the checkpoint is of another model or
  /// optimizer.
  void load(const CheckpointReader& checkpoint);
  /// Writes a Hugging Face folder from the float32 weights.
  void export_hf(const std::filesystem::path& folder, DType dtype);

 private:
  std::unique_ptr<nn::Model> model_;
  /// A float32 twin of a bfloat16 model: its parameters are the masters. Null where the model is
  /// float32.
  std::unique_ptr<nn::Model> master_model_;
  std::unique_ptr<Optimizer> optimizer_;

  nn::Model& full_precision() { return master_model_ ? *master_model_ : *model_; }
};

}  // namespace meshloom::train
