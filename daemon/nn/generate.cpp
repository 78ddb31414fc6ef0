// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/generate.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

void add_eos_tokens(const ModelConfig& config, std::vector<std::int64_t>& stops) {
  if (config.eos_token_id) stops.push_back(*config.eos_token_id);
  stops.insert(stops.end(), config.more_eos_token_ids.begin(), config.more_eos_token_ids.end());
}

std::vector<float> next_logits(Model& model, std::span<const std::int64_t> ids, KvCache& cache) {
  const Tensor input =
      from_values(model.context(), {1, static_cast<std::int64_t>(ids.size())}, ids);
  const std::vector<double> values = model.decode(input, cache).to_vector();
  return {values.begin(), values.end()};
}

}  // namespace

void check_generate_arguments(const ModelConfig& config, std::span<const std::int64_t> prompt,
                              const GenerateOptions& options) {
  check_sampling_options(options.sampling);
  check(options.max_tokens >= 0, "max_tokens: {} is negative", options.max_tokens);
  check(!prompt.empty(), "prompt: at least one token is needed");
  const auto length = static_cast<std::int64_t>(prompt.size());
  check(length <= config.max_position_embeddings,
        "prompt: {} tokens are more than the model's context of {}", length,
        config.max_position_embeddings);
  for (std::int64_t id : prompt)
    check(id >= 0 && id < config.vocab_size, "prompt: token {} is outside the vocabulary of {}", id,
          config.vocab_size);
}

Generation::Generation(Model& model, std::vector<std::int64_t> prompt,
                       const GenerateOptions& options)
    : model_(model), options_(options), tokens_(std::move(prompt)), done_(options.max_tokens == 0) {
  const ModelConfig& config = model.config();
  check_generate_arguments(config, tokens_, options_);
  if (options_.stop_at_eos) add_eos_tokens(config, options_.stop_tokens);
  const std::int64_t wanted = static_cast<std::int64_t>(tokens_.size()) + options_.max_tokens;
  cache_ = model.make_cache(1, std::min<std::int64_t>(config.max_position_embeddings, wanted));
}

std::optional<std::int64_t> Generation::advance() {
  check_internal(!done_, "generation: every token was drawn");
  if (cache_->length() == cache_->max_length()) {
    cache_->clear();
    fed_ = tokens_.size() - static_cast<std::size_t>(std::max<std::int64_t>(
                                model_.config().max_position_embeddings / 2, 1));
  }
  const std::size_t count = std::min(tokens_.size() - fed_, kPassTokens);
  const std::vector<float> logits =
      next_logits(model_, std::span(tokens_).subspan(fed_, count), *cache_);
  fed_ += count;
  if (fed_ < tokens_.size()) return std::nullopt;
  const std::int64_t token = sample_token(
      logits, options_.sampling, options_.drawn_before + static_cast<std::uint64_t>(drawn_));
  tokens_.push_back(token);
  const auto& stops = options_.stop_tokens;
  done_ = ++drawn_ == options_.max_tokens ||
          std::find(stops.begin(), stops.end(), token) != stops.end();
  return token;
}

}  // namespace meshloom::nn
