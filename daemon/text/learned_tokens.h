// SPDX-License-Identifier: Apache-2.0
// Tokens that say of themselves whether they are learnt.
#pragma once

#include <cstdint>

#include "daemon/text/vocabulary.h"

namespace meshloom::text {

/// Bits of a token of conversations, above every id (kMostTokens).
inline constexpr TokenId kNotLearnt = 1 << 30;   ///< the loss is not on it
inline constexpr TokenId kBeginsText = 1 << 29;  ///< it is the first of a conversation
inline constexpr TokenId kTokenBits = kNotLearnt | kBeginsText;

inline TokenId id_of(TokenId token) { return token & ~kTokenBits; }

}  // namespace meshloom::text
