// SPDX-License-Identifier: Apache-2.0
// Commands that download files have this in common.
#pragma once

#include <CLI/CLI.hpp>

#include "daemon/cli/command_context.h"

namespace meshloom::cli {

/// Gives a command the name of what is downloaded (`name_text` says which), the folder, and
/// --resume, and makes downloading its action.
void add_download(CLI::App& command, CommandContext& context, const char* name_text);

}  // namespace meshloom::cli
