// SPDX-License-Identifier: Apache-2.0
// StateTensor: a named piece of training state, as checkpoints see it.
#pragma once

#include <string>

#include "daemon/tensor/tensor.h"
#include "planner/dtensor_spec.h"

namespace meshloom::train {

/// StateTensor is a tensor of the training state as this rank holds it.
struct StateTensor {
  std::string name;
  Tensor tensor;  ///< float32, contiguous: this rank's part
  /// The ranks of the world hold it in this layout, without Partial; null: the whole of it on every
  /// rank.
  planner::SpecPtr spec = nullptr;

  const Shape& shape() const { return spec ? spec->shape() : tensor.shape(); }
};

}  // namespace meshloom::train
