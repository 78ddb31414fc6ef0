// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/usage_error.h"

#include <fmt/ranges.h>

#include <vector>

#include "daemon/base/nearest_name.h"
#include "daemon/cli/documentation.h"

namespace meshloom::cli {
namespace {

/// The last command of the line that was understood.
const CLI::App& command_of(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : command_of(*parsed.front());
}

/// "meshloom job submit": what is written to come to a command.
std::string path_of(const CLI::App& command) {
  const CLI::App* above = command.get_parent();
  return above ? path_of(*above) + " " + command.get_name() : command.get_name();
}

/// What may stand behind a command.
struct Understood {
  std::vector<std::string> commands, options;
};

Understood understood_by(const CLI::App& command) {
  const CLI::App* program = &command;
  while (program->get_parent()) program = program->get_parent();
  const std::string path = path_of(command);
  Understood words;
  for (const CommandEntry& entry : list_commands(*program)) {
    if (program->get_name() + (entry.path.empty() ? "" : " " + entry.path) != path) continue;
    for (const CommandWord& below : entry.commands) words.commands.push_back(below.word);
    for (const CommandWord& option : entry.options)
      if (option.word.starts_with("--")) words.options.push_back(option.word);
  }
  return words;
}

std::string with_hint(std::string text, const std::string& seen,
                      const std::vector<std::string>& candidates) {
  const std::string nearest = base::nearest_name(seen, candidates);
  return nearest.empty() ? text : text + fmt::format("; did you mean {}?", nearest);
}

/// What was left over on the line.
std::string unknown_text(const Understood& words, const std::string& seen) {
  if (seen.rfind('-', 0) == 0 && seen.size() > 1) {
    const std::string name = seen.substr(0, seen.find('='));
    return with_hint(fmt::format("unknown option {}", name), name, words.options);
  }
  if (words.commands.empty()) return fmt::format("\"{}\" is one argument too many", seen);
  return with_hint(fmt::format("unknown command \"{}\"", seen), seen, words.commands);
}

std::string reason_of(const CLI::App& command, const std::vector<std::string>& left_over,
                      const CLI::ParseError& error) {
  const bool incomplete = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const Understood words = understood_by(command);
  if ((incomplete || dynamic_cast<const CLI::ExtrasError*>(&error)) && !left_over.empty())
    return unknown_text(words, left_over.front());
  if (incomplete && !words.commands.empty())
    return fmt::format("a command is needed: {}", fmt::join(words.commands, ", "));
  return error.what();
}

}  // namespace

std::string usage_text(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = command_of(app);
  const std::string path = path_of(command);
  return fmt::format("{}\nRun \"{} --help\" for what there is.",
                     reason_of(command, app.remaining(true), error), path);
}

CliError unknown_field(const std::string& where, const std::string& name,
                       const std::vector<std::string>& names) {
  const std::string nearest = base::nearest_name(name, names);
  return {kUsage, fmt::format("{}unknown field \"{}\"{} (valid here: {})",
                              where.empty() ? "" : where + ": ", name,
                              nearest.empty() ? "" : fmt::format("; did you mean \"{}\"?", nearest),
                              fmt::join(names, ", "))};
}

}  // namespace meshloom::cli
