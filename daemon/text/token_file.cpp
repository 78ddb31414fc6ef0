// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>

#include "daemon/base/published_file.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

namespace fs = std::filesystem;

using Header = std::array<std::int32_t, 256>;
constexpr std::int32_t kMagic = 20240801, kVersion = 7;
constexpr std::int64_t kMostInFile = std::numeric_limits<std::int32_t>::max();
// Words of the header behind llm.c's own, which are not read there.
constexpr std::size_t kSummaryWord = 4;
constexpr std::int32_t kHasSummary = 1;

/// Files, documents, bytes, replaced documents, skipped lines, and of conversations learnt tokens
/// and last answers alone. Files that were written before there were such have 0 there.
using SummaryNumbers = std::array<std::int64_t, 7>;

class TokenWriter {
 public:
  TokenWriter(const fs::path& path, std::int64_t most_tokens)
      : path_(path), most_(std::min(most_tokens, kMostInFile)), file_(path) {
    const Header header{};
    file_.write(std::as_bytes(std::span(header)));
  }

  void write(const std::vector<TokenId>& tokens) {
    tokens_ += static_cast<std::int64_t>(tokens.size());
    if (tokens_ > most_)
      throw TooManyTokens(
          fmt::format("{}: more than {} tokens do not fit in one file: give fewer files at once",
                      path_.string(), most_),
          {{"path", path_.string()}});
    file_.write(std::as_bytes(std::span(tokens)));
  }

  void commit(const TokenizeSummary& summary, bool is_chat, base::Existing existing) {
    Header header{kMagic, is_chat ? kChatVersion : kVersion, static_cast<std::int32_t>(tokens_)};
    header[kSummaryWord] = kHasSummary;
    const SummaryNumbers numbers = {summary.files,
                                    summary.documents,
                                    static_cast<std::int64_t>(summary.bytes),
                                    summary.replaced_documents,
                                    summary.skipped_lines,
                                    summary.learnt_tokens,
                                    summary.last_answers_alone};
    std::memcpy(&header[kSummaryWord + 2], numbers.data(), sizeof(numbers));
    file_.write_at({reinterpret_cast<const char*>(header.data()), sizeof(header)}, 0);
    file_.commit(existing);
  }

 private:
  const fs::path path_;
  const std::int64_t most_;
  base::PublishedFile file_;
  std::int64_t tokens_ = 0;
};

std::optional<TokenizeSummary> summary_of(const Header& header) {
  if (header[kSummaryWord] != kHasSummary) return std::nullopt;
  SummaryNumbers numbers{};
  std::memcpy(numbers.data(), &header[kSummaryWord + 2], sizeof(numbers));
  return TokenizeSummary{numbers[0], numbers[1], header[2],  static_cast<std::uint64_t>(numbers[2]),
                         numbers[3], numbers[4], numbers[5], numbers[6]};
}

}  // namespace

std::optional<TokenizeSummary> token_file_summary(const base::InputFile& file) {
  Header header{};
  if (file.size() < sizeof(header)) return std::nullopt;
  file.read(0, std::as_writable_bytes(std::span(header)));
  if (header[0] != kMagic || (header[1] != kVersion && header[1] != kChatVersion))
    return std::nullopt;
  return summary_of(header);
}

std::int64_t tokens_of_file(std::uint64_t bytes) {
  if (bytes <= sizeof(Header)) return 0;
  return static_cast<std::int64_t>((bytes - sizeof(Header)) / sizeof(TokenId));
}

TokenizeSummary write_token_file(const std::vector<DocumentFile>& files, const Tokenizer& tokenizer,
                                 const TokenFileOptions& options, const fs::path& out) {
  TokenWriter writer(out, options.most_tokens);
  const TokenizeSummary summary =
      encode_documents(files, tokenizer, options.encode,
                       [&](const std::vector<TokenId>& tokens) { writer.write(tokens); });
  writer.commit(summary, options.encode.chat.has_value(), options.existing);
  return summary;
}

TokenFile::TokenFile(const fs::path& path) : file_(path) {
  Header header{};
  if (file_.size() >= sizeof(header)) file_.read(0, std::as_writable_bytes(std::span(header)));
  is_chat_ = header[1] == kChatVersion;
  const bool is_one = header[0] == kMagic && (header[1] == kVersion || is_chat_) &&
                      header[2] >= 0 &&
                      file_.size() == sizeof(header) + sizeof(TokenId) * std::uint64_t(header[2]);
  check(is_one, "{} is no file of uint32 tokens as \"data tokenize\" writes them", path.string());
  size_ = header[2];
  summary_ = summary_of(header);
}

std::vector<TokenId> TokenFile::read(std::int64_t begin, std::int64_t count) const {
  std::vector<TokenId> tokens(
      static_cast<std::size_t>(std::clamp<std::int64_t>(size_ - begin, 0, count)));
  file_.read(sizeof(Header) + sizeof(TokenId) * static_cast<std::uint64_t>(begin),
             std::as_writable_bytes(std::span(tokens)));
  return tokens;
}

}  // namespace meshloom::text
