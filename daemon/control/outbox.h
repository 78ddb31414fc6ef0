// SPDX-License-Identifier: Apache-2.0
// Outbox: messages on their way out of one stream, so that nobody who sends waits for the peer.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace meshloom::control {

/// How often a heartbeat goes out.
inline constexpr std::chrono::milliseconds kHeartbeatPeriod{500};

/// A thread of its own writes, in the order of send(), and a heartbeat every kHeartbeatPeriod
/// between. Any thread may send.
template <typename Message>
class Outbox {
 public:
  /// `write` returns false where the stream has ended, and may wait for the peer; nothing is
  /// written after that. `first` goes out before any heartbeat.
  Outbox(std::function<bool(const Message&)> write, std::function<Message()> heartbeat,
         std::deque<Message> first = {})
      : write_(std::move(write)),
        heartbeat_(std::move(heartbeat)),
        messages_(std::move(first)),
        thread_([this] { run(); }) {}
  ~Outbox() { finish(); }
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  /// False where the stream has ended.
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
  using Clock = std::chrono::steady_clock;

  void run() {
    std::unique_lock lock(mutex_);
    Clock::time_point next_beat = Clock::now() + kHeartbeatPeriod;
    std::size_t before_beats = messages_.size();
    while (true) {
      changed_.wait_until(lock, next_beat, [&] { return closed_ || !messages_.empty(); });
      if (closed_ && messages_.empty()) return;
      Message message;
      if (const Clock::time_point now = Clock::now(); before_beats == 0 && now >= next_beat) {
        next_beat = now + kHeartbeatPeriod;
        message = heartbeat_();
      } else if (!messages_.empty()) {
        message = std::move(messages_.front());
        messages_.pop_front();
        if (before_beats > 0) --before_beats;
      } else {
        continue;
      }
      lock.unlock();
      const bool written = write_(message);
      lock.lock();
      if (written) continue;
      closed_ = true;
      return;
    }
  }

  std::function<bool(const Message&)> write_;
  std::function<Message()> heartbeat_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> messages_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace meshloom::control
