// SPDX-License-Identifier: Apache-2.0
// What a warp's calls of device/emulated_tensor_core.h compute, once all of its lanes have come.
#pragma once

#include "tests/support/cuda_emulator/running_block.h"

namespace meshloom::emulator {

/// Does what 32 lanes brought to WarpCall::kMultiply: c += a b.
void multiply_fragments(const Thread* warp);
/// Hands out the rows that 32 lanes brought to WarpCall::kLoadMatrices or kLoadTransposed.
void hand_out_matrices(const Thread* warp, bool transposed);

}  // namespace meshloom::emulator
