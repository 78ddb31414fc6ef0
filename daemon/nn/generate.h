// SPDX-License-Identifier: Apache-2.0
// Generating tokens with a causal model and its key-value cache.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "daemon/nn/models/model.h"
#include "daemon/nn/sample_token.h"

namespace meshloom::nn {

struct GenerateOptions {
  SamplingOptions sampling;
  std::int64_t max_tokens = 256;
  /// Generation ends after one of these; Model::config()'s eos ids are added where `stop_at_eos`.
  std::vector<std::int64_t> stop_tokens;
  bool stop_at_eos = true;
};

/// Throws InvalidArgument for an empty prompt, a token outside the vocabulary, a prompt longer than
/// the context and options out of range.
void check_generate_arguments(const ModelConfig& config, std::span<const std::int64_t> prompt,
                              const GenerateOptions& options);

/// Feeds `prompt` and then draws up to max_tokens tokens, handing each to on_token, which returns
/// false to stop. Returns how many were drawn. Equal arguments and weights give equal tokens.
///
/// When the model's context is full, generation goes on with the last half of it fed anew as a
/// prompt of its own (positions start again at 0), so output is unbounded while the model sees
/// between half and all of its context.
///
/// Throws what check_generate_arguments throws; Unimplemented for BERT.
std::int64_t generate(Model& model, std::span<const std::int64_t> prompt,
                      const GenerateOptions& options,
                      const std::function<bool(std::int64_t)>& on_token);

}  // namespace meshloom::nn
