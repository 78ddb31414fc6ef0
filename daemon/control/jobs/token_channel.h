// SPDX-License-Identifier: Apache-2.0
// Tokens from the scheduler to whoever serves the call.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "daemon/control/host/wakeable.h"
#include "v1/step.pb.h"

namespace meshloom::control {

/// Tokens that one request may ask for, all of its sequences together.
inline constexpr int kMostTokens = 65'536;

struct DrawnToken {
  std::int64_t id = 0;
  std::int64_t weights_step = 0;  ///< optimizer steps behind the weights; 0: not known
  std::size_t sequence = 0;       ///< of the sample's task
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;  ///< of its sequence's last
  float log_prob = 0.0f, tempered_log_prob = 0.0f;          ///< as of train::SampledToken

  bool last() const { return finish != v1::FINISH_REASON_UNSPECIFIED; }
};

/// Holds at most kMostTokens, so nobody waits for a client. Any thread may call any method.
class TokenChannel {
 public:
  /// `reader` is woken after each change.
  explicit TokenChannel(std::weak_ptr<Wakeable> reader) : reader_(std::move(reader)) {}

  void token(const DrawnToken& token) {
    {
      const std::lock_guard lock(mutex_);
      drawn_.tokens.push_back(token);
    }
    wake();
  }
  /// The last one; null if all tokens were drawn.
  void end(const std::exception_ptr& error) {
    {
      const std::lock_guard lock(mutex_);
      if (drawn_.ended) return;
      drawn_.ended = true;
      drawn_.error = error;
    }
    wake();
  }
  /// The reader wants no more of this sequence. Tokens of it may still come, from before the ranks
  /// were told.
  void end_sequence(std::size_t sequence) {
    const std::lock_guard lock(mutex_);
    ended_sequences_.push_back(static_cast<int>(sequence));
  }
  std::vector<int> ended_sequences() const {
    const std::lock_guard lock(mutex_);
    return ended_sequences_;
  }
  /// Nobody reads any more: nothing else is drawn.
  bool left() const {
    const std::lock_guard lock(mutex_);
    return left_;
  }

  struct Drawn {
    std::vector<DrawnToken> tokens;
    bool ended = false;  ///< nothing comes after them
    std::exception_ptr error;
  };
  /// What came since the last call.
  Drawn take() {
    const std::lock_guard lock(mutex_);
    return {std::exchange(drawn_.tokens, {}), drawn_.ended, drawn_.error};
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }

 private:
  void wake() const {
    if (const auto reader = reader_.lock()) reader->wake();
  }

  const std::weak_ptr<Wakeable> reader_;
  mutable std::mutex mutex_;
  Drawn drawn_;
  std::vector<int> ended_sequences_;
  bool left_ = false;
};

}  // namespace meshloom::control
