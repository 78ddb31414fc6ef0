// SPDX-License-Identifier: Apache-2.0
// Tokens from the scheduler to whoever serves the call.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "daemon/control/token_sink.h"

namespace meshloom::control {

/// Holds at most kMostTokens, so nobody waits for a client.
class TokenChannel final : public TokenSink {
 public:
  /// `wake` is called after each change; it must return at once.
  explicit TokenChannel(std::function<void()> wake) : wake_(std::move(wake)) {}

  void token(const DrawnToken& token) override {
    {
      const std::lock_guard lock(mutex_);
      drawn_.tokens.push_back(token);
    }
    wake_();
  }
  void end(const std::exception_ptr& error) override {
    {
      const std::lock_guard lock(mutex_);
      if (drawn_.ended) return;
      drawn_.ended = true;
      drawn_.error = error;
    }
    wake_();
  }
  bool left() const override {
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
    Drawn drawn = drawn_;
    drawn_.tokens.clear();
    return drawn;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }

 private:
  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  Drawn drawn_;
  bool left_ = false;
};

}  // namespace meshloom::control
