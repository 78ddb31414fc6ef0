// SPDX-License-Identifier: Apache-2.0
// StreamDecoder: tokens that come one by one as text that ends on whole characters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/text/tokenizer.h"

namespace meshloom::text {

/// The texts of all add() and of finish() together are what Tokenizer::decode makes of all tokens,
/// unless their last bytes are no text and would change what was given out before.
class StreamDecoder {
 public:
  StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special);

  /// What is new in the text; empty while a character is not whole.
  std::string add(TokenId token);
  /// The rest: what was no whole character becomes U+FFFD.
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  /// The tokens since the text last ended on a whole character, and before them those of the time
  /// before: how a token is written depends on whether one is before it.
  std::vector<TokenId> window_;
  std::size_t pending_from_ = 0;  ///< where those since then begin
  std::string told_;              ///< of the window's text
};

}  // namespace meshloom::text
