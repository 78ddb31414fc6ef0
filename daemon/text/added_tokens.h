// SPDX-License-Identifier: Apache-2.0
// AddedTokens: tokens that are found in the text itself, before anything is split.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "daemon/text/normalizer.h"
#include "daemon/text/vocabulary.h"

namespace meshloom::text {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool single_word = false;  ///< not beside a letter, digit or the like
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space after it
  bool normalized = true;    ///< looked for in the normalised text, in its normalised form
  bool special = false;      ///< left out when decoding without special tokens
};

/// Returns the added tokens of a file with the ids that the `tokenizers` package gives them,
/// whatever ids the file says: that of the vocabulary where it has the text, else `first_new` and
/// the next ones in the order of the file. Without those that have no text; of several with one
/// text, or with one id in the end, the last one counts, which stays special where one of the same
/// text was.
std::vector<AddedToken> with_ids(const std::vector<AddedToken>& given, const Vocabulary& vocabulary,
                                 TokenId first_new);

/// TokenFinder finds texts that are looked for together: the first place where one begins, and
/// there the longest.
class TokenFinder {
 public:
  /// `tokens` outlive it; texts[i] stands for tokens[i]. Of equal texts the first counts.
  TokenFinder(const std::vector<const AddedToken*>& tokens, const std::vector<std::string>& texts,
              Budget& budget);

  /// Calls token(added) and rest(text) for the parts of `text` in order.
  void split(std::string_view text, Budget& budget,
             const std::function<void(const AddedToken&)>& token,
             const std::function<void(std::string_view)>& rest) const;

 private:
  struct Match {
    std::size_t begin, end;
    const AddedToken* token;
  };
  bool find(std::string_view text, std::size_t from, Budget& budget, Match& match) const;

  std::unordered_map<std::uint64_t, std::uint32_t> children_;  ///< by node << 8 | byte
  std::vector<const AddedToken*> tokens_;                      ///< by node; null: only a prefix
  bool begins_[256] = {};
};

class AddedTokens {
 public:
  /// Tokens in the order of the file; those that are normalised are so by `normalizer`.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer, Budget& budget);
  AddedTokens(AddedTokens&&) = default;

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const TokenFinder& in_raw_text() const { return raw_; }
  const TokenFinder& in_normalized_text() const { return normalized_; }

 private:
  TokenFinder finder(bool normalized, const Normalizer& normalizer, Budget& budget) const;

  std::vector<AddedToken> tokens_;  ///< never changes: the finders point into it
  TokenFinder raw_, normalized_;
};

}  // namespace meshloom::text
