// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl of a job: one JSON line for each optimizer step and each validation.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "daemon/base/line_file.h"
#include "v1/job.pb.h"

namespace meshloom::base {

/// The lines of an attempt have this in common.
struct MetricsOrigin {
  std::string job;
  std::int64_t attempt = 1;
  double ran_seconds = 0.0;  ///< that the job had the ranks in earlier attempts
  /// The metrics of the job whose checkpoint this one began with; empty if there is none. Their
  /// lines come first in a file that does not exist yet.
  std::filesystem::path before;
};

/// Each line has "step", "time" (RFC 3339 with milliseconds), "elapsed" (seconds that the job had
/// the ranks, all attempts together), "job" and "attempt"; that of a step also its metrics and, as
/// "seconds_PHASE", where its time went, and "goodput", the productive share of the time since its
/// submission, with "lost_seconds_CAUSE" where that is more than the line before told; that of a
/// validation "validation_loss", "perplexity" and
/// "validation_bits_per_byte", and the same with "_SET" behind them of each validation set. Bits by
/// byte of text are null where it is not known. A number that is not finite is null, and
/// "not_finite" says which it is, inf, -inf or nan: "loss=inf,grad_norm=nan". Used by one thread. A
/// line is written whole or not at all; a full disk costs metrics, never the job: the log tells of
/// the first that is lost, and the next line that is written has "lost_lines", how many are missing
/// before it.
class MetricsLog {
 public:
  /// Appends. Lines of steps after `last_step` (from an attempt that went on beyond the checkpoint
  /// a job resumes from) and an unfinished last line are removed first.
  MetricsLog(const std::filesystem::path& file, std::int64_t last_step, MetricsOrigin origin = {});

  // Each returns the line.
  nlohmann::ordered_json step(const v1::StepMetrics& metrics,
                              const std::map<std::string, double>& seconds);
  nlohmann::ordered_json validation(const v1::ValidationMetrics& metrics);
  /// Returns the last step with a validation of this job in the file; -1: none.
  std::int64_t last_validation() const { return last_validation_; }

 private:
  nlohmann::ordered_json line_of(std::int64_t step) const;
  void put_goodput(const v1::Goodput& goodput, nlohmann::ordered_json* line);
  nlohmann::ordered_json write(nlohmann::ordered_json line);

  const MetricsOrigin origin_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::optional<LineFile> file_;  ///< after what it goes on with was put in place
  std::int64_t last_validation_ = -1;
  std::map<std::string, double> lost_;  ///< seconds by cause, as a line told them last
};

}  // namespace meshloom::base
