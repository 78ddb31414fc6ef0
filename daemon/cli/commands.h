// SPDX-License-Identifier: Apache-2.0
// The client's commands. Each adds itself to the parser and leaves what to do in `context.action`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "daemon/base/env.h"
#include "daemon/cli/client.h"
#include "daemon/cli/daemon_address.h"

namespace meshloom::cli {

/// What all commands share. Outlives the parser's callbacks.
struct CommandContext {
  AskedDaemon asked;
  base::Environment environment;
  std::string client;  ///< name of this client; empty: by its address
  /// Of the run that the command is about; empty: it does without.
  std::string run_token;
  std::string default_run_token;  ///< for commands that need one and are given none
  bool json = false;
  std::string colours = "auto";  ///< always, never, or auto: on a terminal
  /// Whether what goes to standard output is to have colours.
  bool colour() const;
  std::function<ExitCode(Client&)> action;
};

/// The whole parser of `meshloom`: its options and all commands.
void declare_commands(CLI::App& app, CommandContext& context);

void add_status_commands(CLI::App& app, CommandContext& context);  ///< status, drain, states, ...
void add_up_command(CLI::App& app, CommandContext& context);
void add_down_command(CLI::App& app, CommandContext& context);
void add_capabilities_command(CLI::App& app, CommandContext& context);
void add_job_commands(CLI::App& app, CommandContext& context);
/// submit and resume, below `job`.
void add_job_submission(CLI::App& jobs, CommandContext& context);
/// compare and plot, below `job`.
void add_job_comparison(CLI::App& jobs, CommandContext& context);
/// pause, move, edit, label, logs and metrics, below `job`.
void add_job_changes(CLI::App& jobs, CommandContext& context);
void add_run_commands(CLI::App& app, CommandContext& context);
/// forward-backward, forward, optim-step and skip, below `run`.
void add_run_training(CLI::App& runs, CommandContext& context);
/// sample, below `run`.
void add_run_sample(CLI::App& runs, CommandContext& context);
/// States and weights that are kept, below `run`.
void add_run_states(CLI::App& runs, CommandContext& context);
/// get-parameters and set-parameters, below `run`.
void add_run_parameters(CLI::App& runs, CommandContext& context);
void add_operation_commands(CLI::App& app, CommandContext& context);
void add_checkpoint_commands(CLI::App& app, CommandContext& context);
void add_generate_command(CLI::App& app, CommandContext& context);
void add_upload_commands(CLI::App& app, CommandContext& context);
void add_model_commands(CLI::App& app, CommandContext& context);
void add_data_commands(CLI::App& app, CommandContext& context);
/// train-tokenizer, below `data`.
void add_train_tokenizer(CLI::App& data, CommandContext& context);
void add_evaluate_command(CLI::App& app, CommandContext& context);
/// completion and manual: made from the commands that `app` has when they run.
void add_documentation_commands(CLI::App& app, CommandContext& context);
void add_fields_command(CLI::App& app, CommandContext& context);
void add_plan_commands(CLI::App& app, CommandContext& context);
/// Below `plan`.
void add_plan_attention(CLI::App& plan, CommandContext& context);
/// create, list, get and delete, below `plan`.
void add_stored_plans(CLI::App& plan, CommandContext& context);

}  // namespace meshloom::cli
