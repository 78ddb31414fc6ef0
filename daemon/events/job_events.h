// SPDX-License-Identifier: Apache-2.0
// JobEvents: what TensorBoard shows of a job, written as it becomes known. The daemon writes it
// beside metrics.jsonl, the client from what the daemon streams.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/events/event_file.h"
#include "v1/job.pb.h"

namespace meshloom::events {

/// A file of a job's folder for TensorBoard: scalars of steps and validations (metrics_event.h);
/// config, plan, notes and samples as text; its config as hyperparameters. What the disk does not
/// take is lost, and the log says so once. Used by one thread.
class JobEvents {
 public:
  /// Begins a file. Where the folder has some already it takes away what they have behind step
  /// `after`. `job`: its config, its notes so far; of the steps every `interval`-th is shown.
  JobEvents(const std::filesystem::path& folder, const v1::Job& job, std::int64_t after,
            std::int64_t interval = 1);

  /// Whether the folder had no events: those of earlier steps are to be told, too.
  bool is_first() const { return is_first_; }

  // A line of metrics.jsonl.
  void line(const nlohmann::ordered_json& line);
  void line(const std::string& line);
  /// All lines of a file, as far as they can be read.
  void lines_of(const std::filesystem::path& file);
  void plan(const std::string& plan, std::int64_t step);
  void note(const std::string& note, std::int64_t step);
  void samples(std::span<const v1::DrawnSample> samples);
  /// A step whose loss or gradient norm is not finite, for which the job has failed.
  void bad_step(std::int64_t step, double loss, double grad_norm);
  /// What is told from here on is of steps behind `after` again: what was told of them goes.
  void go_back(std::int64_t after);
  /// The job has ended so.
  void end(v1::JobState state);

 private:
  void add(const std::optional<Event>& event);
  void write(const std::vector<Event>& events);

  const bool is_first_;
  const std::int64_t interval_;
  EventFile file_;
  bool in_trouble_ = false;
};

}  // namespace meshloom::events
