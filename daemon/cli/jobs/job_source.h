// SPDX-License-Identifier: Apache-2.0
// JobSource is a job to submit, and knows where each of its fields was set.
#pragma once

#include <string>

#include "daemon/base/yaml_reader.h"
#include "daemon/cli/jobs/field_setting.h"
#include "v1/job.pb.h"

namespace meshloom::cli {

/// Returns "file:line: " of a field, or of the nearest field above it that the file sets; "file: "
/// where there is none, nothing without a file.
std::string place_in(const std::string& file, const base::SourceLines& lines, std::string field);

struct JobSource {
  v1::JobSpec spec;
  std::string file;              ///< empty if the job is made from one that the daemon knows
  base::SourceLines lines;       ///< of `file`
  std::string plan_file;         ///< empty if there is none
  base::SourceLines plan_lines;  ///< of `plan_file`, by the path in it ("mesh.tp")

  std::vector<FieldSetting> settings;  ///< over the files, the last one counts

  /// Reads the file; "-" is standard input. Throws CliError (kUsage) naming file and line of what
  /// is wrong.
  static JobSource read(const std::string& file);

  /// Takes the file's mesh and plan, whole, instead of the job's: what the job says of them is
  /// gone, but for the dtype if the file has none. Throws CliError (kUsage).
  void use_plan(const std::string& path);

  /// Sets a field over what the files say.
  void set(const FieldSetting& setting);

  /// Returns "file:line: " of the field that the daemon refuses or warns of ("run.mesh.tp"), or of
  /// the nearest field above it that a file sets; what the command line sets it to, if that does.
  std::string place_of(const std::string& field) const;
};

/// Returns a job file to begin with, with its comments.
const char* example_job();

}  // namespace meshloom::cli
