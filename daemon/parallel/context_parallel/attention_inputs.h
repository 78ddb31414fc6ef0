// SPDX-License-Identifier: Apache-2.0
// Where attention's call keeps what.
#pragma once

#include <cstddef>

namespace meshloom::parallel {

/// Places among the inputs.
inline constexpr std::size_t kQuery = 0, kKey = 1, kValue = 2, kBias = 3, kDocuments = 4;
inline constexpr int kSequenceDim = 2;  ///< of q, k and v [B,H,S,D]

}  // namespace meshloom::parallel
