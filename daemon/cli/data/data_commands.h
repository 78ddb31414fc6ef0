// SPDX-License-Identifier: Apache-2.0
// The commands about data are declared here. Each function adds its commands to the parser, and
// they leave what to do in `context.action`.
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/cli/command_context.h"

namespace meshloom::cli {

void add_data_commands(CLI::App& app, CommandContext& context);
/// Adds train-tokenizer, below `data`.
void add_train_tokenizer(CLI::App& data, CommandContext& context);

}  // namespace meshloom::cli
