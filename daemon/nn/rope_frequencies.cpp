// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

/// One operation of float32: its operands are floats, so that the result in double is rounded once.
double single(double value) { return static_cast<double>(static_cast<float>(value)); }

/// theta^(2i / head_dim) of each pair, in float32.
std::vector<double> wavelengths(double theta, std::int64_t head_dim) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    const double exponent = single(static_cast<double>(i) / static_cast<double>(head_dim));
    out.push_back(single(std::pow(single(theta), exponent)));
  }
  return out;
}

std::vector<double> inverse(std::vector<double> values) {
  for (double& value : values) value = single(1.0 / value);
  return values;
}

/// Slow frequencies are divided by `factor`, fast ones kept, those between blended.
double llama3(double frequency, const RopeScaling& s) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(s.original_max_position_embeddings);
  const double turns = original / wavelength;
  if (turns < s.low_freq_factor) return frequency / s.factor;
  if (turns > s.high_freq_factor) return frequency;
  const double smooth = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1.0 - smooth) * frequency / s.factor + smooth * frequency;
}

std::vector<double> double_precision(const ModelConfig& config) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < config.head_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(config.head_dim);
    const double frequency = std::pow(config.rope_theta, -exponent);
    out.push_back(config.rope_scaling ? llama3(frequency, *config.rope_scaling) : frequency);
  }
  return out;
}

std::vector<double> linear(const ModelConfig& config) {
  std::vector<double> out = inverse(wavelengths(config.rope_theta, config.head_dim));
  for (double& frequency : out) frequency = single(frequency / single(config.rope_scaling->factor));
  return out;
}

/// A longer sequence than the model was trained on has a larger theta.
std::vector<double> dynamic(const ModelConfig& config, std::int64_t length) {
  const double factor = config.rope_scaling->factor;
  const auto trained = static_cast<double>(config.max_position_embeddings);
  const auto dim = static_cast<double>(config.head_dim);
  double theta = config.rope_theta;
  if (length > config.max_position_embeddings) {
    const double stretched =
        single(single(single(factor) * static_cast<double>(length)) / single(trained));
    const double base = single(stretched - single(factor - 1.0));
    theta = single(single(theta) * single(std::pow(base, single(dim / (dim - 2.0)))));
  }
  return inverse(wavelengths(theta, config.head_dim));
}

/// The pairs between which YaRN goes over from keeping frequencies to dividing them.
struct Ramp {
  double low = 0.0, high = 0.0;

  double at(std::size_t pair) const {
    const double along = single(static_cast<double>(pair) - single(low));
    return std::clamp(single(along / single(high - low)), 0.0, 1.0);
  }
};

Ramp yarn_ramp(const ModelConfig& config) {
  const RopeScaling& s = *config.rope_scaling;
  const auto dim = static_cast<double>(config.head_dim);
  const auto pair_of = [&](double turns) {
    const double wavelength =
        static_cast<double>(s.original_max_position_embeddings) / (turns * 2 * std::numbers::pi);
    return dim * std::log(wavelength) / (2 * std::log(config.rope_theta));
  };
  Ramp ramp{pair_of(s.beta_fast), pair_of(s.beta_slow)};
  if (s.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp = {std::max(ramp.low, 0.0), std::min(ramp.high, dim - 1)};
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

std::vector<double> yarn(const ModelConfig& config) {
  const Ramp ramp = yarn_ramp(config);
  std::vector<double> out;
  for (const double wavelength : wavelengths(config.rope_theta, config.head_dim)) {
    const double kept = single(1.0 / wavelength);
    const double divided = single(1.0 / single(single(config.rope_scaling->factor) * wavelength));
    const double share = single(1.0 - ramp.at(out.size()));
    out.push_back(single(single(divided * single(1.0 - share)) + single(kept * share)));
  }
  return out;
}

double yarn_scale(const RopeScaling& s) {
  if (s.attention_factor) return *s.attention_factor;
  const auto of = [&](double mscale) {
    return s.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(s.factor) + 1.0;
  };
  return s.mscale && s.mscale_all_dim ? of(*s.mscale) / of(*s.mscale_all_dim) : of(1.0);
}

}  // namespace

RopeFrequencies rope_frequencies(const ModelConfig& config, std::int64_t length) {
  if (!config.rope_scaling) return {double_precision(config)};
  const RopeScaling& scaling = *config.rope_scaling;
  switch (scaling.type) {
    case RopeType::kLinear: return {linear(config), 1.0, true};
    case RopeType::kDynamic: return {dynamic(config, length), 1.0, true};
    case RopeType::kYarn: return {yarn(config), yarn_scale(scaling), true};
    case RopeType::kLlama3: return {double_precision(config)};
  }
  throw InternalError("unknown RopeType");
}

}  // namespace meshloom::nn
