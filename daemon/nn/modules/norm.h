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
        eps_(static_cast<float>(eps)) {}

  Tensor operator()(const Tensor& x) const {
    return ops::layer_norm(x, weight_.value, bias_.value, eps_);
  }
  /// norm(x + residual) and the sum. An undefined x stands for zero.
  ops::NormedSum operator()(const Tensor& x, const Tensor& residual) const {
    if (!x) return {(*this)(residual), residual};
    return ops::add_layer_norm(x, residual, weight_.value, bias_.value, eps_);
  }

 private:
  Parameter& weight_;
  Parameter& bias_;
  float eps_;
};

class RmsNorm : public Module {
 public:
  RmsNorm(ExecutionContext& context, std::int64_t width, DType dtype, double eps)
      : Module(context),
        weight_(register_parameter("weight", {width}, dtype, {Init::Kind::kOnes})),
        eps_(static_cast<float>(eps)) {}

  Tensor operator()(const Tensor& x) const { return ops::rms_norm(x, weight_.value, eps_); }
  /// norm(x + residual) and the sum. An undefined x stands for zero.
  ops::NormedSum operator()(const Tensor& x, const Tensor& residual) const {
    if (!x) return {(*this)(residual), residual};
    return ops::add_rms_norm(x, residual, weight_.value, eps_);
  }

 private:
  Parameter& weight_;
  float eps_;
};

}  // namespace meshloom::nn
