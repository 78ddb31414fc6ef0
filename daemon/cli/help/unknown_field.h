// SPDX-License-Identifier: Apache-2.0
// Errors and hints tell users of fields of config files that are not there, and of options that are
// fields.
#pragma once

#include <string>
#include <vector>

#include "daemon/cli/exit_code.h"
#include "daemon/command_line/usage_error.h"

namespace meshloom::cli {

/// Returns the error for a field of a config file that is none of `names`: it says what the field
/// is called here, where another trainer calls it so, or the nearest of them, and all. `where` is
/// what the field stands in, or empty.
CliError unknown_field(const std::string& where, const std::string& name,
                       const std::vector<std::string>& names);

/// Returns how a job's field is written behind a command that takes fields, for one that was
/// written as an option of that name: "a job's field is written training.steps=200". Empty for
/// other commands and names.
std::string field_hint(const command_line::UnknownOption& option);

}  // namespace meshloom::cli
