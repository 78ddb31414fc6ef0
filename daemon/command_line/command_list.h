// SPDX-License-Identifier: Apache-2.0
// The commands of a parser, with what may stand behind each.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace meshloom::command_line {

/// CommandWord is a word that may stand behind a command: a command below it, or an option.
struct CommandWord {
  std::string word;
  std::string text;  ///< the first line of its help
};

/// CommandEntry is a command with what is understood behind it, options of the commands above it
/// included.
struct CommandEntry {
  std::string path;  ///< "job submit"; empty for the program itself
  std::vector<CommandWord> commands;
  std::vector<CommandWord> options;  ///< with their dashes
};

/// Returns every command of the program, each before those below it.
std::vector<CommandEntry> list_commands(const CLI::App& app);

/// Tells whether this is a group of options, which has no name, or a command. Filters of
/// get_subcommands.
bool is_group(const CLI::App* app);
bool is_command(const CLI::App* app);

}  // namespace meshloom::command_line
