// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl of a job: one JSON line for each optimizer step and each validation.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "v1/job.pb.h"

namespace meshloom::base {

/// Used by one thread. A line is written whole or not at all; a full disk costs metrics, never the
/// job: write errors are logged once.
class MetricsLog {
 public:
  /// Appends. Lines of steps after `last_step` (from an attempt that went on beyond the checkpoint
  /// a job resumes from) and an unfinished last line are removed first.
  MetricsLog(const std::filesystem::path& file, std::int64_t last_step);

  void step(const v1::StepMetrics& metrics, const std::map<std::string, double>& seconds);
  void validation(const v1::ValidationMetrics& metrics);
  /// The last step with a validation in the file; -1: none.
  std::int64_t last_validation() const { return last_validation_; }

 private:
  void write(const std::string& line);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::int64_t last_validation_ = -1;
  bool failed_ = false;
};

}  // namespace meshloom::base
