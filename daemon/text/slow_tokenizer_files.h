// SPDX-License-Identifier: Apache-2.0
// Tokenizers in the files of transformers' older classes, as what a tokenizer.json of them holds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "daemon/text/json_part.h"

namespace meshloom::text {

/// Returns tokenizer_config.json with the tokens of added_tokens.json ({text: id}) as its
/// added_tokens_decoder, unless it has one: special where it names them, looked for in the
/// normalised text otherwise.
nlohmann::json with_added_tokens_file(nlohmann::json config, const JsonPart& added);

/// Makes a tokenizer.json of vocab.json and merges.txt. `config` is tokenizer_config.json, an empty
/// object if there is none: its tokenizer_class says which split pattern and normaliser there are,
/// add_bos_token and add_eos_token what stands around a text. Throws Unimplemented for a class that
/// is not known.
nlohmann::json json_of_bpe_files(const nlohmann::json& vocab, std::string_view merges,
                                 const JsonPart& config);

/// Makes a tokenizer.json of vocab.txt, a token a line. Both throw InvalidArgument for a line that
/// is no UTF-8.
nlohmann::json json_of_word_piece_file(std::string_view vocab, const JsonPart& config);

}  // namespace meshloom::text
