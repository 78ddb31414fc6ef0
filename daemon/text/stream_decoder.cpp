// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/stream_decoder.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace meshloom::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
/// Tokens that are waited for the rest of a character; then they are told as they are.
constexpr std::size_t kMostPending = 64;

}  // namespace

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

void StreamDecoder::follow(std::span<const std::int64_t> prompt) {
  // What is further back changes nothing, unless all that is behind it is left out of the text.
  std::size_t count = std::min(prompt.size(), 2 * kMostPending);
  const auto tail = [&] {
    const auto last = prompt.last(count);
    return std::vector<TokenId>(last.begin(), last.end());
  };
  while (count < prompt.size() && decoded(tail()).empty())
    count = std::min(prompt.size(), 2 * count);
  // Bytes in a row are one text: from inside of a character on they would be none.
  for (int more = 0; more < 3 && count < prompt.size(); ++more)
    if (decoded(tail()).starts_with(kReplacement)) ++count;
  for (const TokenId token : tail()) add(token);
  std::string text = decoded(window_);
  if (text.size() > emitted_.size() && text.starts_with(emitted_)) prompt_text_ = std::move(text);
}

std::string StreamDecoder::add(TokenId token) {
  window_.push_back(token);
  const std::string text = decoded(window_);
  // A run of tokens that stand for bytes has one U+FFFD for each of them until it is whole.
  std::string_view sure = text;
  if (window_.size() - pending_from_ < kMostPending)
    while (sure.ends_with(kReplacement)) sure.remove_suffix(kReplacement.size());
  if (sure.size() > emitted_.size()) take_prompt_text(sure);
  if (!sure.starts_with(emitted_)) {
    // What was told for bytes that made no character is another text by now and stays as it is.
    if (window_.size() - pending_from_ >= kMostPending) {
      emitted_ = text;
      pending_from_ = window_.size();
      emitted_before_ = emitted_.size();
    }
    return "";
  }
  std::string fresh(sure.substr(emitted_.size()));
  emitted_ = sure;
  if (sure.size() < text.size()) return fresh;
  // Here a character ends. Tokens that were told before the last such place are not needed, unless
  // without them the others would be the first ones of a text.
  std::vector<TokenId> recent(window_.begin() + static_cast<std::ptrdiff_t>(pending_from_),
                              window_.end());
  std::string recent_text = decoded(recent);
  if (!recent_text.empty()) {
    window_ = std::move(recent);
    emitted_ = std::move(recent_text);
  } else if (is_left_out(recent, text)) {
    window_.resize(pending_from_);
  }
  pending_from_ = window_.size();
  emitted_before_ = emitted_.size();
  return fresh;
}

bool StreamDecoder::is_left_out(std::vector<TokenId> recent, const std::string& text) {
  if (emitted_before_ > 0) return text.size() == emitted_before_;
  // One that is empty only as the first of a text shows when it comes twice.
  const std::size_t size = recent.size();
  recent.reserve(2 * size);
  std::copy_n(recent.begin(), size, std::back_inserter(recent));
  return decoded(recent).empty();
}

void StreamDecoder::take_prompt_text(std::string_view text) {
  // Some of the bytes that were no characters may be some by now.
  while (prompt_text_.size() > emitted_.size() && !text.starts_with(prompt_text_))
    prompt_text_.resize(prompt_text_.size() - kReplacement.size());
  if (prompt_text_.size() > emitted_.size()) emitted_ = prompt_text_;
  prompt_text_.clear();
}

std::string StreamDecoder::finish() {
  const std::string text = decoded(window_);
  take_prompt_text(text);
  const std::vector<TokenId> pending(window_.begin() + static_cast<std::ptrdiff_t>(pending_from_),
                                     window_.end());
  std::string rest = text.starts_with(emitted_) ? text.substr(emitted_.size()) : decoded(pending);
  window_.clear();
  emitted_.clear();
  pending_from_ = emitted_before_ = 0;
  return rest;
}

}  // namespace meshloom::text
