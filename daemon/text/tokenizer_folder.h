// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a Hugging Face folder, whatever files it has.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "daemon/text/tokenizer.h"

namespace meshloom::text {

/// Files that belong to a tokenizer and go along with its model; a folder has some of them.
std::span<const char* const> tokenizer_file_names();

struct FolderTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<TokenId> eos;  ///< the token that ends a document
  /// SHA-256 over the files that it was read from and the version of Unicode: tokens of one text
  /// are the same where this is.
  std::string identity;
};

/// Whether there is a tokenizer in the folder.
bool has_tokenizer(const std::filesystem::path& folder);

/// From tokenizer.json; else vocab.json and merges.txt (byte-level BPE of GPT-2 or Qwen 2); else
/// vocab.txt (BERT); else tokenizer.model (Llama). What the last three leave open is in
/// tokenizer_config.json. Throws NotFound (NO_TOKENIZER) if there is none of them, otherwise as
/// read_tokenizer and read_sentencepiece.
FolderTokenizer open_tokenizer(const std::filesystem::path& folder);

}  // namespace meshloom::text
