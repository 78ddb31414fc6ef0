// SPDX-License-Identifier: Apache-2.0
// Which code computes attention on a GPU, call by call.
#pragma once

namespace meshloom::bench {

/// Prints a line for each kind of call, forward and backward, with why cuDNN does not compute it.
/// Needs no GPU.
int print_attention_plans();

}  // namespace meshloom::bench
