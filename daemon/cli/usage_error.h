// SPDX-License-Identifier: Apache-2.0
// What is wrong with a command line, in one sentence that says what to write instead.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "daemon/cli/exit_code.h"

namespace meshloom::cli {

/// Of a line that `app` has refused with `error`: the command it is about, what was seen, what was
/// meant perhaps or what there is, and where help is. Without the program's name.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error);

/// A field of a config file that is none of `names`: the nearest of them and all. `where` is what
/// the field stands in, or empty.
CliError unknown_field(const std::string& where, const std::string& name,
                       const std::vector<std::string>& names);

}  // namespace meshloom::cli
