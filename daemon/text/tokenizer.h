// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to the tokens of a model and back.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/text/bpe.h"
#include "daemon/text/budget.h"
#include "daemon/text/text_cuts.h"
#include "daemon/text/vocabulary.h"

namespace meshloom::text {

/// Template holds the special tokens around the tokens of one text.
struct Template {
  std::vector<TokenId> before = {}, after = {};
};

/// It is const after it was made, and may be used by several threads at once, each with a cache and
/// a budget of its own. Both the tokenizer and the text may be such that a budget does not suffice:
/// encode and decode throw as Budget::spend then.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the tokens of `bytes`. What is no UTF-8 in them counts as U+FFFD (valid_utf8). The
  /// template's tokens ([CLS], bos, eos, ...) stand around them if `with_template`; special tokens
  /// that the text spells out are those tokens in any case.
  virtual void encode(std::string_view bytes, bool with_template, WordCache& cache, Budget& budget,
                      std::vector<TokenId>& out) const = 0;
  /// Returns the text of tokens, for the texts of which it allows the budget more. Ids that the
  /// vocabulary has not are left out, special tokens too if `skip_special`. Bytes that make no
  /// character become U+FFFD.
  virtual std::string decode(std::span<const TokenId> tokens, bool skip_special,
                             Budget& budget) const = 0;

  /// Returns the tokens that encode puts around a text with the template.
  virtual Template around() const { return {}; }
  /// Returns where a text that is encoded without the template may be divided.
  virtual TextCuts cuts() const { return {}; }
  /// Tells whether what is no UTF-8 is encoded as it is.
  virtual bool reads_any_bytes() const { return false; }

  /// Returns, by id, the bytes of a text that a token stands for, 0 for special ones. Empty where
  /// tokens have none of their own, since the tokenizer changes its text.
  virtual std::vector<std::uint32_t> token_bytes() const { return {}; }

  /// Returns one more than the largest id.
  virtual TokenId end() const = 0;
  virtual std::optional<TokenId> find(std::string_view token) const = 0;

  /// Encodes with a budget for the text.
  void encode(std::string_view bytes, bool with_template, WordCache& cache,
              std::vector<TokenId>& out) const {
    Budget budget = Budget::of_text(bytes.size());
    encode(bytes, with_template, cache, budget, out);
  }
  /// Encodes with a cache that ends with the call, and a budget for the text: for a prompt.
  std::vector<TokenId> encode(std::string_view bytes, bool with_template,
                              const StopCheck& stop = {}) const {
    WordCache cache;
    std::vector<TokenId> out;
    Budget budget = Budget::of_text(bytes.size(), stop);
    encode(bytes, with_template, cache, budget, out);
    return out;
  }
  /// Decodes with what the texts of the tokens may take, which decode() itself allows.
  std::string decode(std::span<const TokenId> tokens, bool skip_special) const {
    Budget budget;
    return decode(tokens, skip_special, budget);
  }
};

}  // namespace meshloom::text
