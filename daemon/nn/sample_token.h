// SPDX-License-Identifier: Apache-2.0
// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <span>

namespace meshloom::nn {

struct SamplingOptions {
  double temperature = 1.0;  ///< 0: the likeliest token (the lowest id among equals)
  std::int64_t top_k = 0;    ///< draws from the k likeliest tokens only; 0: all
  double top_p = 1.0;        ///< draws from the fewest likeliest tokens whose probabilities reach p
  std::uint64_t seed = 0;
};

/// Throws InvalidArgument naming the field that is out of range.
void check_sampling_options(const SamplingOptions& options);

/// Draws token number `index` of a generation: depends on logits, options and index alone.
/// Tokens are taken in order of probability, equal ones by id. Throws NumericError if a logit is
/// NaN or all are -inf.
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          std::uint64_t index);

/// Returns the log-prob of token `id` under softmax(logits / temperature), over all tokens,
/// whatever top_k and top_p leave of them. Temperature 0: that of the choice of the likeliest
/// token, 0.
double token_log_prob(std::span<const float> logits, std::int64_t id, double temperature = 1.0);

}  // namespace meshloom::nn
