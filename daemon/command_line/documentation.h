// SPDX-License-Identifier: Apache-2.0
// Shell completions and the manual page, made from the commands of a parser that has parsed
// nothing: one that has shows the help of what it has found.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace meshloom::command_line {

/// Writes a script that the shell reads: completes commands and options, and files elsewhere.
std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

constexpr const char* kShells[] = {"bash", "zsh", "fish"};
/// Returns the completion script for `shell`, which is one of kShells.
std::string completion(const CLI::App& app, const std::string& shell);

/// Writes the page of section 1 in roff: what --help says of the program and of every command.
std::string manual_page(const CLI::App& app, const std::string& version);

}  // namespace meshloom::command_line
