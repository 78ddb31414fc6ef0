// SPDX-License-Identifier: Apache-2.0
// Whether a headerless file of uint16 tokens holds wider ids, whose halves would be taken for
// tokens: x 0 x 0.
#pragma once

#include <cstdint>

#include "daemon/train/files/token_stream.h"

namespace meshloom::train {

/// Ids below it fit uint16.
inline constexpr std::int64_t kNarrowVocabulary = 65536;

/// Looks at 4 x 1024 values of each nanoGPT file (all of a smaller one), from its begin to its end.
/// Throws InvalidArgument (TOKENS_TOO_WIDE) naming the file if every second of them, the first ones
/// or the others, is at most `most_high` and at least 32 of the rest are above it. Right ids are
/// not so by chance (2^-32 where every second one is at most `most_high`), and a 0 behind each
/// token would tell nothing. `most_high` is 0, or for a vocabulary beyond uint16 what the upper
/// halves of its ids are at most. Other formats pass.
void refuse_wide_tokens(const TokenStream& stream, std::int64_t most_high);

}  // namespace meshloom::train
