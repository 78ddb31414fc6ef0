// SPDX-License-Identifier: Apache-2.0
// The commands about the daemon itself are declared here. Each function adds its commands to the
// parser, and they leave what to do in `context.action`.
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/cli/command_context.h"

namespace meshloom::cli {

void add_status_commands(CLI::App& app, CommandContext& context);  ///< status, drain, states, ...
void add_up_command(CLI::App& app, CommandContext& context);
void add_down_command(CLI::App& app, CommandContext& context);
void add_token_commands(CLI::App& app, CommandContext& context);  ///< token, whoami
void add_capabilities_command(CLI::App& app, CommandContext& context);
void add_access_commands(CLI::App& app, CommandContext& context);  ///< share, usage, audit

/// Gives a command that lists something its --all.
inline void add_all_flag(CLI::App& list_command, CommandContext& context) {
  list_command.add_flag("--all", context.all,
                        "Of an admin: those of other owners, too, with their names");
}

}  // namespace meshloom::cli
