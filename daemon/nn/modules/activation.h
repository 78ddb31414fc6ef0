// SPDX-License-Identifier: Apache-2.0
// An activation function as a module of its own, so that hooks reach its input and output.
#pragma once

#include "daemon/nn/models/model_config.h"
#include "daemon/nn/module.h"

namespace meshloom::nn {

/// Computes the function alone.
Tensor activate(const Tensor& x, ActivationKind activation);

class Activation : public Module {
 public:
  Activation(ExecutionContext& context, ActivationKind kind) : Module(context), kind_(kind) {}

  Tensor operator()(const Tensor& x) const {
    return call(x, [&](const Tensor& in) { return activate(in, kind_); });
  }
  bool positionwise() const override { return true; }

 private:
  ActivationKind kind_;
};

}  // namespace meshloom::nn
