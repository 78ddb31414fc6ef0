// SPDX-License-Identifier: Apache-2.0
// Unigram: the most probable way to cut a text into tokens.
//
// Source: Kudo, "Subword Regularization", 2018; the path by the Viterbi algorithm.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/text/token_trie.h"
#include "daemon/text/vocabulary.h"

namespace meshloom::text {

/// The struct says how the tokens of a text are looked for.
struct UnigramSearch {
  std::vector<bool> hidden = {};  ///< tokens that no text has, by id; empty: none
  bool single_precision = false;  ///< scores are added up in float32, as sentencepiece does
};

class Unigram {
 public:
  /// Tokens with their log-probabilities, by id. A character without a token is `unknown`; unknown
  /// ones in a row are one token, or their bytes' tokens with `byte_fallback`.
  Unigram(const std::vector<std::pair<std::string, double>>& tokens, std::optional<TokenId> unknown,
          bool byte_fallback, Budget& budget, const UnigramSearch& search = {});

  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Appends the tokens of `text`, valid UTF-8 and not empty. Throws InvalidArgument for an unknown
  /// character if there is no unknown token.
  void encode(std::string_view text, Budget& budget, std::vector<TokenId>& out) const;

 private:
  /// Step is the best path to a position: the score, and its last token.
  struct Step {
    double score = 0;
    std::uint32_t begin = 0;
    TokenId token = kNoToken;
  };
  static constexpr TokenId kNoToken = -1, kUnknown = -2;

  std::vector<Step> best_steps(std::string_view text, Budget& budget) const;

  Vocabulary vocabulary_;
  std::optional<TokenTrie> tokens_;  ///< those that are not hidden
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::optional<TokenId> unknown_;
  std::array<TokenId, 256> byte_tokens_;
  bool byte_fallback_;
  UnigramSearch search_;
};

}  // namespace meshloom::text
