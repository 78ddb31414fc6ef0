// SPDX-License-Identifier: Apache-2.0
// Generating tokens with a causal model and its key-value cache.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  /// Tokens at the end of the prompt that were drawn before, with the same seed: the next one is
  /// drawn as if this sample had drawn them.
  std::uint64_t drawn_before = 0;
};

/// Throws InvalidArgument for an empty prompt, a token outside the vocabulary, a prompt longer than
/// the context and options out of range.
void check_generate_arguments(const ModelConfig& config, std::span<const std::int64_t> prompt,
                              const GenerateOptions& options);

/// One sample, drawn pass by pass. Equal arguments and weights give equal tokens, however much time
/// lies between the passes. Where weights change in between, what was fed before keeps the keys and
/// values that it had.
///
/// When the model's context is full, generation goes on with the last half of it fed anew as a
/// prompt of its own (positions start again at 0), so output is unbounded while the model sees
/// between half and all of its context.
class Generation {
 public:
  /// Throws what check_generate_arguments throws; Unimplemented for BERT. `model` outlives it.
  Generation(Model& model, std::vector<std::int64_t> prompt, const GenerateOptions& options);

  /// No token is left to draw.
  bool done() const { return done_; }
  /// One pass of the model over what it has not seen, at most kPassTokens of it, so that a pass is
  /// short. Returns the next token where that was all. Not after done().
  std::optional<std::int64_t> advance();

  static constexpr std::size_t kPassTokens = 128;

 private:
  Model& model_;
  GenerateOptions options_;
  std::vector<std::int64_t> tokens_;
  std::unique_ptr<KvCache> cache_;
  std::size_t fed_ = 0;
  std::int64_t drawn_ = 0;
  bool done_ = false;
};

}  // namespace meshloom::nn
