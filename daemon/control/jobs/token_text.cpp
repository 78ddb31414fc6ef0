// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/token_text.h"

#include <algorithm>
#include <utility>

#include "daemon/base/utf8.h"

namespace meshloom::control {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";
constexpr std::size_t kLongestBeginning = 3;  // bytes of a character that is not whole

}  // namespace

void ByteText::follow(std::span<const std::int64_t> prompt) {
  for (const std::int64_t byte : prompt.last(std::min(prompt.size(), kLongestBeginning)))
    append(static_cast<unsigned char>(byte));
  of_prompt_ = missing_ > 0;
}

std::string ByteText::append(unsigned char byte) {
  std::string out;
  if (missing_ > 0) {
    const bool continues =
        base::utf8_continues(static_cast<char>(byte)) &&
        (pending_.size() > 1 ||
         base::utf8_second_byte_fits(static_cast<unsigned char>(pending_[0]), byte));
    if (continues) {
      pending_ += static_cast<char>(byte);
      if (--missing_ > 0) return "";
      of_prompt_ = false;
      out.swap(pending_);
      return out;
    }
    out = finish();
  }
  missing_ = base::utf8_continuation_bytes(byte);
  if (missing_ == 0) return out + static_cast<char>(byte);
  if (missing_ < 0) {
    missing_ = 0;
    return out + kReplacement;
  }
  pending_ = static_cast<char>(byte);
  return out;
}

std::string ByteText::finish() {
  if (missing_ == 0) return "";
  missing_ = 0;
  pending_.clear();
  return std::exchange(of_prompt_, false) ? "" : kReplacement;
}

TokenText::TokenText(const train::PromptLimits& limits, std::span<const std::int64_t> prompt,
                     std::vector<std::string> stops)
    : stops_(std::move(stops)) {
  if (limits.tokenizer)
    decoder_.emplace<text::StreamDecoder>(limits.tokenizer, true).follow(prompt);
  else if (limits.is_bytes())
    decoder_.emplace<ByteText>().follow(prompt);
}

std::string TokenText::add(std::int64_t token) {
  std::string decoded;
  if (auto* bytes = std::get_if<ByteText>(&decoder_))
    decoded = bytes->append(static_cast<unsigned char>(token));
  else if (auto* stream = std::get_if<text::StreamDecoder>(&decoder_))
    decoded = stream->add(static_cast<text::TokenId>(token));
  return stops_.add(decoded);
}

std::string TokenText::finish() {
  std::string rest;
  if (auto* bytes = std::get_if<ByteText>(&decoder_))
    rest = bytes->finish();
  else if (auto* stream = std::get_if<text::StreamDecoder>(&decoder_))
    rest = stream->finish();
  const std::string last = stops_.add(rest);
  return last + stops_.finish();
}

}  // namespace meshloom::control
