// SPDX-License-Identifier: Apache-2.0
// Hand-written scanners for the split patterns of GPT-2, Llama 3 and Qwen 2: linear in the text,
// whatever it is, and several times as fast as the regular expression.
#pragma once

#include <optional>
#include <string_view>

#include "daemon/text/piece.h"

namespace meshloom::text {

enum class SplitPattern { kGpt2, kLlama3, kQwen2 };

/// Returns the regular expression that the scanner stands for.
const char* regular_expression(SplitPattern pattern);
/// Returns the pattern with exactly this expression.
std::optional<SplitPattern> known_split_pattern(std::string_view expression);

/// Calls `sink` with every match, in order; they cover the text, which is valid UTF-8.
void scan(SplitPattern pattern, const Piece& text, const PieceSink& sink);

}  // namespace meshloom::text
