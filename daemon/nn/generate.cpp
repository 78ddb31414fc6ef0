// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/generate.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/base/parallel_for.h"

namespace meshloom::nn {
namespace {

bool contains(const std::vector<std::int64_t>& ids, std::int64_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

void check_generate_arguments(const ModelConfig& config, std::span<const std::int64_t> prompt,
                              const GenerateOptions& options) {
  check_sampling_options(options.sampling);
  check(options.max_tokens >= 0, "max_tokens: {} is negative", options.max_tokens);
  for (const auto& stop : options.stop_sequences)
    check(!stop.empty(), "stop_sequences: one of them is empty");
  check(!prompt.empty(), "prompt: at least one token is needed");
  const auto length = static_cast<std::int64_t>(prompt.size());
  check(length <= config.context_length(),
        "prompt: {} tokens are more than the model's context of {}", length,
        config.context_length());
  for (std::int64_t id : prompt)
    check(id >= 0 && id < config.vocab_size, "prompt: token {} is outside the vocabulary of {}", id,
          config.vocab_size);
}

Generation::Generation(Model& model, std::vector<GenerateSequence> sequences) : model_(model) {
  const ModelConfig& config = model.config();
  for (const GenerateSequence& given : sequences)
    check_generate_arguments(config, given.prompt, given.options);
  for (GenerateSequence& given : sequences) {
    Sequence sequence{std::move(given.options), std::move(given.prompt), 0, 0, nullptr};
    const GenerateOptions& options = sequence.options;
    const std::int64_t wanted =
        static_cast<std::int64_t>(sequence.tokens.size()) + options.max_tokens;
    if (options.max_tokens > 0) {
      sequence.cache = model.make_cache(std::min(config.context_length(), wanted));
      sequence.cache->begin_sequence(static_cast<std::int64_t>(sequence.tokens.size()));
      ++left_;
    }
    sequences_.push_back(std::move(sequence));
  }
}

std::vector<std::size_t> Generation::next_pass() {
  std::vector<std::size_t> rows;
  const std::size_t count = sequences_.size();
  for (std::size_t i = 0; i < count; ++i) {
    Sequence& sequence = sequences_[i];
    if (!sequence.cache) continue;
    if (sequence.cache->length() >= sequence.cache->max_length()) {
      sequence.cache->clear();
      const std::int64_t half = std::max<std::int64_t>(model_.config().context_length() / 2, 1);
      sequence.fed = sequence.tokens.size() - static_cast<std::size_t>(half);
      sequence.cache->begin_sequence(half);
    }
    if (sequence.unfed() > 1) return {i};
  }
  for (std::size_t i = 0; i < count && rows.size() < kPassRows; ++i)
    if (sequences_[(turn_ + i) % count].cache) rows.push_back((turn_ + i) % count);
  turn_ = (rows.back() + 1) % count;
  std::sort(rows.begin(), rows.end());
  return rows;
}

HostValues Generation::run_pass(const std::vector<std::size_t>& rows) {
  std::vector<std::int64_t> ids;
  std::vector<KvCache*> caches;
  for (const std::size_t row : rows) {
    Sequence& sequence = sequences_[row];
    const auto most = static_cast<std::size_t>(sequence.cache->pass_positions(kPassTokens));
    const std::size_t count = std::min(sequence.unfed(), most);
    const auto next = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(sequence.fed);
    ids.insert(ids.end(), next, next + static_cast<std::ptrdiff_t>(count));
    caches.push_back(sequence.cache.get());
    sequence.fed += count;
  }
  const auto batch = static_cast<std::int64_t>(rows.size());
  const auto positions = static_cast<std::int64_t>(ids.size()) / batch;
  const Tensor input =
      from_values(model_.context(), {batch, positions}, std::span<const std::int64_t>(ids));
  DeferredChecks checks;
  const DeferChecksGuard defer(model_.context(), checks);
  const Tensor logits = model_.decode(input, caches);
  if (sequences_[rows[0]].unfed() == 0) return checks.read(logits, DType::kFloat32);
  checks.ask();
  return {};
}

std::vector<GeneratedToken> Generation::advance() {
  check_internal(!done(), "generation: every token was drawn");
  const std::vector<std::size_t> rows = next_pass();
  const HostValues logits = run_pass(rows);
  if (logits.as<float>().empty()) return {};
  std::vector<GeneratedToken> drawn = sample_rows(rows, logits.as<float>());
  for (GeneratedToken& token : drawn) {
    Sequence& sequence = sequences_[token.sequence];
    sequence.tokens.push_back(token.id);
    ++sequence.drawn;
    token.finish = finish_of(sequence);
    if (token.last()) end(token.sequence);
  }
  return drawn;
}

std::vector<GeneratedToken> Generation::sample_rows(const std::vector<std::size_t>& rows,
                                                    std::span<const float> logits) const {
  const std::size_t vocabulary = logits.size() / rows.size();
  std::vector<GeneratedToken> tokens(rows.size());
  const auto sample = [&](std::int64_t row) {
    const auto i = static_cast<std::size_t>(row);
    const Sequence& sequence = sequences_[rows[i]];
    const GenerateOptions& options = sequence.options;
    const auto own = logits.subspan(i * vocabulary, vocabulary);
    GeneratedToken& token = tokens[i];
    token.sequence = rows[i];
    token.id = sample_token(own, options.sampling,
                            options.drawn_before + static_cast<std::uint64_t>(sequence.drawn));
    if (!options.log_probs) return;
    const double temperature = options.sampling.temperature;
    token.log_prob = static_cast<float>(token_log_prob(own, token.id));
    token.tempered_log_prob = temperature == 1.0
                                  ? token.log_prob
                                  : static_cast<float>(token_log_prob(own, token.id, temperature));
  };
  parallel_dynamic(model_.context().threads(), static_cast<std::int64_t>(rows.size()), sample);
  return tokens;
}

FinishReason Generation::finish_of(const Sequence& sequence) const {
  const GenerateOptions& options = sequence.options;
  const std::int64_t last = sequence.tokens.back();
  const ModelConfig& config = model_.config();
  const bool is_eos = config.eos_token_id == last || contains(config.more_eos_token_ids, last);
  if ((options.stop_at_eos && is_eos) || contains(options.end_tokens, last))
    return FinishReason::kEos;
  if (contains(options.stop_tokens, last)) return FinishReason::kStopToken;
  const auto ends_with = [&](const std::vector<std::int64_t>& stop) {
    const auto length = static_cast<std::int64_t>(stop.size());
    return length <= sequence.drawn &&
           std::equal(stop.begin(), stop.end(), sequence.tokens.end() - length);
  };
  const auto& stops = options.stop_sequences;
  if (std::any_of(stops.begin(), stops.end(), ends_with)) return FinishReason::kStopSequence;
  if (sequence.drawn == options.max_tokens) return FinishReason::kLength;
  const auto length = static_cast<std::int64_t>(sequence.tokens.size());
  if (!options.past_context && length > config.context_length())
    return FinishReason::kContext;  // the model has no position for the last one
  return FinishReason::kNone;
}

void Generation::end(std::size_t sequence) {
  Sequence& ended = sequences_.at(sequence);
  if (!ended.cache) return;
  ended.cache.reset();
  --left_;
}

}  // namespace meshloom::nn
