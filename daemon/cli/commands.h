// SPDX-License-Identifier: Apache-2.0
// The parser of `meshloom` is put together here, out of the commands of all rooms.
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/cli/command_context.h"

namespace meshloom::cli {

/// Declares the whole parser: the program's own options and all commands.
void declare_commands(CLI::App& app, CommandContext& context);

/// Adds completion and manual, which describe the whole parser when they run.
void add_documentation_commands(CLI::App& app, CommandContext& context);

}  // namespace meshloom::cli
