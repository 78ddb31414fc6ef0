// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/model_state.h"

#include "daemon/train/checkpoint/hf_folder.h"
#include "kernels/base/error.h"

namespace meshloom::train {

ModelState::ModelState(ExecutionContext& context, const nn::ModelConfig& config, DType dtype,
                       const OptimizerSettings& settings)
    : model_(nn::make_model(context, config, dtype)) {
  std::vector<Tensor> masters;
  if (dtype != DType::kFloat32) {
    master_model_ = nn::make_model(context, config, DType::kFloat32);
    for (const auto& [name, parameter] : master_model_->named_parameters())
      masters.push_back(parameter->value.detach());
  }
  optimizer_ = std::make_unique<Optimizer>(context, model_->named_parameters(), settings,
                                           std::move(masters));
}

void ModelState::initialize(std::uint64_t seed) {
  nn::initialize_parameters(full_precision(), seed);
  optimizer_->refresh_working_copies();
}

void ModelState::load_hf(const std::filesystem::path& folder) {
  load_hf_weights(HfFolder::open(folder), full_precision());
  optimizer_->refresh_working_copies();
}

void ModelState::load(const CheckpointReader& checkpoint) {
  for (const StateTensor& item : optimizer_->state()) {
    if (!checkpoint.contains(item.name))
      throw FailedPrecondition(
          fmt::format("the checkpoint has no tensor {}: it is of another model or optimizer",
                      item.name),
          "CHECKPOINT_MISMATCH", {{"tensor", item.name}});
    checkpoint.read(item.name, item.tensor);
  }
  optimizer_->refresh_working_copies();
}

void ModelState::export_hf(const std::filesystem::path& folder, DType dtype) {
  HfSaveOptions options;
  options.dtype = dtype;
  options.byte_tokenizer = model_->config().vocab_size == 256;
  save_hf_folder(folder, full_precision(), options);
}

}  // namespace meshloom::train
