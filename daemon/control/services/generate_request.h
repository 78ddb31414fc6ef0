// SPDX-License-Identifier: Apache-2.0
// What a GenerateRequest asks for: its sequences, checked.
#pragma once

#include <vector>

#include "daemon/train/config/sample_start.h"
#include "daemon/train/run/run.h"
#include "v1/generate_service.pb.h"

namespace meshloom::control {

/// Sequences that one request may ask for.
inline constexpr int kMostSequences = 64;

/// The request's parameters with defaults, and everything checked that needs no model: parameters,
/// the number of sequences and the tokens of all of them together. Throws InvalidArgument with the
/// field.
v1::SamplingParams checked_params(const v1::GenerateRequest& request);

/// Whether a sequence has no prompt, so that it begins with the model's own beginning.
bool begins_by_itself(const v1::GenerateRequest& request);

/// What each sequence begins with, by index (train::beginning_tokens without a prompt). `params`
/// have no defaults left open. The first has their seed, each other one a seed made from that and
/// its index, so that requests whose seeds are near share no random numbers. Throws what
/// train::prompt_tokens and chat_prompt throw, with the field: "prompt", or "prompts[2].prompt",
/// and what `stop` throws. `rendered`, unless it is null, gets the text of each conversation, and
/// an empty one for other prompts.
std::vector<train::SampleStart> sequence_starts(const v1::GenerateRequest& request,
                                                const v1::SamplingParams& params,
                                                const train::PromptLimits& limits,
                                                const text::StopCheck& stop = {},
                                                std::vector<std::string>* rendered = nullptr);

}  // namespace meshloom::control
