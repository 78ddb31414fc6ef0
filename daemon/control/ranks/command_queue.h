// SPDX-License-Identifier: Apache-2.0
// Commands on their way to one rank.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>

#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Bytes of the largest command and of the largest result.
inline constexpr std::size_t kLargestCommand = std::size_t{32} << 20;

/// Where the executor puts a rank's commands, in order.
class CommandSink {
 public:
  virtual ~CommandSink() = default;
  /// Does not wait for the command to run. Returns false if the rank can no longer be reached.
  virtual bool send(const v1::RankCommand& command) = 0;
};

/// The queue that a rank's training thread takes from; it sleeps in the kernel while there is
/// nothing to do.
class CommandQueue : public CommandSink {
 public:
  bool send(const v1::RankCommand& command) override {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    commands_.push_back(command);
    changed_.notify_one();
    return true;
  }

  /// Lets pop() return nothing at once, even if commands are left.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  std::optional<v1::RankCommand> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !commands_.empty(); });
    if (closed_) return std::nullopt;
    v1::RankCommand command = std::move(commands_.front());
    commands_.pop_front();
    return command;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::RankCommand> commands_;
  bool closed_ = false;
};

}  // namespace meshloom::control
