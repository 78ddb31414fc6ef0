// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/local_tokenization.h"

#include <optional>

#include "daemon/train/config/chat_prompt.h"
#include "daemon/train/config/generation_config.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/run/reference_text.h"

namespace meshloom::control {

namespace fs = std::filesystem;

train::TokenizedText LocalTokenization::tokenize(const v1::RunConfig& resolved,
                                                 const fs::path& model, const fs::path& tokenizer,
                                                 const train::TextProgress& progress) {
  train::TokenCache cache(state_.tokens(),
                          static_cast<std::uint64_t>(resources_.token_cache_bytes));
  const nn::ModelConfig config =
      train::load_declared_config(resolved.model(), resources_.data_dir, model).model;
  return train::tokenize_text(resolved, config.vocab_size, tokenizer, resources_.data_dir, cache,
                              resources_.threads_of_host(), progress);
}

train::TokenizedText LocalTokenization::tokenize_reference(const v1::RunConfig& resolved,
                                                           v1::DataReference* reference,
                                                           const train::TextProgress& progress) {
  v1::RunConfig config;
  *config.mutable_model() = resolved.model();
  *config.mutable_data() = reference->data();
  config.mutable_data()->clear_identity();  // the ranks compare it
  try {
    const auto hold = folders_.hold_models(config);
    const fs::path model = folders_.model_folder(config);
    const fs::path tokenizer = folders_.tokenizer_folder(config, model);
    const auto resolve = [this, data = config.data(), source = config.model(), model, tokenizer] {
      std::optional<v1::DataConfig> filled = data;
      const nn::ModelConfig shape =
          train::load_declared_config(source, resources_.data_dir, model).model;
      if (!train::resolve_reference_text(*filled, shape, tokenizer, resources_.data_dir))
        filled.reset();
      return filled;
    };
    const auto filled = calls_.run<std::optional<v1::DataConfig>>(resolve);
    if (!filled) return {};
    *config.mutable_data() = *filled;
    train::TokenizedText text = tokenize(config, model, tokenizer, progress);
    const v1::DataIdentity identity = reference->data().identity();
    const bool has_identity = reference->data().has_identity();
    *reference->mutable_data() = *filled;
    if (has_identity) *reference->mutable_data()->mutable_identity() = identity;
    return text;
  } catch (const Error& error) {
    throw train::in_reference_terms(error);
  }
}

train::PromptLimits LocalTokenization::prompt_limits(const v1::RunConfig& resolved) {
  return calls_.run<train::PromptLimits>([this, resolved](const BoundedCalls::Alive& alive) {
    const fs::path model = folders_.find_model(resolved.model());
    train::PromptLimits limits = train::prompt_limits(
        train::load_declared_config(resolved.model(), resources_.data_dir, model).model, resolved);
    const fs::path tokenizer = folders_.find_tokenizer_folder(resolved, model);
    train::add_tokenizer(limits, tokenizer, tokenizers_, alive);
    train::add_chat_of_job(limits, resolved.data(), tokenizer, resources_.data_dir);
    limits.generation = train::find_generation_config(resolved.model(), resources_.data_dir, model,
                                                      limits.vocab_size);
    return limits;
  });
}

}  // namespace meshloom::control
