// SPDX-License-Identifier: Apache-2.0
// Outbox: messages on their way out of one stream, so that nobody who sends waits for the peer.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace meshloom::control {

/// A thread of its own writes, in the order of send(). Any thread may send.
template <typename Message>
class Outbox {
 public:
  /// `write` returns false if the stream has ended, and may wait for the peer; nothing is
  /// written after that.
  explicit Outbox(std::function<bool(const Message&)> write)
      : write_(std::move(write)), thread_([this] { run(); }) {}
  ~Outbox() { finish(); }
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// False if the stream has ended.
  bool send(Message message) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    messages_.push_back(std::move(message));
    changed_.notify_one();
    return true;
  }

  /// Waits until what was sent is written, or the stream has ended.
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closed_ || !messages_.empty(); });
      if (messages_.empty()) return;
      const Message message = std::move(messages_.front());
      messages_.pop_front();
      lock.unlock();
      const bool written = write_(message);
      lock.lock();
      if (written) continue;
      closed_ = true;
      return;
    }
  }

  std::function<bool(const Message&)> write_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> messages_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace meshloom::control
