// SPDX-License-Identifier: Apache-2.0
// Decoders: what makes the texts of tokens one text again.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "daemon/text/json_part.h"

namespace meshloom::text {

/// Changes a list of texts; what is left is put together. Texts may be no valid UTF-8 on the way.
using Decoder = std::function<void(std::vector<std::string>& texts)>;

/// Joins words and the parts of words that begin with `prefix`; `cleanup` takes out the blanks
/// before punctuation and in English contractions.
Decoder word_piece_decoder(const std::string& prefix, bool cleanup);
/// Characters of GPT-2's alphabet as the bytes that they stand for.
Decoder byte_level_decoder();

/// The "decoder" of a tokenizer.json. Throws Unimplemented naming a kind that is not known.
Decoder read_decoder(const JsonPart& part);

}  // namespace meshloom::text
