// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/chat_inspection.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "daemon/base/utf8.h"
#include "daemon/text/learned_tokens.h"
#include "daemon/text/stream_decoder.h"

namespace meshloom::control {
namespace {

/// Of the sample's text: messages are limited.
constexpr std::size_t kMostChatBytes = std::size_t{1} << 20;

/// Tokens one by one as text, or as numbers.
class TokenWriter {
 public:
  explicit TokenWriter(const std::shared_ptr<const text::Tokenizer>& tokenizer) {
    if (tokenizer) decoder_.emplace(tokenizer, /*skip_special=*/false);
  }
  std::string add(text::TokenId token) {
    return decoder_ ? decoder_->add(token) : fmt::format("{} ", token);
  }
  std::string finish() { return decoder_ ? decoder_->finish() : std::string(); }

 private:
  std::optional<text::StreamDecoder> decoder_;
};

}  // namespace

ChatInspection::ChatInspection(std::int64_t seq_len) : seq_len_(seq_len), scan_(0, seq_len) {}

void ChatInspection::add(text::TokenId token) {
  scan_.add(position_++, token);
  conversations_ += (token & text::kBeginsText) != 0;
  if (conversations_ <= 1 && static_cast<std::int64_t>(first_.size()) <= seq_len_)
    first_.push_back(token);
}

void ChatInspection::tell(const std::shared_ptr<const text::Tokenizer>& tokenizer,
                          const text::StopCheck& alive, v1::DataInspection* message) {
  scan_.close(position_);
  v1::ChatData& chat = *message->mutable_chat();
  chat.set_conversations(conversations_);
  chat.set_cut(scan_.cuts().cut);
  chat.set_dropped_tokens(scan_.cuts().dropped_tokens);
  chat.set_left_out(scan_.cuts().left_out);
  message->set_samples(static_cast<std::int64_t>(scan_.packed().size()));
  message->set_sample_tokens(static_cast<std::int64_t>(first_.size()));
  TokenWriter writer(tokenizer);
  std::string* text = nullptr;
  for (std::size_t i = 0; i < first_.size() && !message->sample_is_cut(); ++i) {
    const bool counts = i > 0 && (first_[i] & text::kNotLearnt) == 0;
    if (i == 0 || message->sample_parts().rbegin()->counts() != counts) {
      v1::SamplePart& part = *message->add_sample_parts();
      part.set_counts(counts);
      part.set_begins(i == 0);
      text = part.mutable_text();
      if (alive) alive();
    }
    const std::string more = writer.add(text::id_of(first_[i]));
    *text += more;
    *message->mutable_sample() += more;
    message->set_sample_is_cut(message->sample().size() > kMostChatBytes);
  }
  if (text != nullptr) {
    const std::string rest = writer.finish();
    *text += rest;
    *message->mutable_sample() += rest;
  }
}

}  // namespace meshloom::control
