// SPDX-License-Identifier: Apache-2.0
// The commands about jobs are declared here. Each function adds its commands to the parser, and
// they leave what to do in `context.action`.
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/cli/command_context.h"

namespace meshloom::cli {

void add_job_commands(CLI::App& app, CommandContext& context);
void add_events_command(CLI::App& app, CommandContext& context);
/// Adds submit and resume, below `job`.
void add_job_submission(CLI::App& jobs, CommandContext& context);
/// Adds compare and plot, below `job`.
void add_job_comparison(CLI::App& jobs, CommandContext& context);
/// Adds pause, move, edit, label, logs and metrics, below `job`.
void add_job_changes(CLI::App& jobs, CommandContext& context);
/// Adds wait and tensorboard, below `job`.
void add_job_watching(CLI::App& jobs, CommandContext& context);

}  // namespace meshloom::cli
