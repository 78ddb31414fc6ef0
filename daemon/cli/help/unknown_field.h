// SPDX-License-Identifier: Apache-2.0
// Fields of config files that are not there, and options that are fields.
#pragma once

#include <string>
#include <vector>

#include "daemon/cli/exit_code.h"
#include "daemon/command_line/usage_error.h"

namespace meshloom::cli {

/// A field of a config file that is none of `names`: what it is called here, where another trainer
/// calls it so, or the nearest of them, and all. `where` is what
/// the field stands in, or empty.
CliError unknown_field(const std::string& where, const std::string& name,
                       const std::vector<std::string>& names);

/// How a job's field is written behind a command that takes fields, for one that was written as an
/// option of that name: "a job's field is written training.steps=200". Empty for other commands and
/// names.
std::string field_hint(const command_line::UnknownOption& option);

}  // namespace meshloom::cli
