// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/loss/losses.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "daemon/base/field_error.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

struct Named {
  LossKind kind;
  const char* name;
  double clip_low, clip_high, beta;
  bool clips, has_beta;
};

constexpr std::array<Named, 6> kLosses = {{
    {LossKind::kCrossEntropy, "cross_entropy", 0, 0, 0, false, false},
    {LossKind::kImportanceSampling, "importance_sampling", 0, 0, 0, false, false},
    {LossKind::kPpo, "ppo", 0.8, 1.2, 0, true, false},
    {LossKind::kCispo, "cispo", 0.0, 4.0, 0, true, false},
    {LossKind::kDro, "dro", 0, 0, 0.05, false, true},
    {LossKind::kGspo, "gspo", 0.8, 1.2, 0, true, false},
}};

constexpr const char* kLowKey = "clip_low_threshold";
constexpr const char* kHighKey = "clip_high_threshold";
constexpr const char* kBetaKey = "beta";

const Named& named(LossKind kind) { return kLosses[static_cast<std::size_t>(kind)]; }

const Named& find_loss(const std::string& name) {
  std::vector<std::string> names;
  for (const Named& loss : kLosses) {
    if (name == loss.name) return loss;
    names.emplace_back(loss.name);
  }
  base::refuse_field("loss", "\"{}\" is unknown; offered are {}", name, fmt::join(names, ", "));
}

std::string config_text(const TokenLoss& loss) {
  if (named(loss.kind).clips)
    return fmt::format(" ({} {}, {} {})", kLowKey, loss.clip_low, kHighKey, loss.clip_high);
  if (named(loss.kind).has_beta) return fmt::format(" ({} {})", kBetaKey, loss.beta);
  return {};
}

double clipped(const TokenLoss& loss, double ratio) {
  return std::min(std::max(ratio, loss.clip_low), loss.clip_high);
}

/// log-ratio of token t.
double log_ratio(const v1::Datum& datum, std::span<const float> log_probs, std::size_t t) {
  return static_cast<double>(log_probs[t]) -
         static_cast<double>(datum.logprobs(static_cast<int>(t)));
}

/// exp of the mean of log-ratios over the positions of the mask.
double sequence_ratio(const v1::Datum& datum, std::span<const float> log_probs) {
  double sum = 0.0, count = 0.0;
  for (std::size_t t = 0; t < log_probs.size(); ++t) {
    if (datum.sequence_ratio_mask(static_cast<int>(t)) == 0.0f) continue;
    sum += log_ratio(datum, log_probs, t);
    count += 1.0;
  }
  return std::exp(sum / count);
}

/// The ratio that the loss takes of every token; dro has none.
std::vector<double> ratios(const TokenLoss& loss, const v1::Datum& datum,
                           std::span<const float> log_probs) {
  if (loss.weighted() || loss.kind == LossKind::kDro) return {};
  if (loss.kind == LossKind::kGspo)
    return std::vector<double>(log_probs.size(), sequence_ratio(datum, log_probs));
  std::vector<double> result;
  for (std::size_t t = 0; t < log_probs.size(); ++t)
    result.push_back(std::exp(log_ratio(datum, log_probs, t)));
  return result;
}

/// What config of the loss is read.
std::vector<std::string> config_keys(const Named& loss) {
  if (loss.clips) return {kLowKey, kHighKey};
  return loss.has_beta ? std::vector<std::string>{kBetaKey} : std::vector<std::string>{};
}

DatumLoss cross_entropy(const v1::Datum& datum, std::span<const float> log_probs) {
  const auto tokens = static_cast<std::size_t>(datum.tokens_size());
  const std::size_t targets = log_probs.size() / tokens;
  DatumLoss result{std::vector<double>(tokens, 0.0), std::vector<double>(log_probs.size())};
  for (std::size_t i = 0; i < log_probs.size(); ++i) {
    const double weight = datum.weights().empty() ? 1.0 : datum.weights(static_cast<int>(i));
    result.losses[i / targets] -= weight * log_probs[i];
    result.gradients[i] = -weight;
  }
  return result;
}

struct LossAndGradient {
  double loss, gradient;
};

/// Of one token of a loss with advantages.
LossAndGradient token_loss(const TokenLoss& loss, double lp, double log_ratio, double ratio,
                           double advantage) {
  const double plain = ratio * advantage;
  switch (loss.kind) {
    case LossKind::kImportanceSampling: return {-plain, -plain};
    case LossKind::kCispo: {
      const double factor = clipped(loss, ratio) * advantage;
      return {-factor * lp, -factor};
    }
    case LossKind::kDro:
      return {-(lp * advantage - 0.5 * loss.beta * log_ratio * log_ratio),
              -advantage + loss.beta * log_ratio};
    default: {  // ppo and gspo
      const double bounded = clipped(loss, ratio) * advantage;
      return {-std::min(plain, bounded), plain <= bounded ? -plain : 0.0};
    }
  }
}

[[noreturn]] void refuse_value(const TokenLoss& loss, std::size_t datum, std::size_t token,
                               const std::string& what, double value) {
  throw NumericError(fmt::format("data[{}], token {}: the {} is {} in loss {}{}", datum, token,
                                 what, value, loss_name(loss.kind), config_text(loss)),
                     "NON_FINITE_LOSS",
                     {{"field", fmt::format("data[{}]", datum)},
                      {"datum", std::to_string(datum)},
                      {"token", std::to_string(token)},
                      {"loss", loss_name(loss.kind)}});
}

}  // namespace

std::vector<OfferedLoss> offered_losses() {
  std::vector<OfferedLoss> losses;
  for (const Named& loss : kLosses) losses.push_back({loss.name, config_keys(loss)});
  return losses;
}

const char* loss_name(LossKind kind) { return named(kind).name; }

TokenLoss make_token_loss(const std::string& name, const std::map<std::string, double>& config) {
  const Named& found = find_loss(name);
  TokenLoss loss{found.kind, found.clip_low, found.clip_high, found.beta};
  for (const auto& [key, value] : config) {
    const std::string field = fmt::format("loss_config[{}]", key);
    if (found.clips && key == kLowKey) {
      loss.clip_low = value;
    } else if (found.clips && key == kHighKey) {
      loss.clip_high = value;
    } else if (found.has_beta && key == kBetaKey) {
      loss.beta = value;
    } else {
      base::refuse_field(field, "loss {} takes {}", name,
                         found.clips      ? fmt::format("{} and {}", kLowKey, kHighKey)
                         : found.has_beta ? std::string(kBetaKey)
                                          : std::string("no config"));
    }
  }
  if (found.clips && !(std::isfinite(loss.clip_low) && loss.clip_low >= 0.0))
    base::refuse_field(fmt::format("loss_config[{}]", kLowKey),
                       "must be a ratio of 0 or more, got {}", loss.clip_low);
  if (found.clips && !(loss.clip_high >= loss.clip_low))
    base::refuse_field(fmt::format("loss_config[{}]", kHighKey), "must be at least {} ({}), got {}",
                       kLowKey, loss.clip_low, loss.clip_high);
  if (!(std::isfinite(loss.beta) && loss.beta >= 0.0))
    base::refuse_field(fmt::format("loss_config[{}]", kBetaKey), "must be 0 or more, got {}",
                       loss.beta);
  return loss;
}

DatumLoss datum_loss(const TokenLoss& loss, const v1::Datum& datum,
                     std::span<const float> log_probs) {
  if (loss.weighted()) return cross_entropy(datum, log_probs);
  const std::vector<double> ratio = ratios(loss, datum, log_probs);
  DatumLoss result;
  for (std::size_t t = 0; t < log_probs.size(); ++t) {
    const LossAndGradient token =
        token_loss(loss, log_probs[t], log_ratio(datum, log_probs, t),
                   ratio.empty() ? 1.0 : ratio[t], datum.advantages(static_cast<int>(t)));
    result.losses.push_back(token.loss);
    result.gradients.push_back(token.gradient);
  }
  return result;
}

void check_finite(const TokenLoss& loss, const v1::Datum& datum, std::size_t index,
                  std::span<const float> log_probs, const DatumLoss& result) {
  const std::size_t targets = log_probs.size() / result.losses.size();
  const std::vector<double> ratio = ratios(loss, datum, log_probs);
  for (std::size_t i = 0; i < log_probs.size(); ++i) {
    const std::size_t token = i / targets;
    if (!std::isfinite(log_probs[i]))
      refuse_value(loss, index, token, "log-prob of its target", log_probs[i]);
    if (!ratio.empty() && !std::isfinite(ratio[token]))
      refuse_value(loss, index, token, "ratio exp(lp - q)", ratio[token]);
    // Gradients are float32 from here on.
    if (!std::isfinite(static_cast<float>(result.gradients[i])))
      refuse_value(loss, index, token, "gradient by its log-prob", result.gradients[i]);
    if (!std::isfinite(static_cast<float>(result.losses[token])))
      refuse_value(loss, index, token, "loss", result.losses[token]);
  }
}

void LossMetrics::add(const TokenLoss& loss, const v1::Datum& datum,
                      std::span<const float> log_probs, const DatumLoss& result) {
  for (const double value : result.losses) loss_ += value;
  tokens_ += static_cast<double>(counted_tokens(loss, datum));
  if (loss.weighted()) return;
  const std::vector<double> ratio = ratios(loss, datum, log_probs);
  for (std::size_t t = 0; t < log_probs.size(); ++t) {
    const auto token = static_cast<int>(t);
    const bool counts = loss.kind == LossKind::kGspo ? datum.sequence_ratio_mask(token) != 0.0f
                                                     : datum.advantages(token) != 0.0f;
    if (!counts) continue;
    kl_ -= log_ratio(datum, log_probs, t);
    if (ratio.empty()) continue;
    ratio_min_ = std::min(ratio_min_, ratio[t]);
    ratio_max_ = std::max(ratio_max_, ratio[t]);
  }
}

std::map<std::string, double> LossMetrics::values(const TokenLoss& loss) const {
  std::map<std::string, double> values = {{"loss:sum", loss_}, {"tokens:sum", tokens_}};
  if (loss.weighted()) return values;
  values["kl:sum"] = kl_;
  if (std::isfinite(ratio_min_)) {
    values["ratio:min"] = ratio_min_;
    values["ratio:max"] = ratio_max_;
  }
  return values;
}

std::int64_t counted_tokens(const TokenLoss& loss, const v1::Datum& datum) {
  if (!loss.weighted() || datum.weights().empty()) return datum.targets_size();
  return std::count_if(datum.weights().begin(), datum.weights().end(),
                       [](float weight) { return weight != 0.0f; });
}

}  // namespace meshloom::train
