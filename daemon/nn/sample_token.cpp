// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/sample_token.h"

#include <algorithm>
#include <array>
#include <bit>
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

/// Falls as the logit rises; equal for 0 and -0.
std::uint32_t falling_key(float logit) {
  const auto bits = std::bit_cast<std::uint32_t>(logit + 0.0f);
  return bits & 0x8000'0000u ? bits : ~bits & 0x7fff'ffffu;
}

/// All ids by falling logit, equal ones by id: three stable counting passes, since comparing takes
/// longer than a small model's pass if the vocabulary is large.
std::vector<std::uint32_t> by_falling_logit(std::span<const float> logits) {
  constexpr int kBits = 11, kPasses = 3;
  constexpr std::uint64_t kMask = (1u << kBits) - 1;
  std::vector<std::uint64_t> items(logits.size()), sorted(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    items[i] = std::uint64_t{falling_key(logits[i])} << 32 | i;
  for (int pass = 0; pass < kPasses; ++pass) {
    const int shift = 32 + pass * kBits;
    std::array<std::size_t, kMask + 2> starts{};
    for (const std::uint64_t item : items) ++starts[(item >> shift & kMask) + 1];
    for (std::size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
    for (const std::uint64_t item : items) sorted[starts[item >> shift & kMask]++] = item;
    items.swap(sorted);
  }
  std::vector<std::uint32_t> ids(items.size());
  std::transform(items.begin(), items.end(), ids.begin(),
                 [](std::uint64_t item) { return static_cast<std::uint32_t>(item); });
  return ids;
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

  std::vector<std::uint32_t> order = by_falling_logit(logits);
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < order.size())
    order.resize(static_cast<std::size_t>(options.top_k));

  const double top = logits[static_cast<std::size_t>(best)];
  std::vector<double> weights;
  weights.reserve(order.size());
  for (const std::uint32_t id : order)
    weights.push_back(std::exp((logits[id] - top) / options.temperature));
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

double token_log_prob(std::span<const float> logits, std::int64_t id, double temperature) {
  if (temperature == 0.0) return 0.0;
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp((logit - top) / temperature);
  return (logits[static_cast<std::size_t>(id)] - top) / temperature - std::log(sum);
}

}  // namespace meshloom::nn
