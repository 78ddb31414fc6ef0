// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a Hugging Face folder, whatever files it has.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/disk.h"
#include "daemon/text/special_tokens.h"
#include "daemon/text/tokenizer.h"

namespace meshloom::text {

/// Returns the files that go along with a model: those of its folder's tokenizer, or of another
/// folder's if that is given, and its generation_config.json. Either folder may be empty.
std::vector<std::filesystem::path> carried_files(const std::filesystem::path& model,
                                                 const std::filesystem::path& tokenizer = {},
                                                 base::Disk& disk = base::own_disk());

struct FolderTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<TokenId> eos;  ///< the token that ends a document
  /// SHA-256 over the files that it was read from, the version of Unicode, and what other files
  /// change in its tokens: those of one text are the same where this is. What they say of the eos
  /// does not count.
  std::string identity;
  std::optional<TokenId> mask = {};   ///< what hides a token (mask_token)
  std::vector<TokenId> special = {};  ///< all that are named as special, by id
  NamedTokens named = {};             ///< its special tokens, which a chat template may speak of
};

/// Returns the files that open_tokenizer reads, best first: "vocab.json, merges.txt" are two that
/// belong together.
std::vector<std::string> tokenizer_kinds();

/// Tells whether there is a tokenizer in the folder.
bool has_tokenizer(const std::filesystem::path& folder);

/// Opens the tokenizer of a folder, from tokenizer.json; else vocab.json and merges.txt (byte-level
/// BPE of GPT-2 or Qwen 2); else vocab.txt (BERT); else tokenizer.model (Llama). What the last
/// three leave open, and which tokens are special, is in tokenizer_config.json,
/// special_tokens_map.json and config.json, in the order that special_tokens.h says, and of
/// vocabularies in added_tokens.json. Throws NotFound (NO_TOKENIZER) if there is none of them,
/// ResourceExhausted (TOKENIZER_LIMIT) naming the part of one that is larger than any of use or
/// takes more than its files may (Budget), otherwise as read_tokenizer and read_sentencepiece, and
/// what `stop` throws.
FolderTokenizer open_tokenizer(const std::filesystem::path& folder, const StopCheck& stop = {});

}  // namespace meshloom::text
