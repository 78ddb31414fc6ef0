// SPDX-License-Identifier: Apache-2.0
// The commands about runs and operations are declared here. Each function adds its commands to the
// parser, and they leave what to do in `context.action`.
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/cli/command_context.h"

namespace meshloom::cli {

void add_run_commands(CLI::App& app, CommandContext& context);
/// Adds forward-backward, forward, optim-step and skip, below `run`.
void add_run_training(CLI::App& runs, CommandContext& context);
/// Adds sample, below `run`.
void add_run_sample(CLI::App& runs, CommandContext& context);
/// Adds the commands about states and weights that are kept, below `run`.
void add_run_states(CLI::App& runs, CommandContext& context);
/// Adds get-parameters and set-parameters, below `run`.
void add_run_parameters(CLI::App& runs, CommandContext& context);
void add_operation_commands(CLI::App& app, CommandContext& context);

}  // namespace meshloom::cli
