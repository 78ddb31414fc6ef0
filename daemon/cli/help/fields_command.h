// SPDX-License-Identifier: Apache-2.0
// The command `fields` is declared here. It adds itself to the parser and leaves what to do in
// `context.action`.
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/cli/command_context.h"

namespace meshloom::cli {

void add_fields_command(CLI::App& app, CommandContext& context);

}  // namespace meshloom::cli
