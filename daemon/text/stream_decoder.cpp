// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/stream_decoder.h"

#include <algorithm>
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
  while (count < prompt.size() && tokenizer_->decode(tail(), skip_special_).empty())
    count = std::min(prompt.size(), 2 * count);
  for (const TokenId token : tail()) add(token);
  std::string text = tokenizer_->decode(window_, skip_special_);
  if (text.size() > told_.size() && text.starts_with(told_)) prompt_text_ = std::move(text);
}

std::string StreamDecoder::add(TokenId token) {
  window_.push_back(token);
  const std::string text = tokenizer_->decode(window_, skip_special_);
  // A run of tokens that stand for bytes has one U+FFFD for each of them until it is whole.
  std::string_view sure = text;
  if (window_.size() - pending_from_ < kMostPending)
    while (sure.ends_with(kReplacement)) sure.remove_suffix(kReplacement.size());
  if (sure.size() == text.size() && !prompt_text_.empty()) {
    if (sure.starts_with(prompt_text_)) told_ = prompt_text_;
    prompt_text_.clear();
  }
  if (!sure.starts_with(told_)) {
    // What was told for bytes that made no character is another text by now and stays as it is.
    if (window_.size() - pending_from_ >= kMostPending) {
      told_ = text;
      pending_from_ = window_.size();
    }
    return "";
  }
  std::string fresh(sure.substr(told_.size()));
  told_ = sure;
  if (sure.size() < text.size()) return fresh;
  // Here a character ends. Tokens that were told before the last such place are not needed, unless
  // without them the others would be the first ones of a text.
  std::vector<TokenId> recent(window_.begin() + static_cast<std::ptrdiff_t>(pending_from_),
                              window_.end());
  std::string recent_text = tokenizer_->decode(recent, skip_special_);
  if (!recent_text.empty()) {
    window_ = std::move(recent);
    told_ = std::move(recent_text);
  } else {
    // Tokens that are left out wherever they stand would make the window grow for nothing. One that
    // is empty only as the first of a text shows when it comes twice.
    recent.insert(recent.end(), window_.begin() + static_cast<std::ptrdiff_t>(pending_from_),
                  window_.end());
    if (tokenizer_->decode(recent, skip_special_).empty()) window_.resize(pending_from_);
  }
  pending_from_ = window_.size();
  return fresh;
}

std::string StreamDecoder::finish() {
  const std::string text = tokenizer_->decode(window_, skip_special_);
  if (!prompt_text_.empty() && text.starts_with(prompt_text_)) told_ = std::move(prompt_text_);
  prompt_text_.clear();
  const std::vector<TokenId> pending(window_.begin() + static_cast<std::ptrdiff_t>(pending_from_),
                                     window_.end());
  std::string rest = text.starts_with(told_) ? text.substr(told_.size())
                                             : tokenizer_->decode(pending, skip_special_);
  window_.clear();
  told_.clear();
  pending_from_ = 0;
  return rest;
}

}  // namespace meshloom::text
