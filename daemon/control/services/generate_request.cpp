// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/generate_request.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <type_traits>

#include "daemon/base/given_number.h"
#include "daemon/base/utf8.h"
#include "daemon/control/jobs/token_channel.h"
#include "daemon/train/config/chat_prompt.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/config/sampling_params.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostPromptTokens = 262'144;  // a byte of text is a token

std::size_t samples_of(const v1::GenerateRequest& request) {
  base::check_given_positive("samples", request.has_samples(), request.samples(), "1");
  return request.has_samples() ? static_cast<std::size_t>(request.samples()) : 1;
}

std::size_t chat_size(const v1::GenerateRequest&) { return 0; }
std::size_t chat_size(const v1::Prompt& given) {
  std::size_t bytes = given.has_chat() ? 1 : 0;
  for (const v1::ChatMessage& message : given.chat().messages())
    bytes += message.role().size() + message.content().size();
  return bytes;
}

/// Tokens of a prompt, or more if both ways of giving one are used.
template <typename Given>
std::size_t prompt_size(const Given& given) {
  return std::max(
      {given.prompt().size(), static_cast<std::size_t>(given.token_ids_size()), chat_size(given)});
}

/// `alone`: one without tokens begins as the model's texts do.
template <typename Given>
void check_one_way(const Given& given, const std::string& where, bool alone) {
  const int ways = !given.prompt().empty() + (given.token_ids_size() > 0) + (chat_size(given) > 0);
  if (ways > 1 || (ways == 0 && !alone))
    base::refuse_field(where + "prompt", "give either a prompt or token_ids{}",
                       ways > 1 && chat_size(given) > 0 ? " or chat" : "");
}

/// That sequence `index` of a request is drawn with: a random stream for each (seed, index).
std::uint64_t seed_of_sequence(std::uint64_t seed, std::size_t index) {
  if (index == 0) return seed;
  const std::array<std::uint64_t, 2> key{seed, index};
  return XXH3_64bits(key.data(), sizeof key);
}

/// Of a prompt that is no conversation the text and the ends are empty.
template <typename Given>
train::ChatPrompt read_prompt(const Given& given, const train::PromptLimits& limits,
                              const std::string& where, const text::StopCheck& stop) {
  if constexpr (std::is_same_v<Given, v1::Prompt>)
    if (given.has_chat()) return train::chat_prompt(given.chat(), limits, where, stop);
  if (prompt_size(given) == 0) return {train::beginning_tokens(limits, where), {}, {}};
  return {train::prompt_tokens(given.prompt(), given.token_ids(), limits, where, stop), {}, {}};
}

std::string place_of(int prompt) { return fmt::format("prompts[{}].", prompt); }

void check_amounts(const v1::GenerateRequest& request, const v1::SamplingParams& params) {
  const std::size_t samples = samples_of(request);
  const std::size_t prompts = static_cast<std::size_t>(std::max(request.prompts_size(), 1));
  const std::size_t sequences = prompts * samples;
  if (prompts > kMostSequences || samples > kMostSequences || sequences > kMostSequences)
    base::refuse_field(samples > 1 ? "samples" : "prompts",
                       "{} prompts with {} samples each are {} sequences, more than {}", prompts,
                       samples, sequences, kMostSequences);
  const std::size_t tokens = static_cast<std::size_t>(params.max_tokens()) * sequences;
  if (tokens > kMostTokens)
    base::refuse_field("params.max_tokens", "{} for each of {} sequences are {}, more than {}",
                       params.max_tokens(), sequences, tokens, kMostTokens);
  std::size_t prompt_tokens = prompt_size(request);
  for (const v1::Prompt& prompt : request.prompts()) prompt_tokens += prompt_size(prompt);
  prompt_tokens *= samples;
  const char* given = request.prompt().empty() ? "token_ids" : "prompt";
  if (prompt_tokens > kMostPromptTokens)
    base::refuse_field(request.prompts_size() > 0 ? "prompts" : given,
                       "{} tokens of {} sequences are more than the {} that a request may give",
                       prompt_tokens, sequences, kMostPromptTokens);
}

}  // namespace

bool begins_by_itself(const v1::GenerateRequest& request) {
  const auto is_empty = [](const v1::Prompt& prompt) { return prompt_size(prompt) == 0; };
  if (request.prompts_size() == 0) return prompt_size(request) == 0;
  return std::any_of(request.prompts().begin(), request.prompts().end(), is_empty);
}

v1::SamplingParams checked_params(const v1::GenerateRequest& request) {
  v1::SamplingParams params = request.params();
  train::resolve_sampling_params(params, "params");
  check_amounts(request, params);
  if (request.prompts_size() == 0)
    check_one_way(request, "", true);
  else if (!request.prompt().empty() || request.token_ids_size() > 0)
    base::refuse_field("prompts", "give either prompts or one prompt or token_ids");
  for (int i = 0; i < request.prompts_size(); ++i)
    check_one_way(request.prompts(i), place_of(i), request.prompts_size() == 1);
  // They are looked for in text, whatever the model.
  const auto& stops = request.stop().strings();
  for (int i = 0; i < stops.size(); ++i)
    if (!base::is_utf8(stops[i]))
      base::refuse_field(fmt::format("stop.strings[{}]", i), "\"{}\" is not UTF-8",
                         base::printable_text(stops[i]));
  return params;
}

std::vector<train::SampleStart> sequence_starts(const v1::GenerateRequest& request,
                                                const v1::SamplingParams& params,
                                                const train::PromptLimits& limits,
                                                const text::StopCheck& stop,
                                                std::vector<std::string>* rendered) {
  std::vector<train::ChatPrompt> prompts;
  if (request.prompts_size() == 0) prompts.push_back(read_prompt(request, limits, "", stop));
  for (int i = 0; i < request.prompts_size(); ++i)
    prompts.push_back(read_prompt(request.prompts(i), limits, place_of(i), stop));
  const std::size_t samples = samples_of(request);
  std::vector<train::SampleStart> starts;
  for (std::size_t i = 0; i < prompts.size() * samples; ++i) {
    const train::ChatPrompt& prompt = prompts[i / samples];
    starts.push_back({prompt.tokens, params});
    starts.back().params.set_seed(seed_of_sequence(params.seed(), i));
    starts.back().turn_ends = prompt.turn_ends;
    if (rendered) rendered->push_back(prompt.text);
  }
  return starts;
}

}  // namespace meshloom::control
