// SPDX-License-Identifier: Apache-2.0
// Tokens that come one by one, as text that ends on whole characters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "daemon/text/stop_strings.h"
#include "daemon/text/stream_decoder.h"
#include "daemon/train/sampling_params.h"

namespace meshloom::control {

/// Bytes that come one by one, as whole UTF-8 characters.
class ByteText {
 public:
  /// Before the first append(): the bytes that the others follow. Of a character that they begin
  /// and the others complete all is new; where it is broken off, its U+FFFD is the prompt's.
  void follow(std::span<const std::int64_t> prompt);
  /// The text that became complete with this byte; U+FFFD for bytes that cannot be part of UTF-8.
  std::string append(unsigned char byte);
  /// What an unfinished character leaves at the end.
  std::string finish();

 private:
  std::string pending_;
  int missing_ = 0;         ///< continuation bytes that the pending character still needs
  bool of_prompt_ = false;  ///< the pending character begins in the prompt
};

/// Of a model of bytes, or with a tokenizer, whose special tokens are left out; of others there is
/// no text.
class TokenText {
 public:
  /// Of tokens that follow those of `prompt`: what text there is of both beyond the prompt's. It
  /// ends before the first of `stops` (text::StopStrings).
  TokenText(const train::PromptLimits& limits, std::span<const std::int64_t> prompt,
            std::vector<std::string> stops = {});

  /// The text that became complete with this token.
  std::string add(std::int64_t token);
  /// What an unfinished character, or the beginning of a stop string, leaves at the end.
  std::string finish();
  /// A stop string has ended the text.
  bool stopped() const { return stops_.stopped(); }

 private:
  text::StopStrings stops_;
  std::variant<std::monostate, ByteText, text::StreamDecoder> decoder_;
};

}  // namespace meshloom::control
