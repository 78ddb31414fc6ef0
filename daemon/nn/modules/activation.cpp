// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/modules/activation.h"

#include "daemon/tensor/ops/elementwise.h"
#include "kernels/base/error.h"

namespace meshloom::nn {

Tensor activate(const Tensor& x, ActivationKind activation) {
  switch (activation) {
    case ActivationKind::kGelu: return ops::gelu(x, false);
    case ActivationKind::kGeluTanh: return ops::gelu(x, true);
    case ActivationKind::kSilu: return ops::silu(x);
    case ActivationKind::kRelu: return ops::relu(x);
  }
  throw InternalError("unknown activation");
}

}  // namespace meshloom::nn
