// SPDX-License-Identifier: Apache-2.0
// ChatSamples: the conversations of a token stream as samples, of which some tokens are learnt.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daemon/train/files/token_stream.h"

namespace meshloom::train {

/// These count what became of conversations that do not fit, or have nothing to be learnt.
struct ChatCuts {
  std::int64_t cut = 0;             ///< longer than a sample: they end where it does
  std::int64_t dropped_tokens = 0;  ///< of those, behind the cut
  std::int64_t left_out = 0;        ///< no token of what is left is learnt

  bool operator==(const ChatCuts&) const = default;
};

/// The range is what is left of a conversation, in positions of the stream.
struct ChatRange {
  std::int64_t begin = 0, end = 0;
};

/// Takes the tokens of conversations one by one, and keeps of each what a sample holds.
class ChatScan {
 public:
  /// The first token is at `begin`.
  ChatScan(std::int64_t begin, std::int64_t seq_len);

  /// Takes tokens with the bits of text/learned_tokens.h. The first token of a conversation is
  /// never learnt, also where its bit is missing.
  void add(std::int64_t position, std::int64_t token);
  /// Ends the scan behind the last token.
  void close(std::int64_t end);

  /// Returns the texts with a token to learn, in order; cuts() tells what became of the others.
  const std::vector<ChatRange>& texts() const { return texts_; }
  const ChatCuts& cuts() const { return cuts_; }
  /// Returns which of them each sample has, packed whole (pack_texts).
  std::vector<std::vector<std::int64_t>> packed() const;

 private:
  const std::int64_t most_;  ///< tokens of a sample, with the last one's label
  std::int64_t begin_, learnt_ = 0;
  std::vector<ChatRange> texts_;
  ChatCuts cuts_;
};

/// A conversation of n tokens takes n - 1 positions: each of its tokens but the last is followed by
/// one that may be learnt. So none is at the border of two.
class ChatSamples {
 public:
  /// Searches the tokens [begin, end) of the stream once, which begin with a conversation.
  /// `packs`: samples hold as many whole conversations as they have room for (pack_texts), else one
  /// each.
  ChatSamples(const TokenStream& stream, std::int64_t begin, std::int64_t end, std::int64_t seq_len,
              bool packs);

  std::int64_t size() const { return static_cast<std::int64_t>(sample_begins_.size()) - 1; }
  const ChatCuts& cuts() const { return cuts_; }

  std::span<const ChatRange> texts_of(std::int64_t sample) const;

 private:
  std::vector<ChatRange> texts_;  ///< sample by sample
  /// Each sample's texts begin at its place in texts_; the last number is the end of the last
  /// one's.
  std::vector<std::size_t> sample_begins_ = {0};
  ChatCuts cuts_;
};

/// Returns the first conversation that begins at `position` or later; the stream's end if there is
/// none.
std::int64_t next_chat_begin(const TokenStream& stream, std::int64_t position);

}  // namespace meshloom::train
