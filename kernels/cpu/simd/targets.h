// SPDX-License-Identifier: Apache-2.0
// Which instruction set the own kernels run with. It is chosen at start from the CPU; tests and
// benchmarks may force a lower one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshloom::kernels::cpu {

/// Names of the instruction sets compiled in that this CPU has, best first: "AVX3" (AVX-512),
/// "AVX2", "SSE4", or "NEON" and so on elsewhere.
std::vector<std::string> available_targets();

/// Returns the target in use.
std::string current_target();

/// Tells whether it is AVX-512 or more. Costs no more than a look at a mask.
bool runs_avx512();

/// From now on all own kernels of the process use this one; "" gives the choice back to the CPU.
/// Throws InvalidArgument where it is not available. Not to be called while kernels run. Libraries
/// (oneDNN, OpenBLAS) are not affected.
void force_target(std::string_view name);

}  // namespace meshloom::kernels::cpu
