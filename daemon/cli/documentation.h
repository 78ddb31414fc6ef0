// SPDX-License-Identifier: Apache-2.0
// Shell completions and the manual page, made from the commands of a parser that has parsed
// nothing: one that has shows the help of what it has found.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace meshloom::cli {

/// A word that may stand behind a command: a command below it, or an option.
struct CommandWord {
  std::string word;
  std::string text;  ///< the first line of its help
};

/// A command with what is understood behind it, options of the commands above it included.
struct CommandEntry {
  std::string path;  ///< "job submit"; empty for the program itself
  std::vector<CommandWord> commands;
  std::vector<CommandWord> options;  ///< with their dashes
};

/// Every command of the program, each before those below it.
std::vector<CommandEntry> list_commands(const CLI::App& app);

/// A script that the shell reads: completes commands and options, and files elsewhere.
std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

/// meshloom.1 in roff: what --help says of the program and of every command.
std::string manual_page(const CLI::App& app, const std::string& version);

}  // namespace meshloom::cli
