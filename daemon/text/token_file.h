// SPDX-License-Identifier: Apache-2.0
// Token files: documents as tokens in llm.c's format, which training reads.
//
// A header of 256 int32 (20240801, 7, number of tokens, what they were made of, zeros), then the
// tokens as uint32, little endian. Tokens of conversations have the bits of learned_tokens.h, and
// the version kChatVersion, by which other programs do not take them for ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/input_file.h"
#include "daemon/base/published_file.h"
#include "daemon/text/document_encoder.h"
#include "daemon/text/tokenizer.h"
#include "kernels/base/error.h"

namespace meshloom::text {

/// The header's second word where tokens have the bits of conversations.
inline constexpr std::int32_t kChatVersion = 1007;

struct TokenFileOptions {
  EncodeOptions encode = {};
  /// Tokens in the file at most.
  std::int64_t most_tokens = std::numeric_limits<std::int32_t>::max();
  base::Existing existing = base::Existing::kReplace;  ///< of a file that is there in the end
};

/// The error says that what is tokenized has more tokens than its file may have.
class TooManyTokens : public ResourceExhausted {
 public:
  TooManyTokens(const std::string& message, Metadata metadata)
      : ResourceExhausted(message, "TOO_MANY_TOKENS", std::move(metadata)) {}
};

/// Returns what a file of tokens was made of, if it is one of write_token_file and its header says
/// so.
std::optional<TokenizeSummary> token_file_summary(const base::InputFile& file);

/// Returns how many tokens a file of at most so many bytes holds.
std::int64_t tokens_of_file(std::uint64_t bytes);

/// Writes the tokens of encode_documents to `out`: whole or not at all, and on disk when it
/// returns. Throws TooManyTokens if there are more tokens than most_tokens or than the header
/// can say (2^31 - 1), and as encode_documents and base::PublishedFile.
TokenizeSummary write_token_file(const std::vector<DocumentFile>& files, const Tokenizer& tokenizer,
                                 const TokenFileOptions& options, const std::filesystem::path& out);

/// TokenFile is a token file that write_token_file has written.
class TokenFile {
 public:
  /// Throws InvalidArgument for any other file.
  explicit TokenFile(const std::filesystem::path& path);

  std::int64_t size() const { return size_; }
  /// Tells whether its tokens have the bits of conversations.
  bool is_chat() const { return is_chat_; }
  /// Returns what it was made of, if its header says so.
  const std::optional<TokenizeSummary>& summary() const { return summary_; }
  /// Reads tokens [begin, begin + count), less where the file ends.
  std::vector<TokenId> read(std::int64_t begin, std::int64_t count) const;

 private:
  base::InputFile file_;
  std::int64_t size_ = 0;
  bool is_chat_ = false;
  std::optional<TokenizeSummary> summary_;
};

}  // namespace meshloom::text
