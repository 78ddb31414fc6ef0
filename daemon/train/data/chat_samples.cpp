// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/chat_samples.h"

#include <algorithm>

#include "daemon/text/learned_tokens.h"
#include "daemon/train/data/sample_packing.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

constexpr std::int64_t kTokensAtOnce = 1 << 16;

/// Calls visit(position, token) for each token with the bits of conversations, until it returns
/// false.
template <typename Visit>
void for_each_token(const TokenStream& stream, std::int64_t begin, std::int64_t end,
                    Visit&& visit) {
  std::vector<std::int64_t> tokens;
  for (std::int64_t at = begin; at < end; at += kTokensAtOnce) {
    tokens.resize(static_cast<std::size_t>(std::min(kTokensAtOnce, end - at)));
    stream.read_chat(at, tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (!visit(at + static_cast<std::int64_t>(i), tokens[i])) return;
  }
}

}  // namespace

ChatScan::ChatScan(std::int64_t begin, std::int64_t seq_len) : most_(seq_len + 1), begin_(begin) {}

void ChatScan::add(std::int64_t position, std::int64_t token) {
  if ((token & text::kBeginsText) != 0) {
    close(position);
    learnt_ = 0;
  }
  // Nothing is before the first token that it could follow.
  const bool is_kept = position > begin_ && position - begin_ < most_;
  if (is_kept && (token & text::kNotLearnt) == 0) ++learnt_;
}

void ChatScan::close(std::int64_t end) {
  if (end == begin_) return;
  const std::int64_t kept = std::min(begin_ + most_, end);
  if (kept < end) {
    ++cuts_.cut;
    cuts_.dropped_tokens += end - kept;
  }
  if (learnt_ > 0)
    texts_.push_back({begin_, kept});
  else
    ++cuts_.left_out;
  begin_ = end;
}

std::vector<std::vector<std::int64_t>> ChatScan::packed() const {
  std::vector<std::int64_t> lengths;
  for (const ChatRange& text : texts_) lengths.push_back(text.end - text.begin - 1);
  return pack_texts(lengths, most_ - 1);
}

ChatSamples::ChatSamples(const TokenStream& stream, std::int64_t begin, std::int64_t end,
                         std::int64_t seq_len, bool packs) {
  ChatScan scan(begin, seq_len);
  for_each_token(stream, begin, end, [&](std::int64_t position, std::int64_t token) {
    scan.add(position, token);
    return true;
  });
  scan.close(end);
  cuts_ = scan.cuts();
  if (!packs) {
    texts_ = scan.texts();
    for (std::size_t i = 1; i <= texts_.size(); ++i) sample_begins_.push_back(i);
    return;
  }
  for (const auto& sample : scan.packed()) {
    for (const std::int64_t index : sample)
      texts_.push_back(scan.texts()[static_cast<std::size_t>(index)]);
    sample_begins_.push_back(texts_.size());
  }
}

std::span<const ChatRange> ChatSamples::texts_of(std::int64_t sample) const {
  check_internal(sample >= 0 && sample < size(), "data: sample {} is outside [0, {})", sample,
                 size());
  const std::size_t begin = sample_begins_[static_cast<std::size_t>(sample)];
  const std::size_t end = sample_begins_[static_cast<std::size_t>(sample) + 1];
  return std::span(texts_).subspan(begin, end - begin);
}

std::int64_t next_chat_begin(const TokenStream& stream, std::int64_t position) {
  std::int64_t found = stream.size();
  for_each_token(stream, position, stream.size(), [&](std::int64_t at, std::int64_t token) {
    if ((token & text::kBeginsText) == 0) return true;
    found = at;
    return false;
  });
  return found;
}

}  // namespace meshloom::train
