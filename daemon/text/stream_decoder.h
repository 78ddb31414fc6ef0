// SPDX-License-Identifier: Apache-2.0
// StreamDecoder: tokens that come one by one as text that ends on whole characters.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/text/tokenizer.h"

namespace meshloom::text {

/// The texts of all add() and of finish() together are what Tokenizer::decode makes of all tokens,
/// unless their last bytes are no text and would change what was given out before. Behind a prompt
/// they are what the text of prompt and tokens has beyond that of the prompt: how a token is
/// written, with a blank in front or without one, depends on whether it is the first of a text.
class StreamDecoder {
 public:
  /// All methods throw as Budget::spend, of a budget for all of them.
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special);

  /// Is called before the first add(): the tokens that the others follow. Of a character that they
  /// begin and the others complete all is new.
  void follow(std::span<const std::int64_t> prompt);
  /// Returns what is new in the text; empty while a character is not whole.
  std::string add(TokenId token);
  /// Returns the rest: what was no whole character becomes U+FFFD.
  std::string finish();

 private:
  /// Tells whether the pending tokens, which have no text by themselves, may be forgotten: `text`
  /// with them is what it was before, and they are not what makes others not the first of a text.
  bool is_left_out(std::vector<TokenId> recent, const std::string& text);
  /// Takes a text that is sure; what of it is the prompt's counts as told.
  void take_prompt_text(std::string_view text);

  std::string decoded(std::span<const TokenId> tokens) {
    return tokenizer_->decode(tokens, skip_special_, budget_);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  Budget budget_;
  bool skip_special_;
  /// The tokens since the text last ended on a whole character, and before them those of the time
  /// before: how a token is written depends on whether one is before it.
  std::vector<TokenId> window_;
  std::size_t pending_from_ = 0;    ///< where those since then begin
  std::string emitted_;             ///< of the window's text
  std::size_t emitted_before_ = 0;  ///< how much of that the tokens before those have
  /// The window's text with a prompt that ends in bytes that were no whole character; empty
  /// otherwise, and once it is known whether they have become one.
  std::string prompt_text_;
};

}  // namespace meshloom::text
