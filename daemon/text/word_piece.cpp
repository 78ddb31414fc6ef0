// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/word_piece.h"

#include <algorithm>

#include "daemon/base/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {

namespace {

/// The tokens that begin with `prefix`, without it. The texts are the vocabulary's.
TokenTrie tokens_behind(const std::string& prefix, const Vocabulary& vocabulary, Budget& budget) {
  std::vector<std::pair<std::string_view, TokenId>> tokens;
  vocabulary.for_each([&](std::string_view text, TokenId id) {
    if (text.starts_with(prefix)) tokens.emplace_back(text.substr(prefix.size()), id);
  });
  return {std::move(tokens), budget};
}

}  // namespace

WordPiece::WordPiece(Vocabulary vocabulary, const WordPieceOptions& options, Budget& budget)
    : vocabulary_(std::move(vocabulary)),
      options_(options),
      beginning_(tokens_behind("", vocabulary_, budget)),
      continuing_(tokens_behind(options.continuing_prefix, vocabulary_, budget)) {}

void WordPiece::encode(std::string_view word, Budget& budget, std::vector<TokenId>& out) const {
  const auto characters = static_cast<std::int64_t>(word.size()) -
                          std::count_if(word.begin(), word.end(), base::utf8_continues);
  const std::size_t before = out.size();
  bool is_known = characters <= options_.longest_word;
  for (std::size_t begin = 0; is_known && begin < word.size();) {
    std::size_t longest = 0;
    TokenId token = 0;
    // Tokens are whole characters: where one ends a character of the word does.
    const TokenTrie& trie = begin > 0 ? continuing_ : beginning_;
    trie.for_each_beginning(word.substr(begin), budget, [&](std::size_t length, TokenId id) {
      longest = length;
      token = id;
    });
    is_known = longest > 0;
    if (is_known) out.push_back(token);
    begin += longest;
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
