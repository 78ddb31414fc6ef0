// SPDX-License-Identifier: Apache-2.0
// Tokens from the training thread to the thread that serves the call.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

namespace meshloom::control {

/// Tokens that one request may ask for.
inline constexpr int kMostTokens = 65'536;

/// Holds at most kMostTokens, so the training thread never waits for a client.
class TokenChannel {
 public:
  /// False once the reader has left or the time of a turn is used up: ranks that train wait
  /// meanwhile.
  bool push(std::int64_t token) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (!first_) first_ = now;
    tokens_.push_back(token);
    changed_.notify_one();
    out_of_time_ = now - *first_ >= kLongestTurn;
    return !left_ && !out_of_time_;
  }

  bool out_of_time() const {
    const std::lock_guard lock(mutex_);
    return out_of_time_;
  }

  /// The next token; nothing after `timeout`.
  std::optional<std::int64_t> pop(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return !tokens_.empty(); });
    if (tokens_.empty()) return std::nullopt;
    const std::int64_t token = tokens_.front();
    tokens_.pop_front();
    return token;
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kLongestTurn{30};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::int64_t> tokens_;
  std::optional<Clock::time_point> first_;
  bool left_ = false;
  bool out_of_time_ = false;
};

}  // namespace meshloom::control
