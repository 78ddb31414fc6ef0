// SPDX-License-Identifier: Apache-2.0
// A trained tokenizer as the files of a Hugging Face folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/published_file.h"
#include "daemon/text/bpe_trainer.h"

namespace meshloom::text {

/// Returns what a tokenizer.json of it holds: GPT-2's pattern, bytes in its alphabet, nothing
/// around a text. The first `special` tokens are special ones, found in texts.
std::string tokenizer_json_text(const TrainedBpe& trained, std::size_t special);

/// Returns the tokenizer_config.json beside it. The first special token ends documents (eos_token);
/// others that are called as is usual ([PAD], [MASK], <pad> and the like) have that part.
std::string tokenizer_config_text(const std::vector<std::string>& special);

/// TokenizerOutput is a folder that is to have a tokenizer: all of its files or none.
class TokenizerOutput {
 public:
  /// Makes the folder where it is not there; the one that it is to lie in has to be. Throws
  /// AlreadyExists (TOKENIZER_EXISTS) naming the file of a tokenizer that is in it, and as
  /// base::PublishedFile: before anything is trained.
  explicit TokenizerOutput(std::filesystem::path folder);
  /// Without commit() everything is as it was.
  ~TokenizerOutput();
  TokenizerOutput(const TokenizerOutput&) = delete;
  TokenizerOutput& operator=(const TokenizerOutput&) = delete;

  /// Throws AlreadyExists for a file that has come meanwhile, and as base::PublishedFile.
  void commit(const TrainedBpe& trained, const std::vector<std::string>& special);

 private:
  std::filesystem::path folder_;
  bool is_new_ = false;  ///< the folder
  std::optional<base::PublishedFile> tokenizer_, config_;
  bool is_done_ = false;
};

}  // namespace meshloom::text
