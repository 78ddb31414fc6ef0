// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run.h"

#include "daemon/train/checkpoint/checkpoint_reader.h"
#include "daemon/train/checkpoint/hf_folder.h"
#include "daemon/train/generation.h"
#include "daemon/train/in_step.h"
#include "daemon/train/train_run.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

class ModelSampler final : public Sampler {
 public:
  explicit ModelSampler(std::unique_ptr<nn::Model> model) : model_(std::move(model)) {}

  std::int64_t vocab_size() const override { return model_->config().vocab_size; }
  void sample(const std::vector<std::int64_t>& prompt, const v1::SamplingParams& params,
              const std::function<bool(std::int64_t)>& on_token) override {
    nn::generate(*model_, prompt, make_generate_options(params), on_token);
  }

 private:
  std::unique_ptr<nn::Model> model_;
};

/// True for a checkpoint, false for a Hugging Face folder; NotFound for anything else.
bool holds_checkpoint(const fs::path& folder) {
  if (is_checkpoint(folder)) return true;
  if (fs::exists(folder / "config.json")) return false;
  throw NotFound(
      fmt::format(
          "{} is neither a checkpoint (manifest.json) nor a Hugging Face folder (config.json)",
          folder.string()),
      "NOT_FOUND", {{"path", folder.string()}});
}

std::unique_ptr<nn::Model> load_checkpoint_model(ExecutionContext& context,
                                                 const fs::path& folder) {
  const Manifest manifest = read_manifest(folder);
  verify_files(folder, manifest);
  auto model = nn::make_model(context, nn::parse_hf_config(manifest.model_config), DType::kFloat32);
  const CheckpointReader checkpoint(folder, manifest);
  for (const auto& [name, parameter] : model->named_parameters())
    checkpoint.read("model." + name, parameter->value.detach());
  return model;
}

std::unique_ptr<nn::Model> load_hf_model(ExecutionContext& context, const fs::path& folder) {
  const HfFolder weights = HfFolder::open(folder);
  auto model = nn::make_model(context, weights.config(), DType::kFloat32);
  load_hf_weights(weights, *model);
  return model;
}

}  // namespace

std::unique_ptr<Run> Run::create(const RankResources& resources, const v1::RunConfig& resolved,
                                 const RunOptions& options) {
  std::unique_ptr<Run> run;
  run_in_step(*resources.world,
              [&] { run = std::make_unique<TrainRun>(resources, resolved, options); });
  return make_run_in_step(*resources.world, std::move(run));
}

std::unique_ptr<Sampler> Sampler::load(ExecutionContext& context, const fs::path& folder) {
  return std::make_unique<ModelSampler>(holds_checkpoint(folder)
                                            ? load_checkpoint_model(context, folder)
                                            : load_hf_model(context, folder));
}

std::int64_t Sampler::weight_bytes(const fs::path& folder) {
  const nn::ModelConfig config = holds_checkpoint(folder)
                                     ? nn::parse_hf_config(read_manifest(folder).model_config)
                                     : HfFolder::open(folder).config();
  return nn::parameter_count(config) * static_cast<std::int64_t>(dtype_size(DType::kFloat32));
}

}  // namespace meshloom::train
