// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm over the last dim, alone or after a residual addition.
#pragma once

#include "daemon/nn/module.h"
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
  /// norm(x + residual) and the sum. An undefined x stands for zero.
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
  /// The second is undefined if the norm is called without.
  std::span<const std::string_view> input_names() const override { return kStreamInputs; }

 private:
  Parameter& weight_;
  Parameter& bias_;
  double eps_;
};

class RmsNorm : public Module {
 public:
  RmsNorm(ExecutionContext& context, std::int64_t width, DType dtype, double eps)
      : Module(context),
        weight_(register_parameter("weight", {width}, dtype, {Init::Kind::kOnes})),
        eps_(eps) {}

  Tensor operator()(const Tensor& x) const {
    return call(x, [&](const Tensor& in) { return ops::rms_norm(in, weight_.value, eps_); });
  }
  /// norm(x + residual) and the sum. An undefined x stands for zero.
  ops::NormedSum operator()(const Tensor& x, const Tensor& residual) const {
    const auto out = call(std::array{x, residual}, [&](const std::array<Tensor, 2>& in) {
      if (!in[0]) return std::array{ops::rms_norm(in[1], weight_.value, eps_), in[1]};
      const ops::NormedSum both = ops::add_rms_norm(in[0], in[1], weight_.value, eps_);
      return std::array{both.normed, both.sum};
    });
    return {out[0], out[1]};
  }
  bool positionwise() const override { return true; }
  std::span<const std::string_view> input_names() const override { return kStreamInputs; }

 private:
  Parameter& weight_;
  double eps_;
};

}  // namespace meshloom::nn
