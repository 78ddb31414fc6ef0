// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/sample_token.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/philox.h"

namespace meshloom::nn {
namespace {

/// Apart from the streams of parameters and dropout.
constexpr std::uint64_t kSamplingStream = 0x73616d706c65ull;

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

/// What a token is drawn from: tokens by falling logit, equal ones by id, with the weight
/// exp((logit - highest) / temperature) of each. To put a large vocabulary in order takes longer
/// than a small model's pass. So tokens lie in buckets by their distance from the highest logit,
/// and only a bucket that a cut or a draw falls into is put in order.
class FallingWeights {
 public:
  FallingWeights(std::span<const float> logits, float highest, double temperature)
      : logits_(logits), highest_(highest), temperature_(temperature), buckets_(kBuckets) {
    float lowest = highest;
    for (const float logit : logits)
      if (logit != -INFINITY) lowest = std::min(lowest, logit);
    // What is farther away than 64 temperatures has a weight below 1e-27: one bucket holds it all.
    const auto most = static_cast<float>(std::clamp(64.0 * temperature, 1e-30, 1e30));
    const float range = std::min(highest - lowest, most);
    const float scale = static_cast<float>(kBuckets - 1) / std::max(range, 1e-30f);
    places_.reserve(logits.size());
    for (const float logit : logits) {
      const float below = highest - logit;
      const auto place =
          below < range ? static_cast<std::uint16_t>(below * scale) : std::uint16_t{kBuckets - 1};
      places_.push_back(place);
      ++buckets_[place].count;
      buckets_[place].weight += weight(logit);
    }
  }

  double sum() const {
    double sum = 0.0;
    for (const Bucket& bucket : buckets_) sum += bucket.weight;
    return sum;
  }

  /// Leaves the `count` likeliest tokens.
  void keep_first(std::size_t count) {
    std::size_t at = 0;
    while (at < buckets_.size() && buckets_[at].count < count) count -= buckets_[at++].count;
    if (at < buckets_.size()) cut(at, count);
  }

  /// Leaves the fewest likeliest tokens whose weights reach `enough`, and one at least.
  void keep_weight(double enough) {
    std::size_t at = 0;
    while (at < buckets_.size() && buckets_[at].weight < enough) enough -= buckets_[at++].weight;
    if (at == buckets_.size()) return;
    std::size_t count = 0;
    for (const std::uint32_t id : in_order(at)) {
      ++count;
      enough -= weight(logits_[id]);
      if (enough <= 0.0) break;
    }
    cut(at, count);
  }

  /// The token at which the sum of the weights in this order exceeds `target`. What rounding leaves
  /// of it goes to the last token that has any weight.
  std::uint32_t token_at(double target) const {
    std::size_t last = buckets_.size() - 1;
    while (last > 0 && buckets_[last].weight == 0.0) --last;
    std::size_t at = 0;
    while (at < last && target >= buckets_[at].weight) target -= buckets_[at++].weight;
    std::uint32_t token = 0;
    for (const std::uint32_t id : in_order(at)) {
      const double own = weight(logits_[id]);
      if (own == 0.0) break;
      token = id;
      target -= own;
      if (target < 0.0) break;
    }
    return token;
  }

 private:
  static constexpr int kBuckets = 1024;
  struct Bucket {
    std::size_t count = 0;
    double weight = 0.0;
  };

  double weight(float logit) const {
    return std::exp((static_cast<double>(logit) - highest_) / temperature_);
  }

  std::vector<std::uint32_t> in_order(std::size_t bucket) const {
    std::vector<std::uint32_t> ids;
    for (std::size_t id = 0; id < places_.size(); ++id)
      if (places_[id] == bucket) ids.push_back(static_cast<std::uint32_t>(id));
    std::stable_sort(ids.begin(), ids.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return logits_[a] > logits_[b]; });
    ids.resize(buckets_[bucket].count);
    return ids;
  }

  /// Leaves the buckets before `at`, and `count` tokens of that one.
  void cut(std::size_t at, std::size_t count) {
    buckets_.resize(at + 1);
    buckets_[at] = {count, 0.0};
    for (const std::uint32_t id : in_order(at)) buckets_[at].weight += weight(logits_[id]);
  }

  std::span<const float> logits_;
  double highest_, temperature_;
  std::vector<std::uint16_t> places_;  ///< by token: its bucket
  std::vector<Bucket> buckets_;
};

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
  const std::int64_t best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  if (options.temperature == 0.0 || options.top_k == 1) return best;

  FallingWeights weights(logits, logits[static_cast<std::size_t>(best)], options.temperature);
  if (options.top_k > 0) weights.keep_first(static_cast<std::size_t>(options.top_k));
  if (options.top_p < 1.0) weights.keep_weight(options.top_p * weights.sum());
  // 53 random bits in [0, 1).
  const PhiloxBlock bits = PhiloxStream{options.seed, kSamplingStream}.block(index);
  const std::uint64_t word = std::uint64_t{bits[0]} << 32 | bits[1];
  const double uniform = static_cast<double>(word >> 11) * 0x1p-53;
  return weights.token_at(uniform * weights.sum());
}

double token_log_prob(std::span<const float> logits, std::int64_t id, double temperature) {
  if (temperature == 0.0) return 0.0;
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp((logit - top) / temperature);
  return (logits[static_cast<std::size_t>(id)] - top) / temperature - std::log(sum);
}

}  // namespace meshloom::nn
