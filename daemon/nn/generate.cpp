// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/generate.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

std::vector<std::int64_t> all_stop_tokens(const ModelConfig& config,
                                          const GenerateOptions& options) {
  std::vector<std::int64_t> stops = options.stop_tokens;
  if (!options.stop_at_eos) return stops;
  if (config.eos_token_id) stops.push_back(*config.eos_token_id);
  stops.insert(stops.end(), config.more_eos_token_ids.begin(), config.more_eos_token_ids.end());
  return stops;
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

std::int64_t generate(Model& model, std::span<const std::int64_t> prompt,
                      const GenerateOptions& options,
                      const std::function<bool(std::int64_t)>& on_token) {
  const ModelConfig& config = model.config();
  const std::int64_t context_length = config.max_position_embeddings;
  check_generate_arguments(config, prompt, options);
  if (options.max_tokens == 0) return 0;
  const std::vector<std::int64_t> stops = all_stop_tokens(config, options);
  const std::int64_t wanted = static_cast<std::int64_t>(prompt.size()) + options.max_tokens;
  const auto cache = model.make_cache(1, std::min(context_length, wanted));

  std::vector<std::int64_t> tokens(prompt.begin(), prompt.end());
  std::size_t fed = 0;
  for (std::int64_t drawn = 0; drawn < options.max_tokens;) {
    if (cache->length() == cache->max_length()) {
      cache->clear();
      fed = tokens.size() - static_cast<std::size_t>(std::max<std::int64_t>(context_length / 2, 1));
    }
    const std::span<const std::int64_t> fresh = std::span(tokens).subspan(fed);
    const std::vector<float> logits = next_logits(model, fresh, *cache);
    fed = tokens.size();
    tokens.push_back(sample_token(logits, options.sampling, static_cast<std::uint64_t>(drawn)));
    ++drawn;
    const std::int64_t token = tokens.back();
    if (!on_token(token) || std::find(stops.begin(), stops.end(), token) != stops.end())
      return drawn;
  }
  return options.max_tokens;
}

}  // namespace meshloom::nn
