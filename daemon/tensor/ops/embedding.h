// SPDX-License-Identifier: Apache-2.0
// Table look-up with a deterministic gradient.
#pragma once

#include "daemon/tensor/tensor.h"

namespace meshloom::ops {

/// Looks up rows of weight [V,C] by ids, int64 of any shape, and gives [ids.., C] in weight's
/// floating dtype. padding_idx rows get no gradient (-1: none). An id outside [0, V) throws
/// InvalidArgument naming it: at once, or at the end of a step that defers checks.
Tensor embedding(const Tensor& weight, const Tensor& ids, std::int64_t padding_idx = -1);

}  // namespace meshloom::ops
