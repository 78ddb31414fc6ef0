// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/word_piece.h"

#include <algorithm>

#include "daemon/base/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {

WordPiece::WordPiece(Vocabulary vocabulary, const WordPieceOptions& options)
    : vocabulary_(std::move(vocabulary)), options_(options) {
  for (TokenId id = 0; id < vocabulary_.end(); ++id)
    if (const std::string* token = vocabulary_.token(id))
      longest_token_ = std::max(longest_token_, token->size());
}

void WordPiece::encode(std::string_view word, std::vector<TokenId>& out) const {
  const auto characters = static_cast<std::int64_t>(word.size()) -
                          std::count_if(word.begin(), word.end(), base::utf8_continues);
  const std::size_t before = out.size();
  bool is_known = characters <= options_.longest_word;
  std::string token;
  for (std::size_t begin = 0; is_known && begin < word.size();) {
    token = begin > 0 ? options_.continuing_prefix : "";
    const std::size_t prefix = token.size();
    token += word.substr(begin, longest_token_);
    std::optional<TokenId> id;
    while (token.size() > prefix) {
      const std::size_t end = begin + token.size() - prefix;
      const bool is_whole = end == word.size() || !base::utf8_continues(word[end]);
      if (is_whole && (id = vocabulary_.find(token))) break;
      token.pop_back();
    }
    is_known = id.has_value();
    if (is_known) out.push_back(*id);
    begin += token.size() - prefix;
  }
  if (is_known) return;
  out.resize(before);
  const auto unknown = vocabulary_.find(options_.unknown);
  check(unknown.has_value(), "the token of unknown words, \"{}\", is not in the vocabulary",
        options_.unknown);
  out.push_back(*unknown);
}

void WordLevel::encode(std::string_view word, std::vector<TokenId>& out) const {
  auto id = vocabulary_.find(word);
  if (!id) id = vocabulary_.find(unknown_);
  check(id.has_value(), "the token of unknown words, \"{}\", is not in the vocabulary", unknown_);
  out.push_back(*id);
}

}  // namespace meshloom::text
