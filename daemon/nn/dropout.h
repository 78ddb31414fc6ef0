// SPDX-License-Identifier: Apache-2.0
// Where each dropout of a model takes its random numbers from: by position, so that every mesh and
// every recomputation draws the same.
#pragma once

#include <cstdint>

#include "daemon/tensor/tensor.h"
#include "kernels/base/philox.h"

namespace meshloom::nn {

/// DropoutSite lists the dropouts of a block.
enum class DropoutSite : std::uint8_t { kEmbedding, kAttention, kAttentionOutput, kMlpOutput };

/// A forward pass knows this of its randomness. Off (p = 0 everywhere) unless `training`.
struct DropoutState {
  bool training = false;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;          ///< optimizer step and micro batch
  std::uint64_t first_sample = 0;  ///< global index of the first row

  double rate(double p) const { return training ? p : 0.0; }
  /// Returns a stream for each (step, layer, site); steps below 2^40, layers below 2^16.
  PhiloxStream stream(std::int64_t layer, DropoutSite site) const {
    return {seed,
            step << 24 | static_cast<std::uint64_t>(layer) << 8 | static_cast<std::uint64_t>(site)};
  }
};

/// Returns dropout of x [B,..], whose first row is the global sample `first_sample`.
Tensor dropout(const Tensor& x, double p, const DropoutState& state, std::int64_t layer,
               DropoutSite site);

}  // namespace meshloom::nn
