// SPDX-License-Identifier: Apache-2.0
// A tokenizer in Hugging Face's format whose token ids are the bytes of the text.
#pragma once

#include <cstdint>
#include <string>

namespace meshloom::train {

/// Tokens of a vocabulary whose ids are bytes.
inline constexpr std::int64_t kByteVocabulary = 256;

/// Returns tokenizer.json: byte-level BPE without merges, each byte's printable stand-in having the
/// byte as its id.
std::string byte_tokenizer_json();
/// Returns tokenizer_config.json.
std::string byte_tokenizer_config_json(std::int64_t max_length);

}  // namespace meshloom::train
