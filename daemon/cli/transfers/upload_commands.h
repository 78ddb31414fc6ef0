// SPDX-License-Identifier: Apache-2.0
// The commands that upload files are declared here. Each function adds its commands to the parser,
// and they leave what to do in `context.action`.
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/cli/command_context.h"

namespace meshloom::cli {

void add_upload_commands(CLI::App& app, CommandContext& context);

}  // namespace meshloom::cli
