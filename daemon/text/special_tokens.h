// SPDX-License-Identifier: Apache-2.0
// The special tokens of a folder (bos, eos, [SEP], ...), wherever its files name them.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/text/json_part.h"
#include "daemon/text/tokenizer.h"

namespace meshloom::text {

/// tokenizer_config.json and special_tokens_map.json call the special tokens by these names.
inline constexpr std::array kSpecialTokenNames = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

/// They are "bos_token" and so on, with the text of each that there is.
using NamedTokens = std::vector<std::pair<std::string, std::string>>;

/// Returns tokenizer_config.json with the tokens of special_tokens_map.json, which count before its
/// own unless it has added_tokens_decoder. Throws InvalidArgument for a token that is neither text
/// nor an object with its content nor null.
nlohmann::json with_special_tokens_map(nlohmann::json config, const JsonPart& map);

/// Returns the tokenizer_class that a config names, without the ending "Fast".
std::optional<std::string> named_class(const JsonPart& config);
/// Returns the class that transformers' AutoTokenizer takes for a folder, without that ending: by
/// the tokenizer_class of tokenizer_config.json (`config`) or of config.json (`model`), and the
/// latter's model_type. Empty where it takes one that names no tokens by itself. `is_byte_level`:
/// there is a tokenizer.json that speaks of ByteLevel.
std::string tokenizer_class(const JsonPart& config, const JsonPart& model, bool is_byte_level);

/// Returns the token that `config` names, as text or as an object with its content; nothing if it
/// names none.
std::optional<std::string> special_token(const JsonPart& config, std::string_view name);
/// Returns the token that `config` names, or where it says nothing of it (null says that there is
/// none) that which the class has by itself.
std::optional<std::string> special_token(const JsonPart& config, std::string_view class_name,
                                         std::string_view name);

/// Returns all special tokens that there are, as above.
NamedTokens named_tokens(const JsonPart& config, std::string_view class_name);

/// Returns the token that ends a document: the eos_token; of a tokenizer without one the sep_token,
/// which stands behind a text; else the first eos_token_id of config.json (`model`). One that is
/// named and that the tokenizer has not is none.
std::optional<TokenId> document_end(const JsonPart& config, const std::string& class_name,
                                    const JsonPart& model, const Tokenizer& tokenizer);

}  // namespace meshloom::text
