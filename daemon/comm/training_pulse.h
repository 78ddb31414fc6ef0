// SPDX-License-Identifier: Apache-2.0
// TrainingPulse: what a rank's training thread is doing, for a thread that watches it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
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

  /// `name` is a string literal.
  void begin_collective(const char* name, std::uint64_t sequence, const std::string& group) {
    advance();
    const std::lock_guard lock(mutex_);
    name_ = name;
    sequence_ = sequence;
    group_ = group;
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
    const std::lock_guard lock(mutex_);
    if (*name_ != '\0')
      reading.last_collective =
          std::string(name_) + " #" + std::to_string(sequence_) + " of group '" + group_ + "'";
    return reading;
  }

 private:
  std::atomic<std::uint64_t> progress_{0};
  std::atomic<std::int64_t> command_{0};
  std::atomic<std::uint64_t> transport_{0};
  int depth_ = 0;  ///< of the training thread
  mutable std::mutex mutex_;
  const char* name_ = "";
  std::uint64_t sequence_ = 0;
  std::string group_;
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
