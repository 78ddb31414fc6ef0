// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/sample_token.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/philox.h"

namespace meshloom::nn {
namespace {

/// Apart from the streams of parameters and dropout.
constexpr std::uint64_t kSamplingStream = 0x73616d706c65ull;

std::int64_t likeliest(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

void check_logits(std::span<const float> logits) {
  bool any = false;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == INFINITY)
      throw NumericError(fmt::format("generate: the logit of token {} is {}", i, logits[i]),
                         "NAN_LOGITS");
    any = any || logits[i] != -INFINITY;
  }
  if (!any) throw NumericError("generate: every logit is -inf", "NAN_LOGITS");
}

/// 53 random bits in [0, 1).
double uniform(const SamplingOptions& options, std::uint64_t index) {
  const PhiloxBlock bits = PhiloxStream{options.seed, kSamplingStream}.block(index);
  const std::uint64_t word = std::uint64_t{bits[0]} << 32 | bits[1];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

}  // namespace

void check_sampling_options(const SamplingOptions& options) {
  check(options.temperature >= 0.0 && std::isfinite(options.temperature),
        "temperature: {} is not a number from 0 on", options.temperature);
  check(options.top_k >= 0, "top_k: {} is negative", options.top_k);
  check(options.top_p > 0.0 && options.top_p <= 1.0, "top_p: {} is not in (0, 1]", options.top_p);
}

std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          std::uint64_t index) {
  check_sampling_options(options);
  check(!logits.empty(), "generate: there are no logits");
  check_logits(logits);
  const std::int64_t best = likeliest(logits);
  if (options.temperature == 0.0 || options.top_k == 1) return best;

  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto logit = [&](std::int64_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return logit(a) > logit(b); });
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < order.size())
    order.resize(static_cast<std::size_t>(options.top_k));

  const double top = logit(best);
  std::vector<double> weights;
  weights.reserve(order.size());
  for (std::int64_t id : order)
    weights.push_back(std::exp((logit(id) - top) / options.temperature));
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double kept = 0.0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < options.top_p * all))
    kept += weights[count++];

  double remaining = uniform(options, index) * kept;
  for (std::size_t i = 0; i < count; ++i) {
    remaining -= weights[i];
    if (remaining < 0.0) return order[i];
  }
  // Rounding can leave a little; the last token that has any probability takes it.
  while (count > 1 && weights[count - 1] == 0.0) --count;
  return order[count - 1];
}

}  // namespace meshloom::nn
