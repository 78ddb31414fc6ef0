// SPDX-License-Identifier: Apache-2.0
// SampleProgress: what a sample has drawn so far, for those who read it meanwhile.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/control/jobs/token_channel.h"
#include "daemon/text/stop_strings.h"
#include "daemon/text/stream_decoder.h"
#include "v1/operation_service.pb.h"
#include "v1/run.pb.h"

namespace meshloom::control {

/// Readers keep positions of their own in what is here once, so that a slow one costs nothing. All
/// methods may be called from any thread.
class SampleProgress {
 public:
  struct Shape {
    std::vector<std::uint64_t> seeds;  ///< of each sequence
    int samples = 1;                   ///< of each prompt
    bool tempered = false;             ///< drawn at a temperature that is not 1
    bool text = false;                 ///< tokens are bytes
    bool prompts = false;              ///< their log-probs are asked for
    std::shared_ptr<const text::Tokenizer> tokenizer = nullptr;  ///< tokens are text by it
    std::vector<std::string> stop_strings = {};                  ///< that end a sequence's text
  };
  explicit SampleProgress(const Shape& shape);

  /// Before the first add(): the tokens that those of a sequence follow, which its text is without.
  void follow(std::size_t sequence, std::span<const std::int64_t> prompt);
  /// False for a token that was drawn after a stop string had ended its sequence: it is not taken.
  /// Throws ResourceExhausted where the tokenizer takes too much to make text of it.
  bool add(const DrawnToken& token);
  /// Whether a stop string has ended the text of the sequence.
  bool stopped(std::size_t sequence) const;
  int sequences() const { return static_cast<int>(shape_.seeds.size()); }
  /// What the sequence has drawn after its first `known` tokens, at most kMostTold of it; nothing
  /// if that is nothing.
  std::optional<v1::SampledTokens> after(int sequence, int known) const;
  static constexpr int kMostTold = 4096;

  /// Before result(): fills in what is not told while tokens are drawn.
  template <typename Fill>
  void complete(const Fill& fill) {
    const std::lock_guard lock(mutex_);
    fill(*result_->mutable_sample());
  }
  /// Once nothing more is added or completed.
  std::shared_ptr<const v1::VerbResult> result() const { return result_; }

 private:
  /// What is told with a token. Under the mutex.
  std::string text_of(const DrawnToken& token);

  const Shape shape_;
  mutable std::mutex mutex_;
  std::shared_ptr<v1::VerbResult> result_;

  /// Where tokens are text, of each sequence: what makes them text, what ends it, and the text that
  /// was told with each token.
  std::vector<text::StreamDecoder> decoders_;  ///< with a tokenizer
  std::vector<text::StopStrings> stops_;
  std::vector<std::vector<std::string>> texts_;
};

}  // namespace meshloom::control
