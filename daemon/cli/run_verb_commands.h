// SPDX-License-Identifier: Apache-2.0
// What the commands below `meshloom run` share.
#pragma once

#include <string>

#include "daemon/cli/commands.h"
#include "v1/run.pb.h"

namespace meshloom::cli {

v1::Run get_run(Client& client, const std::string& name);

/// The positional `run` and --token.
void add_run_and_token(CLI::App& command, std::string& run, std::string& token);

/// The verbs that make sense by hand: forward-backward on data of the daemon's, optim-step,
/// save-state, save-weights, sample.
void add_run_verbs(CLI::App& runs, CommandContext& context);

}  // namespace meshloom::cli
