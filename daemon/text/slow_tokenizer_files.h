// SPDX-License-Identifier: Apache-2.0
// Tokenizers in the files of transformers' older classes, as what a tokenizer.json of them holds.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/text/json_part.h"

namespace meshloom::text {

/// vocab.json and merges.txt. `config` is tokenizer_config.json, an empty object if there is none:
/// its tokenizer_class says which split pattern and normaliser there are. Throws Unimplemented for
/// a class that is not known.
nlohmann::json json_of_bpe_files(const nlohmann::json& vocab, std::string_view merges,
                                 const JsonPart& config);

/// vocab.txt, a token a line. Both throw InvalidArgument for a line that is no UTF-8.
nlohmann::json json_of_word_piece_file(std::string_view vocab, const JsonPart& config);

/// A special token in a tokenizer_config.json: text, or an object with its content; nothing if it
/// is not there.
std::optional<std::string> special_token(const JsonPart& config, std::string_view key);

}  // namespace meshloom::text
