// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/sampler.h"

#include "daemon/train/config/chat_prompt.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/files/checkpoint_check.h"
#include "daemon/train/files/hf_folder.h"
#include "daemon/train/run/checkpoint_reader.h"
#include "daemon/train/run/generation.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

class ModelSample final : public Sample {
 public:
  ModelSample(nn::Model& model, const std::vector<SampleStart>& sequences)
      : generation_(model, make_generate_sequences(sequences)) {}

  std::vector<SampledToken> advance(std::chrono::milliseconds budget) override {
    const auto end = std::chrono::steady_clock::now() + budget;
    std::vector<SampledToken> tokens;
    while (!generation_.done()) {
      draw_pass(generation_, tokens);
      if (std::chrono::steady_clock::now() >= end) break;
    }
    return tokens;
  }
  void end_sequences(const std::vector<std::size_t>& sequences) override {
    for (const std::size_t sequence : sequences) generation_.end(sequence);
  }
  bool done() const override { return generation_.done(); }

 private:
  nn::Generation generation_;
};

class ModelSampler final : public Sampler {
 public:
  /// Of `folder`, whose tokenizer it has unless its tokens are bytes whatever that is.
  ModelSampler(std::unique_ptr<ExecutionContext> context, std::unique_ptr<nn::Model> model,
               std::int64_t step, const fs::path& folder, bool of_bytes,
               std::vector<std::string> notes)
      : context_(std::move(context)),
        model_(std::move(model)),
        step_(step),
        limits_(train::prompt_limits(model_->config())) {
    text::TokenizerCache opened;
    if (of_bytes)
      add_chat(limits_, folder, {});
    else
      add_tokenizer(limits_, folder, opened);
    limits_.generation = read_generation_config(folder, limits_.vocab_size);
    limits_.notes = std::move(notes);
  }

  std::int64_t step() const override { return step_; }
  PromptLimits prompt_limits() const override { return limits_; }
  std::unique_ptr<Sample> begin_sample(const std::vector<SampleStart>& sequences) override {
    return std::make_unique<ModelSample>(*model_, sequences);
  }

 private:
  std::unique_ptr<ExecutionContext> context_;
  std::unique_ptr<nn::Model> model_;
  std::int64_t step_;
  PromptLimits limits_;  ///< with the folder's tokenizer
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

}  // namespace

std::unique_ptr<Sampler> Sampler::load(const ExecutionContext::Options& options,
                                       const fs::path& folder) {
  auto context = std::make_unique<ExecutionContext>(options);
  if (!holds_checkpoint(folder)) {
    const HfFolder weights = HfFolder::open(folder);
    auto model = nn::make_model(*context, weights.model_config(), DType::kFloat32);
    load_hf_weights(weights, *model);
    std::vector<std::string> notes = weights.tie_notes();
    for (std::string& note : nn::config_notes(model->config())) notes.push_back(std::move(note));
    return std::make_unique<ModelSampler>(std::move(context), std::move(model), 0, folder,
                                          /*of_bytes=*/false, std::move(notes));
  }
  const Manifest manifest = read_manifest(folder);
  verify_files(folder, manifest);
  auto model =
      nn::make_model(*context, nn::parse_hf_config(manifest.model_config), DType::kFloat32);
  const CheckpointReader checkpoint(folder, manifest);
  for (const auto& [name, parameter] : model->named_parameters())
    checkpoint.read("model." + name, parameter->value.detach());
  // A model of 256 tokens that was trained on bytes has them, whatever tokenizer its folder had.
  v1::RunConfig config;
  const bool of_bytes = model->config().vocab_size == kByteVocabulary &&
                        run_config_from_json(manifest.run_config, &config) &&
                        config.data().tokenizer() == "bytes";
  return std::make_unique<ModelSampler>(std::move(context), std::move(model), manifest.step, folder,
                                        of_bytes, std::vector<std::string>());
}

std::int64_t Sampler::weight_bytes(const fs::path& folder) {
  const nn::ModelConfig config = holds_checkpoint(folder)
                                     ? nn::parse_hf_config(read_manifest(folder).model_config)
                                     : HfFolder::open(folder).model_config();
  return nn::parameter_count(config) * static_cast<std::int64_t>(dtype_size(DType::kFloat32));
}

}  // namespace meshloom::train
