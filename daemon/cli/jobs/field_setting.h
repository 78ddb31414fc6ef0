// SPDX-License-Identifier: Apache-2.0
// The command line sets fields of a job file: "training.steps=50".
#pragma once

#include <string>
#include <vector>

#include "v1/job.pb.h"

namespace meshloom::cli {

/// FieldSetting is a field of a job and the value that it gets.
struct FieldSetting {
  std::string text;   ///< as it was given
  std::string field;  ///< its whole path, "run.training.steps"
  v1::JobSpec value;  ///< with this field alone
};

/// Parses "FIELD=VALUE": the path is one of a job file, in which "run." may be left out; the value
/// is spelled as there. Throws CliError (kUsage) that names the nearest field or what was expected.
FieldSetting parse_setting(const std::string& text);

/// Parses "FIELD=VALUE,VALUE...": a setting for each value. Commas inside brackets and quotes are
/// part of one. Throws as parse_setting, and for fewer than two values.
std::vector<FieldSetting> parse_sweep(const std::string& text);

/// Gives the field this value, in the place of any other; of a map (labels) the other keys stay.
void apply_setting(const FieldSetting& setting, v1::JobSpec* spec);

}  // namespace meshloom::cli
