// SPDX-License-Identifier: Apache-2.0
// What a call of a library touches, from the views that it was given.
#pragma once

#include <vector>

#include "kernels/base/tensor_view.h"
#include "tests/support/cuda_emulator/emulator.h"

namespace meshloom::emulator {

/// Adds the elements of a view and nothing between them, as few ranges as dense dims allow. An
/// undefined view adds nothing.
void add_use(std::vector<MemoryUse>& uses, const TensorView& view, bool writes);

}  // namespace meshloom::emulator
