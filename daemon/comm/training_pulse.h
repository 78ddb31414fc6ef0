// SPDX-License-Identifier: Apache-2.0
// TrainingPulse: what a rank's training thread is doing, for a thread that watches it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

namespace meshloom::comm {

/// The training thread writes, any thread reads. Nothing here looks at a clock, so that a
/// collective pays nanoseconds.
class TrainingPulse {
 public:
  struct Reading {
    std::uint64_t progress = 0;  ///< grows with whatever gets done
    std::int64_t command = 0;    ///< seq of the command that is being carried out; 0: none
    /// Odd inside a call of a transport. Such calls do not wait for other ranks, so one that lasts
    /// is stuck.
    std::uint64_t transport = 0;
    std::string last_collective;  ///< "all_reduce #12 of group 'dp'"; empty: none yet
  };

  void advance() { progress_.fetch_add(1, std::memory_order_relaxed); }

  void begin_command(std::int64_t seq) {
    command_.store(seq, std::memory_order_relaxed);
    advance();
  }
  void end_command() { begin_command(0); }

  /// Keeps a group's name as begin_collective takes it; it stays as long as the pulse.
  const std::string* keep_name(const std::string& group) {
    const std::lock_guard lock(mutex_);
    return &*groups_.insert(group).first;
  }

  /// `name` is a string literal, `group` comes from keep_name().
  void begin_collective(const char* name, std::uint64_t sequence, const std::string* group) {
    advance();
    // Odd while the three change; release stores keep the order.
    const std::uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    name_.store(name, std::memory_order_release);
    sequence_.store(sequence, std::memory_order_release);
    group_.store(group, std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }

  void enter_transport() {
    if (depth_++ == 0) transport_.fetch_add(1, std::memory_order_relaxed);
  }
  void leave_transport() {
    if (--depth_ == 0) transport_.fetch_add(1, std::memory_order_relaxed);
  }

  Reading read() const {
    Reading reading{progress_.load(std::memory_order_relaxed),
                    command_.load(std::memory_order_relaxed),
                    transport_.load(std::memory_order_relaxed), ""};
    reading.last_collective = last_collective();
    return reading;
  }

 private:
  std::string last_collective() const {
    while (true) {
      const std::uint64_t version = version_.load(std::memory_order_acquire);
      const char* const name = name_.load(std::memory_order_acquire);
      const std::uint64_t sequence = sequence_.load(std::memory_order_acquire);
      const std::string* const group = group_.load(std::memory_order_acquire);
      if (version % 2 != 0 || version_.load(std::memory_order_relaxed) != version) continue;
      if (name == nullptr) return {};
      return std::string(name) + " #" + std::to_string(sequence) + " of group '" + *group + "'";
    }
  }

  std::atomic<std::uint64_t> progress_{0};
  std::atomic<std::int64_t> command_{0};
  std::atomic<std::uint64_t> transport_{0};
  int depth_ = 0;  ///< of the training thread
  std::atomic<std::uint64_t> version_{0};
  std::atomic<const char*> name_{nullptr};
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<const std::string*> group_{nullptr};
  std::mutex mutex_;
  std::set<std::string> groups_;  ///< names that were ever used
};

/// Marks a call of a transport; `pulse` may be null.
class InTransport {
 public:
  explicit InTransport(TrainingPulse* pulse) : pulse_(pulse) {
    if (pulse_ != nullptr) pulse_->enter_transport();
  }
  ~InTransport() {
    if (pulse_ != nullptr) pulse_->leave_transport();
  }
  InTransport(const InTransport&) = delete;
  InTransport& operator=(const InTransport&) = delete;

 private:
  TrainingPulse* pulse_;
};

}  // namespace meshloom::comm
