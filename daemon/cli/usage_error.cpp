// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/usage_error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "daemon/base/nearest_name.h"

namespace meshloom::cli {
namespace {

/// The last command of the line that was understood.
const CLI::App& command_of(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : command_of(*parsed.front());
}

bool is_command(const CLI::App* app) { return !app->get_name().empty(); }

std::vector<std::string> commands_below(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* below : command.get_subcommands(is_command))
    names.push_back(below->get_name());
  return names;
}

/// As they are understood after the command, those of the commands above it included.
std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    std::vector<const CLI::App*> parts = {app};
    for (const CLI::App* group : app->get_subcommands([](auto* a) { return !is_command(a); }))
      parts.push_back(group);
    for (const CLI::App* part : parts)
      for (const CLI::Option* option : part->get_options())
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// "meshloom job submit": what is written to come to a command.
std::string path_of(const CLI::App& command) {
  const CLI::App* above = command.get_parent();
  return above ? path_of(*above) + " " + command.get_name() : command.get_name();
}

std::string with_hint(std::string text, const std::string& seen,
                      const std::vector<std::string>& candidates) {
  const std::string nearest = base::nearest_name(seen, candidates);
  return nearest.empty() ? text : text + fmt::format("; did you mean {}?", nearest);
}

/// What was left over on the line.
std::string unknown_text(const CLI::App& command, const std::string& seen) {
  if (seen.rfind('-', 0) == 0 && seen.size() > 1) {
    const std::string name = seen.substr(0, seen.find('='));
    return with_hint(fmt::format("unknown option {}", name), name, option_names(command));
  }
  const auto commands = commands_below(command);
  if (commands.empty()) return fmt::format("\"{}\" is one argument too many", seen);
  return with_hint(fmt::format("unknown command \"{}\"", seen), seen, commands);
}

std::string reason_of(const CLI::App& command, const std::vector<std::string>& left_over,
                      const CLI::ParseError& error) {
  const bool incomplete = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if ((incomplete || dynamic_cast<const CLI::ExtrasError*>(&error)) && !left_over.empty())
    return unknown_text(command, left_over.front());
  const auto commands = commands_below(command);
  if (incomplete && !commands.empty())
    return fmt::format("a command is needed: {}", fmt::join(commands, ", "));
  return error.what();
}

}  // namespace

std::string usage_text(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = command_of(app);
  const std::string path = path_of(command);
  return fmt::format("{}\nRun \"{} --help\" for what there is.",
                     reason_of(command, app.remaining(true), error), path);
}

}  // namespace meshloom::cli
