// SPDX-License-Identifier: Apache-2.0
// Token files: documents as tokens in llm.c's format, which training reads.
//
// A header of 256 int32 (20240801, 7, number of tokens, zeros), then the tokens as uint32, little
// endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/input_file.h"
#include "daemon/text/document_files.h"
#include "daemon/text/tokenizer.h"

namespace meshloom::text {

struct TokenizeOptions {
  std::string field = "text";                 ///< of JSON lines
  std::optional<TokenId> end = std::nullopt;  ///< follows every document
  int threads = 1;
  /// Tokens in the file at most.
  std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();
  /// Called now and then by the caller's thread with the bytes of text so far; what it throws ends
  /// the writing. Empty: never.
  std::function<void(std::uint64_t bytes)> progress = nullptr;
};

struct TokenizeSummary {
  std::int64_t files = 0, documents = 0, tokens = 0;
  std::uint64_t bytes = 0;  ///< of text
};

/// How many tokens a file of at most so many bytes holds.
std::int64_t tokens_of_file(std::uint64_t bytes);

/// Writes the tokens of all documents, in order and without templates, to `out`: whole or not at
/// all, and on disk when it returns. The same whatever the number of threads. Throws
/// ResourceExhausted if there are more tokens than most_tokens or than the header can say (2^31 -
/// 1), and as for_each_document.
TokenizeSummary write_token_file(const std::vector<DocumentFile>& files, const Tokenizer& tokenizer,
                                 const TokenizeOptions& options, const std::filesystem::path& out);

/// A token file that write_token_file has written.
class TokenFile {
 public:
  /// Throws InvalidArgument for any other file.
  explicit TokenFile(const std::filesystem::path& path);

  std::int64_t size() const { return size_; }
  /// Tokens [begin, begin + count), less where the file ends.
  std::vector<TokenId> read(std::int64_t begin, std::int64_t count) const;

 private:
  base::InputFile file_;
  std::int64_t size_ = 0;
};

}  // namespace meshloom::text
