// SPDX-License-Identifier: Apache-2.0
// StateTensor: a named piece of training state, as checkpoints see it.
#pragma once

#include <string>

#include "daemon/tensor/tensor.h"

namespace meshloom::train {

/// A tensor of the training state, the whole of it on every rank.
struct StateTensor {
  std::string name;
  Tensor tensor;  ///< float32, contiguous
};

}  // namespace meshloom::train
