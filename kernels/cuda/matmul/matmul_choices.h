// SPDX-License-Identifier: Apache-2.0
// The entries of the table of cuBLASLt's kernels. `meshloom-bench tune --device cuda` writes it.
#pragma once

#include <array>

#include "kernels/cuda/matmul/matmul_table.h"

namespace meshloom::kernels::cuda {

inline constexpr int kMatmulTableVersion = 0;
/// With which the entries were measured.
inline constexpr std::string_view kMatmulTableLibraries = "";
inline constexpr std::array<MatmulChoice, 0> kMatmulChoices{};

}  // namespace meshloom::kernels::cuda
