// SPDX-License-Identifier: Apache-2.0
// Which tokens of a text lie in some ranges of its bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/text/tokenizer.h"

namespace meshloom::text {

/// ByteRange has the bytes [begin, end) of a text.
using ByteRange = std::pair<std::size_t, std::size_t>;
/// TokenRange has the tokens [begin, end) of those of a text.
using TokenRange = std::pair<std::size_t, std::size_t>;

/// Returns for each of the ranges, which are in order and apart, the tokens that have a byte in it.
/// `tokens` are those of the whole text without the template. Where the parts of the text between
/// the ends of the ranges have the same tokens by themselves, these tell; else the texts of the
/// first tokens do, held against that of the text before such an end. Throws Unimplemented
/// (NOT_OFFERED) for a tokenizer that changes texts so that this does not tell either,
/// ResourceExhausted (CONVERSATION_TOO_LONG) for very many ranges that do not end between tokens,
/// and as Budget::spend.
std::vector<TokenRange> tokens_in_ranges(const Tokenizer& tokenizer, std::string_view text,
                                         std::span<const TokenId> tokens,
                                         std::span<const ByteRange> ranges, WordCache& cache,
                                         const StopCheck& stop = {});

}  // namespace meshloom::text
