// SPDX-License-Identifier: Apache-2.0
// Commands on their way to one rank.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "v1/rank_service.pb.h"

namespace meshloom::control {

/// Bytes of the largest result, and of the largest command that has no data of a client.
inline constexpr std::size_t kLargestCommand = std::size_t{32} << 20;

/// Shared, since large ones are never copied.
using CommandPtr = std::shared_ptr<const v1::RankCommand>;

/// Where the executor puts a rank's commands, in order.
class CommandSink {
 public:
  virtual ~CommandSink() = default;
  /// Does not wait for the command to run. Returns false if the rank can no longer be reached.
  virtual bool send(CommandPtr command) = 0;
};

/// Where the results of a rank's commands go.
class ResultSink {
 public:
  virtual ~ResultSink() = default;
  virtual void complete(const v1::RankResult& result) = 0;
};

/// Who knows whether rank 0 is to leave a command between two parts of its work.
class CommandStops {
 public:
  virtual ~CommandStops() = default;
  /// `last`: rank 0 asks no more, what is requested later comes too late.
  virtual bool is_stopped(std::int64_t seq, bool last) = 0;
};

/// The queue that a rank's training thread takes from; it sleeps in the kernel while there is
/// nothing to do. A BulkCommand keeps the place of the command that it announces, until that is
/// there.
class CommandQueue : public CommandSink {
 public:
  bool send(CommandPtr command) override {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    commands_.push_back(std::move(command));
    changed_.notify_one();
    return true;
  }

  /// The command that was announced has come.
  void replace(CommandPtr command) {
    const std::lock_guard lock(mutex_);
    for (CommandPtr& waiting : commands_)
      if (waiting->seq() == command->seq()) waiting = command;
    changed_.notify_one();
  }

  /// Lets pop() return nothing at once, even if commands are left.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  /// Waits. Null once the queue is closed.
  CommandPtr pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(
        lock, [&] { return closed_ || (!commands_.empty() && !commands_.front()->has_bulk()); });
    if (closed_) return nullptr;
    CommandPtr command = std::move(commands_.front());
    commands_.pop_front();
    return command;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CommandPtr> commands_;
  bool closed_ = false;
};

}  // namespace meshloom::control
