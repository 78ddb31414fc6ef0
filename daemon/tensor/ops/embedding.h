// SPDX-License-Identifier: Apache-2.0
// Table look-up with a deterministic gradient.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

/// weight [V,C], ids int64 any shape -> [ids.., C]. padding_idx rows get no gradient (-1: none). An
/// id outside [0, V) throws InvalidArgument naming it.
Tensor embedding(const Tensor& weight, const Tensor& ids, std::int64_t padding_idx = -1);

}  // namespace meshloom::ops
