// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/token_text.h"

#include <utility>

namespace meshloom::control {

TokenText::TokenText(const train::PromptLimits& limits, std::vector<std::string> stops)
    : stops_(std::move(stops)) {
  if (limits.tokenizer)
    decoder_.emplace<text::StreamDecoder>(limits.tokenizer, true);
  else if (limits.is_bytes())
    decoder_.emplace<ByteText>();
}

std::string TokenText::add(std::int64_t token) { return stops_.add(decode(token)); }

std::string TokenText::finish() {
  const std::string last = stops_.add(rest());
  return last + stops_.finish();
}

std::string TokenText::decode(std::int64_t token) {
  if (auto* bytes = std::get_if<ByteText>(&decoder_))
    return bytes->append(static_cast<unsigned char>(token));
  if (auto* stream = std::get_if<text::StreamDecoder>(&decoder_))
    return stream->add(static_cast<text::TokenId>(token));
  return {};
}

std::string TokenText::rest() {
  if (auto* bytes = std::get_if<ByteText>(&decoder_)) return bytes->finish();
  if (auto* stream = std::get_if<text::StreamDecoder>(&decoder_)) return stream->finish();
  return {};
}

}  // namespace meshloom::control
