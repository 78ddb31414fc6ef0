// SPDX-License-Identifier: Apache-2.0
// ByteText and TokenText: they make tokens that come one by one into text that ends on whole
// characters.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "daemon/text/stop_strings.h"
#include "daemon/text/stream_decoder.h"
#include "daemon/train/config/sampling_params.h"

namespace meshloom::control {

/// It makes bytes that come one by one into whole UTF-8 characters. Used by one thread.
class ByteText {
 public:
  /// Tells the bytes that all others follow, before the first append(). A character that they begin
  /// and the others complete is new as a whole; where it is broken off, its U+FFFD is the prompt's.
  void follow(std::span<const std::int64_t> prompt);
  /// Returns the text that became complete with this byte; U+FFFD stands for bytes that cannot be
  /// part of UTF-8.
  std::string append(unsigned char byte);
  /// Returns what an unfinished character leaves at the end.
  std::string finish();

 private:
  std::string pending_;
  int missing_ = 0;         ///< continuation bytes that the pending character still needs
  bool of_prompt_ = false;  ///< the pending character begins in the prompt
};

/// It makes tokens that come one by one into text: those of a model of bytes, and those of a model
/// with a tokenizer, whose special tokens are left out. The tokens of other models have no text.
/// Used by one thread.
class TokenText {
 public:
  /// The tokens follow those of `prompt`: their text is what there is of both beyond the prompt's.
  /// It ends before the first of `stops` (text::StopStrings).
  TokenText(const train::PromptLimits& limits, std::span<const std::int64_t> prompt,
            std::vector<std::string> stops = {});

  /// Returns the text that became complete with this token.
  std::string add(std::int64_t token);
  /// Returns what an unfinished character, or the beginning of a stop string, leaves at the end.
  std::string finish();
  /// Whether a stop string has ended the text.
  bool stopped() const { return stops_.stopped(); }

 private:
  text::StopStrings stops_;
  std::variant<std::monostate, ByteText, text::StreamDecoder> decoder_;
};

}  // namespace meshloom::control
