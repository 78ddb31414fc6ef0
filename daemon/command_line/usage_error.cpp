// SPDX-License-Identifier: Apache-2.0
#include "daemon/command_line/usage_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "daemon/base/nearest_name.h"
#include "daemon/command_line/command_list.h"
#include "daemon/command_line/value_error.h"

namespace meshloom::command_line {
namespace {

/// The last command of the line that was understood.
const CLI::App& command_of(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : command_of(*parsed.front());
}

/// "job submit": what is written behind the program to come to a command.
std::string path_of(const CLI::App& command) {
  const CLI::App* above = command.get_parent();
  if (!above) return "";
  const std::string path = path_of(*above);
  return path.empty() ? command.get_name() : path + " " + command.get_name();
}

const CLI::App& program_of(const CLI::App& command) {
  const CLI::App* above = command.get_parent();
  return above ? program_of(*above) : command;
}

/// What may stand behind a command.
struct Understood {
  std::vector<std::string> commands, options;
};

Understood understood_by(const CLI::App& command) {
  Understood words;
  for (const CommandEntry& entry : list_commands(program_of(command))) {
    if (entry.path != path_of(command)) continue;
    for (const CommandWord& below : entry.commands) words.commands.push_back(below.word);
    for (const CommandWord& option : entry.options)
      if (option.word.starts_with("--")) words.options.push_back(option.word);
  }
  return words;
}

bool looks_like_option(const std::string& text) { return text.size() > 1 && text[0] == '-'; }

/// What stands behind it, unless an argument of the command has taken it.
std::string value_behind(const std::vector<std::string>& left_over, const CLI::App& command) {
  const std::size_t equals = left_over[0].find('=');
  if (equals != std::string::npos) return left_over[0].substr(equals + 1);
  if (left_over.size() > 1 && !looks_like_option(left_over[1])) return left_over[1];
  for (const CLI::Option* option : command.get_options())
    if (option->get_positional() && !option->results().empty() &&
        option->get_items_expected_max() > 1)
      return option->results().back();
  return "";
}

std::string unknown_option_text(const CLI::App& command, const Understood& words,
                                const std::vector<std::string>& left_over, const OptionHint& hint) {
  const std::string name = left_over[0].substr(0, left_over[0].find('='));
  std::string text = fmt::format("unknown option {}", name);
  const std::size_t behind_dashes = name.find_first_not_of('-');
  if (behind_dashes == std::string::npos) return text;
  if (hint) {
    const std::string known = hint({path_of(command), name, value_behind(left_over, command)});
    if (!known.empty()) return text + "; " + known;
  }
  // The nearest by what is behind the dashes, which all have.
  std::vector<std::string> names;
  for (const std::string& option : words.options) names.push_back(option.substr(2));
  const std::string nearest = base::nearest_name(name.substr(behind_dashes), names);
  return nearest.empty() ? text : text + fmt::format("; did you mean --{}?", nearest);
}

/// An option whose value was forgotten takes the next option for it.
std::string swallowed_option(const CLI::App& command, const Understood& words) {
  for (const CLI::Option* option : options_of(command))
    for (const std::string& value : option->results())
      if (std::find(words.options.begin(), words.options.end(), value) != words.options.end())
        return fmt::format("{} needs a value, and {} is an option", option->get_name(), value);
  return "";
}

/// Of options of which a command takes exactly one, or needs one.
std::string wrong_choice(const CLI::App& command) {
  for (const CLI::App* group : command.get_subcommands(is_group)) {
    std::vector<std::string> names, given;
    for (const CLI::Option* option : group->get_options()) {
      if (option == group->get_help_ptr()) continue;
      names.push_back(option->get_name());
      if (option->count() > 0) given.push_back(option->get_name());
    }
    if (given.size() < group->get_require_option_min())
      return fmt::format("one of {} is needed", fmt::join(names, ", "));
    if (group->get_require_option_max() > 0 && given.size() > group->get_require_option_max())
      return fmt::format("{} exclude each other: give one of them", fmt::join(given, " and "));
  }
  return "";
}

std::string unknown_command_text(const CLI::App& command, const Understood& words,
                                 const std::string& seen, const CommandHint& hint) {
  const std::string text = fmt::format("unknown command \"{}\"", seen);
  if (hint)
    if (const std::string known = hint(path_of(command), seen); !known.empty())
      return text + "; " + known;
  return text + base::nearest_hint(seen, words.commands);
}

std::string reason_of(const CLI::App& command, const std::vector<std::string>& left_over,
                      const CLI::ParseError& error, const OptionHint& hint,
                      const CommandHint& command_hint) {
  const bool incomplete = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const Understood words = understood_by(command);
  if (std::string swallowed = swallowed_option(command, words); !swallowed.empty())
    return swallowed;
  if ((incomplete || dynamic_cast<const CLI::ExtrasError*>(&error)) && !left_over.empty()) {
    const std::string& seen = left_over.front();
    if (looks_like_option(seen)) return unknown_option_text(command, words, left_over, hint);
    if (words.commands.empty()) return fmt::format("\"{}\" is one argument too many", seen);
    return unknown_command_text(command, words, seen, command_hint);
  }
  if (incomplete && command.get_require_subcommand_min() > 0 && command.get_subcommands().empty())
    return fmt::format("a command is needed: {}", fmt::join(words.commands, ", "));
  std::string text = incomplete ? wrong_choice(command) : value_problem(command, error);
  return text.empty() ? error.what() : text;
}

}  // namespace

std::string usage_text(const CLI::App& app, const CLI::ParseError& error, const OptionHint& hint,
                       const CommandHint& command_hint) {
  const CLI::App& command = command_of(app);
  const std::string path = path_of(command);
  return fmt::format("{}\nRun \"{}{}{} --help\" for what there is.",
                     reason_of(command, app.remaining(true), error, hint, command_hint),
                     app.get_name(), path.empty() ? "" : " ", path);
}

}  // namespace meshloom::command_line
