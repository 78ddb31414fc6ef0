// SPDX-License-Identifier: Apache-2.0
#include "daemon/command_line/command_list.h"

#include <algorithm>

namespace meshloom::command_line {
namespace {

std::string first_help_line(const std::string& text) { return text.substr(0, text.find('\n')); }

void add_options(const CLI::App& app, std::vector<CommandWord>* words) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames())
      words->push_back({"--" + name, first_help_line(option->get_description())});
    for (const std::string& name : option->get_snames())
      words->push_back({"-" + name, first_help_line(option->get_description())});
  }
  for (const CLI::App* group : app.get_subcommands(is_group)) add_options(*group, words);
}

void add_commands(const CLI::App& app, const std::string& path,
                  const std::vector<CommandWord>& above, std::vector<CommandEntry>* all) {
  CommandEntry entry{path, {}, {}};
  add_options(app, &entry.options);
  for (const CommandWord& word : above)
    if (std::none_of(entry.options.begin(), entry.options.end(),
                     [&](const CommandWord& own) { return own.word == word.word; }))
      entry.options.push_back(word);
  const auto below = app.get_subcommands(is_command);
  for (const CLI::App* command : below)
    entry.commands.push_back({command->get_name(), first_help_line(command->get_description())});
  const std::vector<CommandWord> options = entry.options;
  all->push_back(std::move(entry));
  for (const CLI::App* command : below)
    add_commands(*command, path.empty() ? command->get_name() : path + " " + command->get_name(),
                 options, all);
}

}  // namespace

bool is_group(const CLI::App* app) { return app->get_name().empty(); }
bool is_command(const CLI::App* app) { return !app->get_name().empty(); }

std::vector<CommandEntry> list_commands(const CLI::App& app) {
  std::vector<CommandEntry> all;
  add_commands(app, "", {}, &all);
  return all;
}

}  // namespace meshloom::command_line
