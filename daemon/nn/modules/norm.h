// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm over the last dim, alone or after a residual addition.
#pragma once

#include "daemon/nn/module.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/norm.h"

namespace meshloom::nn {

class LayerNorm : public Module {
 public:
  LayerNorm(ExecutionContext& context, std::int64_t width, DType dtype, double eps)
      : Module(context),
        weight_(register_parameter("weight", {width}, dtype, {Init::Kind::kOnes})),
        bias_(register_parameter("bias", {width}, dtype, {Init::Kind::kZeros})),
        eps_(eps) {}

  Tensor operator()(const Tensor& x) const {
    return call(
        x, [&](const Tensor& in) { return ops::layer_norm(in, weight_.value, bias_.value, eps_); });
  }
  /// Returns norm(x + residual) and the sum. An undefined x stands for zero.
  ops::NormedSum operator()(const Tensor& x, const Tensor& residual) const {
    const auto out = call(std::array{x, residual}, [&](const std::array<Tensor, 2>& in) {
      if (!in[0])
        return std::array{ops::layer_norm(in[1], weight_.value, bias_.value, eps_), in[1]};
      const ops::NormedSum both =
          ops::add_layer_norm(in[0], in[1], weight_.value, bias_.value, eps_);
      return std::array{both.normed, both.sum};
    });
    return {out[0], out[1]};
  }
  bool positionwise() const override { return true; }
  /// Names the inputs, of which the second is undefined if the norm is called without.
  std::span<const std::string_view> input_names() const override { return kStreamInputs; }

 private:
  Parameter& weight_;
  Parameter& bias_;
  double eps_;
};

class RmsNorm : public Module {
 public:
  /// With `around_one` a channel is multiplied by 1 + weight, else by its weight.
  RmsNorm(ExecutionContext& context, std::int64_t width, DType dtype, double eps,
          bool around_one = false)
      : Module(context),
        weight_(register_parameter("weight", {width}, dtype,
                                   {around_one ? Init::Kind::kZeros : Init::Kind::kOnes})),
        eps_(eps),
        around_one_(around_one) {}

  Tensor operator()(const Tensor& x) const {
    return call(x, [&](const Tensor& in) { return ops::rms_norm(in, factor(), eps_); });
  }
  /// Returns norm(x + residual) and the sum. An undefined x stands for zero.
  ops::NormedSum operator()(const Tensor& x, const Tensor& residual) const {
    const auto out = call(std::array{x, residual}, [&](const std::array<Tensor, 2>& in) {
      if (!in[0]) return std::array{ops::rms_norm(in[1], factor(), eps_), in[1]};
      const ops::NormedSum both = ops::add_rms_norm(in[0], in[1], factor(), eps_);
      return std::array{both.normed, both.sum};
    });
    return {out[0], out[1]};
  }
  bool positionwise() const override { return true; }
  std::span<const std::string_view> input_names() const override { return kStreamInputs; }

 private:
  Tensor factor() const { return around_one_ ? ops::add(weight_.value, 1.0) : weight_.value; }

  Parameter& weight_;
  double eps_;
  bool around_one_;
};

}  // namespace meshloom::nn
