// SPDX-License-Identifier: Apache-2.0
// WordPiece: the longest token from the left, again and again (BERT); and whole words.
//
// Source: Wu et al., "Google's Neural Machine Translation System", 2016, section 4.1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/text/token_trie.h"
#include "daemon/text/vocabulary.h"

namespace meshloom::text {

struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string continuing_prefix = "##";  ///< of tokens that do not begin a word
  std::int64_t longest_word = 100;       ///< characters; a longer word is unknown
};

class WordPiece {
 public:
  WordPiece(Vocabulary vocabulary, const WordPieceOptions& options, Budget& budget);

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const WordPieceOptions& options() const { return options_; }
  /// Appends the tokens of `word`, valid UTF-8 and not empty; the unknown one if a part of it has
  /// none. Throws InvalidArgument if that is not in the vocabulary.
  void encode(std::string_view word, Budget& budget, std::vector<TokenId>& out) const;

 private:
  Vocabulary vocabulary_;
  WordPieceOptions options_;
  TokenTrie beginning_, continuing_;  ///< the latter without the prefix
};

/// A word is a token or unknown.
class WordLevel {
 public:
  WordLevel(Vocabulary vocabulary, std::string unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(std::move(unknown)) {}

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Appends the token of `word`, or the unknown one. It throws as WordPiece::encode does, but has
  /// no words to look through and so pays nothing.
  void encode(std::string_view word, std::vector<TokenId>& out) const;

 private:
  Vocabulary vocabulary_;
  std::string unknown_;
};

}  // namespace meshloom::text
