// SPDX-License-Identifier: Apache-2.0
// RunSource is a run to make, and knows where each of its fields was set.
#pragma once

#include <string>
#include <vector>

#include "daemon/base/yaml_reader.h"
#include "v1/error.pb.h"
#include "v1/job.pb.h"
#include "v1/run.pb.h"

namespace meshloom::cli {

struct RunSource {
  v1::RunSpec spec;
  std::string file;
  base::SourceLines lines;  ///< of `file`, by paths in it
  bool is_job = false;      ///< the file is a job's: paths below its `run` are those below config
  /// A job's file has fields that a run has no use for, as "training.steps".
  std::vector<std::string> left_out;

  /// Reads the file; "-" is standard input. A job's file is understood: what a run and a job have
  /// in common is taken. Throws CliError (kUsage) naming file and line of what is wrong.
  static RunSource read(const std::string& file);

  /// Sets "FIELD=VALUE", as of a job ("optimizer.lr=1e-4"), or a field of RunSpec
  /// ("lease_seconds=60"). Throws CliError (kUsage).
  void set(const std::string& text);

  /// Returns "file:line: " of the field that the daemon refuses, or what the command line sets it
  /// to.
  std::string place_of(const v1::ErrorDetails& details) const;

  struct Setting {
    std::string text;   ///< as it was given
    std::string field;  ///< "config.optimizer.lr"
  };
  std::vector<Setting> settings;  ///< over the file, the last one counts
};

/// Returns what of a job is a run's. The paths of the rest go to `left_out`, those below the job's
/// "run" without it.
v1::RunSpec run_of_job(const v1::JobSpec& job, std::vector<std::string>* left_out);

}  // namespace meshloom::cli
