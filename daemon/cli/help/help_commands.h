// SPDX-License-Identifier: Apache-2.0
// The commands that describe the program and its config files are declared here. Each function adds
// its commands to the parser, and they leave what to do in `context.action`.
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/cli/command_context.h"

namespace meshloom::cli {

/// Adds completion and manual: made from the commands that `app` has when they run.
void add_documentation_commands(CLI::App& app, CommandContext& context);
void add_fields_command(CLI::App& app, CommandContext& context);

}  // namespace meshloom::cli
