// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/dropout.h"

#include "daemon/tensor/ops/elementwise.h"

namespace meshloom::nn {

Tensor dropout(const Tensor& x, double p, const DropoutState& state, std::int64_t layer,
               DropoutSite site) {
  const double rate = state.rate(p);
  if (rate == 0.0 || x.size(0) == 0) return x;
  const auto per_sample = static_cast<std::uint64_t>(x.numel() / x.size(0));
  return ops::dropout(x, rate, state.stream(layer, site), state.first_sample * per_sample);
}

}  // namespace meshloom::nn
