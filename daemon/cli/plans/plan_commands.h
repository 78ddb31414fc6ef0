// SPDX-License-Identifier: Apache-2.0
// The commands about plans are declared here. Each function adds its commands to the parser, and
// they leave what to do in `context.action`.
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/cli/command_context.h"

namespace meshloom::cli {

void add_plan_commands(CLI::App& app, CommandContext& context);
/// Adds attention, below `plan`.
void add_plan_attention(CLI::App& plan, CommandContext& context);
/// Adds create, list, get and delete, below `plan`.
void add_stored_plans(CLI::App& plan, CommandContext& context);

}  // namespace meshloom::cli
