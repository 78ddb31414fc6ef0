// SPDX-License-Identifier: Apache-2.0
// --follow shows a job's events as Progress writes them: a bar on a terminal, plain lines
// elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "v1/job.pb.h"

namespace meshloom::cli {

/// Progress makes text for standard output, as a function of events and time alone.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  Progress(bool terminal, int columns, bool colour = false)
      : terminal_(terminal), columns_(columns), colour_(colour) {}

  /// Takes the terminal's columns as they are: what was drawn for others may lie on several lines,
  /// which are taken away with it.
  void resize(int columns) { columns_ = columns; }

  /// Returns what to print for an event; may be empty.
  std::string show(const v1::JobEvent& event, Clock::time_point now);
  /// Returns a line of its own, above the bar.
  std::string above(const std::string& line);
  /// Takes the bar away, so that other text can follow.
  std::string clear();

 private:
  std::string show_state(const v1::Job& job, Clock::time_point now);
  std::string show_tokenizing(const v1::TokenizeProgress& done, Clock::time_point now);
  std::string show_step(const v1::StepMetrics& step, Clock::time_point now);
  std::string bar(const v1::StepMetrics& step) const;
  std::string erase() const;
  void pass(Clock::time_point now, bool trained);
  double seconds_left(std::int64_t step) const;

  bool terminal_;
  int columns_;
  bool colour_;
  std::int64_t steps_ = 0;
  std::int64_t first_step_ = -1;
  Clock::time_point last_event_;
  Clock::duration trained_{};  ///< since first_step_, without validations
  Clock::time_point last_line_;
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string bar_;
  std::string tokenized_;  ///< the line about the text that was done last
};

}  // namespace meshloom::cli
