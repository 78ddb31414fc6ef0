// SPDX-License-Identifier: Apache-2.0
// The bfloat16 of kernels that round with the CPU's own instruction.
#pragma once

#include <cstdint>

namespace meshloom::kernels::cpu {

/// It lies in memory as bfloat16 does and is read alike, but is written by the conversion of
/// AVX512_BF16, which takes one instruction for 32 values where integer arithmetic takes six for
/// 16. It rounds to nearest even as well and keeps NaN; results below 2^-126 become 0. For kernels
/// that compute on their way from load to store; those that only move values keep the exact one.
struct NativeBFloat16 {
  std::uint16_t bits = 0;
};

}  // namespace meshloom::kernels::cpu
