// SPDX-License-Identifier: Apache-2.0
// Tokens that come one by one, as text that ends on whole characters.
#pragma once

#include <cstdint>
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
  /// The text that became complete with this byte; U+FFFD for bytes that cannot be part of UTF-8.
  std::string append(unsigned char byte);
  /// What an unfinished character leaves at the end.
  std::string finish();

 private:
  std::string pending_;
  int missing_ = 0;  ///< continuation bytes that the pending character still needs
};

/// Of a model of bytes, or with a tokenizer, whose special tokens are left out; of others there is
/// no text.
class TokenText {
 public:
  /// The text ends before the first of `stops` (text::StopStrings).
  explicit TokenText(const train::PromptLimits& limits, std::vector<std::string> stops = {});

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
