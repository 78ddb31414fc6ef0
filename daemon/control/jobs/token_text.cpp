// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/token_text.h"

namespace meshloom::control {

TokenText::TokenText(const train::PromptLimits& limits) {
  if (limits.tokenizer)
    decoder_.emplace<text::StreamDecoder>(limits.tokenizer, true);
  else if (limits.is_bytes())
    decoder_.emplace<ByteText>();
}

std::string TokenText::add(std::int64_t token) {
  if (auto* bytes = std::get_if<ByteText>(&decoder_))
    return bytes->append(static_cast<unsigned char>(token));
  if (auto* stream = std::get_if<text::StreamDecoder>(&decoder_))
    return stream->add(static_cast<text::TokenId>(token));
  return {};
}

std::string TokenText::finish() {
  if (auto* bytes = std::get_if<ByteText>(&decoder_)) return bytes->finish();
  if (auto* stream = std::get_if<text::StreamDecoder>(&decoder_)) return stream->finish();
  return {};
}

}  // namespace meshloom::control
