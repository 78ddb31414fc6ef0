// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/generate_request.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "daemon/base/given_number.h"
#include "daemon/base/utf8.h"
#include "daemon/control/jobs/token_channel.h"
#include "daemon/train/sampling_params.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostPromptTokens = 262'144;  // a byte of text is a token

std::size_t samples_of(const v1::GenerateRequest& request) {
  base::check_given_positive("samples", request.has_samples(), request.samples(), "1");
  return request.has_samples() ? static_cast<std::size_t>(request.samples()) : 1;
}

/// Tokens of a prompt, or more if both ways of giving one are used.
template <typename Given>
std::size_t prompt_size(const Given& given) {
  return std::max<std::size_t>(given.prompt().size(),
                               static_cast<std::size_t>(given.token_ids_size()));
}

template <typename Given>
void check_one_way(const Given& given, const std::string& where) {
  if (given.prompt().empty() == (given.token_ids_size() == 0))
    base::refuse_field(where + "prompt", "give either a prompt or token_ids");
}

/// That sequence `index` of a request is drawn with: a random stream for each (seed, index).
std::uint64_t seed_of_sequence(std::uint64_t seed, std::size_t index) {
  if (index == 0) return seed;
  const std::array<std::uint64_t, 2> key{seed, index};
  return XXH3_64bits(key.data(), sizeof key);
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

v1::SamplingParams checked_params(const v1::GenerateRequest& request) {
  v1::SamplingParams params = request.params();
  train::resolve_sampling_params(params, "params");
  check_amounts(request, params);
  if (request.prompts_size() == 0)
    check_one_way(request, "");
  else if (!request.prompt().empty() || request.token_ids_size() > 0)
    base::refuse_field("prompts", "give either prompts or one prompt or token_ids");
  for (int i = 0; i < request.prompts_size(); ++i) check_one_way(request.prompts(i), place_of(i));
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
                                                const text::StopCheck& stop) {
  std::vector<std::vector<std::int64_t>> prompts;
  if (request.prompts_size() == 0)
    prompts.push_back(
        train::prompt_tokens(request.prompt(), request.token_ids(), limits, "", stop));
  for (int i = 0; i < request.prompts_size(); ++i)
    prompts.push_back(train::prompt_tokens(
        request.prompts(i).prompt(), request.prompts(i).token_ids(), limits, place_of(i), stop));
  const std::size_t samples = samples_of(request);
  std::vector<train::SampleStart> starts;
  for (std::size_t i = 0; i < prompts.size() * samples; ++i) {
    starts.push_back({prompts[i / samples], params});
    starts.back().params.set_seed(seed_of_sequence(params.seed(), i));
  }
  return starts;
}

}  // namespace meshloom::control
