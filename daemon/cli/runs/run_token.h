// SPDX-License-Identifier: Apache-2.0
// The command line takes the token of a run from options, a file or the environment.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

#include "daemon/cli/command_context.h"
#include "daemon/cli/new_token_file.h"

namespace meshloom::cli {

/// Adds --token-file and --token; what they give, else context.default_run_token, is put into
/// context.run_token. A command that is given none is a usage error, unless the flag `unless` is
/// given.
void add_needed_token(CLI::App& command, CommandContext& context,
                      const CLI::Option* unless = nullptr);
/// Adds the two options alone, for a command that only looks: with the token it renews the run's
/// lease.
void add_optional_token(CLI::App& command, CommandContext& context);

/// Returns the token that a file holds, without blanks and ends of lines around it. Throws
/// CLI::ValidationError.
std::string read_token_file(const std::filesystem::path& path);

}  // namespace meshloom::cli
