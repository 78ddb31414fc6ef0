// SPDX-License-Identifier: Apache-2.0
// Two linear layers with an activation between them.
#pragma once

#include "daemon/nn/modules/activation.h"
#include "daemon/nn/modules/linear.h"

namespace meshloom::nn {

/// It has the children "net1", "act" and "net2".
class Mlp : public Module {
 public:
  struct Sizes {
    std::int64_t in, hidden, out;
  };
  Mlp(ExecutionContext& context, const Sizes& sizes, ActivationKind activation, DType dtype)
      : Module(context),
        net1_(context, sizes.in, sizes.hidden, dtype, {}),
        act_(context, activation),
        net2_(context, sizes.hidden, sizes.out, dtype, {}) {
    register_module("net1", net1_);
    register_module("act", act_);
    register_module("net2", net2_);
  }

  Tensor operator()(const Tensor& x) const {
    return call(x, [&](const Tensor& in) { return net2_(act_(net1_(in))); });
  }

 private:
  Linear net1_;
  Activation act_;
  Linear net2_;
};

}  // namespace meshloom::nn
