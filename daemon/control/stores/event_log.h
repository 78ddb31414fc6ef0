// SPDX-License-Identifier: Apache-2.0
// STATE_DIR/events.jsonl: what became of all jobs, for programs. Its lines are those of
// EventService.StreamEvents.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/base/line_file.h"
#include "daemon/control/host/wakeable.h"
#include "daemon/control/stores/subscribers.h"
#include "v1/job.pb.h"

namespace meshloom::control {

/// What an event that is told adds, with the time: a line of JSON for a state that is reached, a
/// condition that has come to hold, and a note. Empty for others. `before`: the state that was
/// told; `job`: as it was told.
std::string event_lines(const v1::JobEvent& event, v1::JobState before, const v1::Job& job);
/// The line of a state that a job was in, or has come to, without an event: submitted, or after a
/// restart.
std::string state_line(const v1::Job& job, v1::JobState before);

/// The file, to which one daemon appends, and who reads it as it grows. All methods may be called
/// from any thread.
class EventLog {
 public:
  explicit EventLog(std::filesystem::path path) : path_(path), file_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }
  /// All of the lines or none: what a full disk does not take is lost, and the log says so.
  void append(const std::string& lines);
  /// Wakes the subscriber after each line, from the thread that appends.
  Subscription subscribe(std::weak_ptr<Wakeable> subscriber);
  /// Wakes all, which then see that it is closed.
  void close();
  bool closed() const;

 private:
  const std::filesystem::path path_;
  mutable std::mutex mutex_;
  base::LineFile file_;
  Subscribers subscribers_;
  bool closed_ = false;
};

}  // namespace meshloom::control
